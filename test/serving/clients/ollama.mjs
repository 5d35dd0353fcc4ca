// Ollama's own client.
import assert from "node:assert/strict";
import test from "node:test";
import { Ollama } from "ollama";
import { Person, answers, asked, endsTheGeneration, fails, functions, jsonSchema, key, person, scripts, stories, strict, tools, url, whileBusy } from "./world.mjs";

const open = (host, of = key) => new Ollama({ host, headers: { Authorization: `Bearer ${of}` } });
const client = open(url);
const model = "llama3.2";
const say = (content) => [{ role: "user", content }];

test("chat", async () => {
  const reply = await client.chat({ model, messages: [{ role: "system", content: "Be short." }, ...say("#plain")], options: { temperature: 0.5, num_ctx: 4096 } });
  assert.equal(reply.message.role, "assistant");
  assert.equal(reply.message.content, scripts.plain[0]);
  assert.equal(reply.done, true);
  assert.equal(reply.done_reason, "stop");
  assert.ok(reply.eval_count > 5 && reply.prompt_eval_count > 5 && reply.eval_duration > 0 && reply.total_duration > 0);
});

test("chat: streaming", async () => {
  const pieces = [];
  let last;
  for await (const part of await client.chat({ model, messages: say("#plain"), stream: true })) {
    if (part.message.content) pieces.push(part.message.content);
    last = part;
  }
  assert.equal(pieces.join(""), scripts.plain[0]);
  assert.ok(pieces.length > 5);
  assert.equal(last.done, true);
  assert.ok(last.eval_count > 5);
});

test("generate", async () => {
  const whole = await client.generate({ model, prompt: "#plain" });
  assert.equal(whole.response, scripts.plain[0]);
  let text = "";
  for await (const part of await client.generate({ model, prompt: "#plain", stream: true })) text += part.response;
  assert.equal(text, scripts.plain[0]);
});

for (const stream of [false, true]) {
  test(`tools: a loop of three turns${stream ? ", streamed" : ""}`, async () => {
    const has = tools();
    const messages = say("#weather");
    for (let turn = 0; turn < 5; ++turn) {
      const reply = await client.chat({ model, messages, tools: functions(has), stream });
      const message = { role: "assistant", content: "", tool_calls: [] };
      for await (const part of stream ? reply : [reply]) {
        message.content += part.message.content;
        message.tool_calls.push(...(part.message.tool_calls ?? []));
      }
      messages.push(message);
      if (message.tool_calls.length === 0) break;
      for (const { function: { name, arguments: args } } of message.tool_calls)
        messages.push({ role: "tool", tool_name: name, content: has[name].run(args) });
    }
    assert.equal(messages.at(-1).content, scripts.weather[2]);
    assert.deepEqual(has.asked, asked);
  });
}

test("thoughts are apart", async () => {
  const reply = await client.chat({ model, messages: say("#think"), think: true });
  assert.equal(reply.message.thinking.trim(), answers.thought);
  assert.equal(reply.message.content.trim(), answers.think);
  const without = await client.chat({ model, messages: say("#think"), think: false });
  assert.equal(without.message.content, scripts.plain[0]);
});

test("structured output: format", async () => {
  for (const format of [jsonSchema(Person), "json"]) {
    const reply = await client.chat({ model, messages: say("#json"), format });
    assert.deepEqual(JSON.parse(reply.message.content), person);
    const generated = await client.generate({ model, prompt: "#json", format });
    assert.deepEqual(JSON.parse(generated.response), person);
  }
});

test("list, show, version, ps", async () => {
  const { models } = await client.list();
  assert.equal(models.length, 1);
  const shown = await client.show({ model: models[0].name });
  assert.ok(shown.details.family === "llama" && shown.capabilities.includes("tools") && shown.template.includes("tool_call"));
  assert.match((await client.version()).version, /^\d+\.\d+/);
});

test("cancel in mid-stream ends the generation", async () => {
  await endsTheGeneration(async () => {
    const stream = await client.chat({ model, messages: say("#endless"), stream: true });
    let pieces = 0;
    try {
      for await (const part of stream) {
        pieces += part.message.content !== "";
        if (pieces === 3) stream.abort();
      }
    } catch (error) {
      assert.equal(error.name, "AbortError");
    }
    assert.ok(pieces >= 3);
  });
});

test("errors are the client's own class", async () => {
  const ask = (of, more) => of.chat({ model, messages: say("#plain"), ...more });
  const isResponseError = async (promise, code) => assert.equal((await fails(promise, Error, code)).name, "ResponseError");
  await isResponseError(ask(open(url, "not-the-key")), 401);
  await isResponseError(ask(client, { options: { temperature: "hot" } }), 400);
  await isResponseError(ask(client, { format: { type: "nonsense" } }), 400);
  await isResponseError(ask(open(strict)), 404);
  await whileBusy(() => isResponseError(ask(open(strict), { model: "scripted" }), 429));
});

test("embeddings", async () => {
  const reply = await open(stories).embed({ model, input: ["a fox", "two birds"] });
  assert.equal(reply.embeddings.length, 2);
});
