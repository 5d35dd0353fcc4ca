// What the tests of all clients share: the servers, the scripts of the model, tools, and what they check of a server.
// clients_test.py starts the servers and gives their addresses in LARDER_TEST.
import assert from "node:assert/strict";
import * as z from "zod/v4";

// `url` takes any model's name; `strict` only its own, and it has one slot and a queue of one. `stories` has a model
// that draws, so that a seed matters, and it embeds.
export const { url, strict, stories, key, scripts } = JSON.parse(process.env.LARDER_TEST);

export const Person = z.object({ name: z.string(), age: z.number().int(), languages: z.array(z.string()) });
export const person = JSON.parse(scripts.json[0]);
export const answers = { think: "Forty-two.", thought: "Nobody asked how, so I need not say how." };

// The tools of the scripts `weather` and `call`: what each is asked is kept in `asked`.
export function tools() {
  const asked = [];
  const record = (name, answer) => (args) => (asked.push({ name, ...args }), answer);
  return {
    asked,
    get_weather: {
      description: "The weather of a city",
      schema: z.object({ city: z.string(), unit: z.enum(["celsius", "fahrenheit"]) }),
      run: record("get_weather", "7 degrees"),
    },
    get_time: { description: "The time in a zone", schema: z.object({ zone: z.string() }), run: record("get_time", "12:00") },
  };
}
export const asked = [
  { name: "get_weather", city: "Oslo", unit: "celsius" },
  { name: "get_weather", city: "Bergen", unit: "celsius" },
  { name: "get_time", zone: "Europe/Oslo" },
];
export const jsonSchema = (schema) => z.toJSONSchema(schema);
// In OpenAI's form.
export const functions = (of) =>
  ["get_weather", "get_time"].map((name) => ({
    type: "function",
    function: { name, description: of[name].description, parameters: jsonSchema(of[name].schema) },
  }));

const get = (server, path) => fetch(server + path, { headers: { Authorization: `Bearer ${key}` } });
export const status = async (server = url) => (await get(server, "/v1/larder/status")).json();
export async function cancelled(server = url) {
  const text = await (await get(server, "/metrics")).text();
  return Number(/^larder_requests_total\{outcome="cancelled",protocol="http"\} (\d+)/m.exec(text)[1]);
}
export async function until(holds, what, seconds = 10) {
  const deadline = Date.now() + 1000 * seconds;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// `leave` asks for the endless script and goes away in the middle. The script would take much longer than this waits.
export async function endsTheGeneration(leave) {
  const before = await cancelled();
  await leave();
  await until(async () => (await status()).slots_used === 0, "the slot is still in use", 5);
  await until(async () => (await cancelled()) === before + 1, "the request does not count as cancelled", 5);
}

// Runs `act` while `strict` has no place for another request.
export async function whileBusy(act) {
  const abort = new AbortController();
  const body = JSON.stringify({ model: "scripted", messages: [{ role: "user", content: "#endless" }], stream: true });
  const fill = async () => {
    const reply = await fetch(`${strict}/v1/chat/completions`, {
      method: "POST", body, signal: abort.signal, headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    });
    for await (const piece of reply.body) void piece;
  };
  const fillers = [fill(), fill()].map((filler) => filler.catch((error) => error));
  try {
    await until(async () => (await status(strict)).queue.waiting === 1, "the server does not fill");
    await act();
  } finally {
    abort.abort();
    await Promise.all(fillers);
    await until(async () => (await status(strict)).slots_used === 0, "the server does not empty");
  }
}

// The error that `promise` must end with.
export async function fails(promise, kind, code) {
  const error = await promise.then(() => assert.fail("was accepted"), (e) => e);
  assert.ok(error instanceof kind, `${error.constructor.name}: ${error.message}`);
  assert.equal(error.status ?? error.statusCode ?? error.status_code, code, error.message);
  assert.ok(error.message.length > 10, error.message);
  return error;
}
