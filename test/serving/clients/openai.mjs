// OpenAI's own client: Chat Completions.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { Person, answers, asked, endsTheGeneration, fails, functions, key, person, scripts, stories, strict, tools, url, whileBusy } from "./world.mjs";

const open = (server, apiKey = key) => new OpenAI({ baseURL: `${server}/v1`, apiKey, maxRetries: 0, timeout: 60_000 });
const client = open(url);
const model = "gpt-5"; // any name is accepted
const say = (content) => [{ role: "user", content }];

test("chat: system and developer, parts, usage, whatever the model's name", async () => {
  const reply = await client.chat.completions.create({
    model,
    messages: [
      { role: "system", content: "Be short." },
      { role: "developer", content: [{ type: "text", text: "Be kind." }] },
      { role: "user", content: [{ type: "text", text: "#plain" }, { type: "text", text: " please" }] },
    ],
    service_tier: "auto", store: false, user: "somebody", metadata: { some: "thing" }, max_completion_tokens: 200,
  });
  assert.equal(reply.choices[0].message.content, scripts.plain[0]);
  assert.equal(reply.choices[0].finish_reason, "stop");
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
});

test("streaming: the same text in pieces, and the usage", async () => {
  const stream = await client.chat.completions.create({ model, messages: say("#plain"), stream: true, stream_options: { include_usage: true } });
  const pieces = [];
  let usage, finish;
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta?.content) pieces.push(chunk.choices[0].delta.content);
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(pieces.join(""), scripts.plain[0]);
  assert.ok(pieces.length > 5);
  assert.equal(finish, "stop");
  assert.ok(usage.completion_tokens > 5);
});

for (const stream of [false, true]) {
  test(`tools: a loop of three turns by runTools${stream ? ", streamed" : ""}`, async () => {
    const has = tools();
    const runner = client.chat.completions.runTools({
      model, stream, messages: say("#weather"),
      tools: functions(has).map((tool) => ({ ...tool, function: { ...tool.function, function: has[tool.function.name].run, parse: JSON.parse } })),
    });
    assert.equal(await runner.finalContent(), scripts.weather[2]);
    assert.deepEqual(has.asked, asked);
    const calls = runner.messages.flatMap((message) => message.tool_calls ?? []);
    assert.equal(calls.length, 3);
    assert.equal(new Set(calls.map((call) => call.id)).size, 3);
    assert.equal(runner.messages[1].content.trim(), "I will look at Oslo first.");
  });
}

test("tools: streamed arguments come in pieces, name and id once", async () => {
  const stream = await client.chat.completions.create({ model, messages: say("#weather"), tools: functions(tools()), stream: true });
  const pieces = [];
  let finish;
  for await (const chunk of stream) {
    pieces.push(...(chunk.choices[0]?.delta?.tool_calls ?? []));
    finish = chunk.choices[0]?.finish_reason ?? finish;
  }
  assert.equal(finish, "tool_calls");
  assert.equal(pieces.filter((piece) => piece.id).length, 1);
  assert.equal(pieces.map((piece) => piece.function.name ?? "").join(""), "get_weather");
  assert.ok(pieces.length > 3, "the arguments came at once");
  assert.deepEqual(JSON.parse(pieces.map((piece) => piece.function.arguments ?? "").join("")), { city: "Oslo", unit: "celsius" });
});

test("tools: tool_choice required, a name, none", async () => {
  const ask = async (script, tool_choice, more) =>
    (await client.chat.completions.create({ model, messages: say(script), tools: functions(tools()), tool_choice, ...more })).choices[0];
  for (const choice of ["required", { type: "function", function: { name: "get_time" } }]) {
    const { message, finish_reason } = await ask("#call", choice);
    assert.equal(message.tool_calls.length, 1);
    assert.equal(message.tool_calls[0].function.name, "get_time");
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { zone: "UTC" });
    assert.ok(["tool_calls", "stop"].includes(finish_reason), finish_reason);
  }
  // The script wants to answer with text, the request wants a call: its arguments are drawn from all that fit.
  let whole = 0;
  for (let seed = 1; seed <= 5; ++seed) {
    const forced = await ask("#plain", { type: "function", function: { name: "get_time" } }, { temperature: 1, seed, max_tokens: 4000 });
    assert.equal(forced.message.tool_calls[0].function.name, "get_time");
    if (forced.finish_reason === "length") continue;
    assert.equal(typeof JSON.parse(forced.message.tool_calls[0].function.arguments).zone, "string");
    ++whole;
  }
  assert.ok(whole > 0, "none came to its end");
  assert.equal((await ask("#plain", "none")).message.content, scripts.plain[0]);
});

test("thoughts are apart from the answer", async () => {
  const { message } = (await client.chat.completions.create({ model, messages: say("#think") })).choices[0];
  assert.equal(message.content.trim(), answers.think);
  assert.equal(message.reasoning_content.trim(), answers.thought);
  let thought = "", text = "";
  for await (const chunk of await client.chat.completions.create({ model, messages: say("#think"), stream: true })) {
    thought += chunk.choices[0]?.delta?.reasoning_content ?? "";
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  assert.equal(thought.trim(), answers.thought);
  assert.equal(text.trim(), answers.think);
  const reply = (await client.chat.completions.create({ model, messages: say("#think_call"), tools: functions(tools()) })).choices[0].message;
  assert.equal(reply.reasoning_content.trim(), "The clock knows.");
  assert.equal(reply.tool_calls[0].function.name, "get_time");
});

test("structured output: parse with a schema, streamed, json_object", async () => {
  const response_format = zodResponseFormat(Person, "person");
  const reply = await client.chat.completions.parse({ model, messages: say("#json"), response_format });
  assert.deepEqual(reply.choices[0].message.parsed, person);
  const final = await client.chat.completions.stream({ model, messages: say("#json"), response_format }).finalChatCompletion();
  assert.deepEqual(final.choices[0].message.parsed, person);
  // The script says no JSON, the request wants it: what comes is drawn from all that fits.
  let whole = 0;
  for (let seed = 1; seed <= 5; ++seed) {
    const forced = await client.chat.completions.create({ model, messages: say("#plain"), response_format, temperature: 1, seed, max_tokens: 4000 });
    if (forced.choices[0].finish_reason !== "stop") continue;
    Person.parse(JSON.parse(forced.choices[0].message.content));
    ++whole;
  }
  assert.ok(whole > 0, "none came to its end");
  const any = await client.chat.completions.create({ model, messages: say("#json"), response_format: { type: "json_object" } });
  assert.deepEqual(JSON.parse(any.choices[0].message.content), person);
});

test("cancel in mid-stream ends the generation", async () => {
  for (const how of ["controller", "signal", "break"]) {
    await endsTheGeneration(async () => {
      const abort = new AbortController();
      const stream = await client.chat.completions.create({ model, messages: say("#endless"), stream: true }, { signal: abort.signal });
      let pieces = 0;
      try {
        for await (const chunk of stream) {
          pieces += chunk.choices.length;
          if (pieces < 3) continue;
          if (how === "break") break;
          (how === "signal" ? abort : stream.controller).abort();
        }
      } catch (error) {
        assert.ok(error instanceof OpenAI.APIUserAbortError || error.name === "AbortError", String(error));
      }
      assert.ok(pieces >= 3);
    });
  }
});

test("errors are the client's own classes", async () => {
  const ask = (of, more) => of.chat.completions.create({ model, messages: say("#plain"), ...more });
  await fails(ask(open(url, "not-the-key")), OpenAI.AuthenticationError, 401);
  await fails(ask(client, { temperature: "hot" }), OpenAI.BadRequestError, 400);
  await fails(ask(client, { messages: [] }), OpenAI.BadRequestError, 400);
  await fails(ask(client, { messages: say("#plain".repeat(50_000)) }), OpenAI.BadRequestError, 400);
  await fails(ask(client, { response_format: { type: "json_schema", json_schema: { name: "a", schema: { type: "nonsense" } } } }), OpenAI.BadRequestError, 400);
  const unknown = await fails(ask(open(strict)), OpenAI.NotFoundError, 404);
  assert.match(unknown.message, /gpt-5/);
  assert.equal(unknown.code, "model_not_found");
  await whileBusy(async () => {
    const full = await fails(ask(open(strict), { model: "scripted" }), OpenAI.RateLimitError, 429);
    assert.ok(Number(full.headers.get("retry-after")) > 0);
  });
  // The client itself tries again, and is answered when there is room.
  const patient = new OpenAI({ baseURL: `${strict}/v1`, apiKey: key, maxRetries: 5 });
  let waiting;
  await whileBusy(async () => {
    waiting = ask(patient, { model: "scripted" });
    await new Promise((resolve) => setTimeout(resolve, 300));
  });
  assert.equal((await waiting).choices[0].message.content, scripts.plain[0]);
});

test("embeddings", async () => {
  const embedder = open(stories);
  const reply = await embedder.embeddings.create({ model, input: ["a fox", "two birds", "a fox"] });
  assert.equal(reply.data.length, 3);
  const [a, b, c] = reply.data.map((one) => one.embedding);
  assert.deepEqual(a, c);
  assert.notDeepEqual(a, b);
  const norm = Math.hypot(...a);
  assert.ok(Math.abs(norm - 1) < 1e-3, `norm ${norm}`);
});
