// The AI SDK: its providers for OpenAI (Responses, and Chat Completions) and for servers like it.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embed, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import assert from "node:assert/strict";
import test from "node:test";
import { Person, answers, asked, endsTheGeneration, fails, key, person, scripts, stories, strict, tools, url, whileBusy } from "./world.mjs";

const providers = {
  "openai, Responses": (server, apiKey = key) => createOpenAI({ baseURL: `${server}/v1`, apiKey }).responses,
  "openai, Chat": (server, apiKey = key) => createOpenAI({ baseURL: `${server}/v1`, apiKey }).chat,
  compatible: (server, apiKey = key) =>
    createOpenAICompatible({ name: "larder", baseURL: `${server}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs: true }).chatModel,
};
// Stored, the SDK names earlier items by their ids, as one of openai_responses.mjs's tests does.
const once = { maxRetries: 0, providerOptions: { openai: { store: false } } };

function declared(of) {
  return Object.fromEntries(["get_weather", "get_time"].map((name) =>
    [name, tool({ description: of[name].description, inputSchema: of[name].schema, execute: of[name].run })]));
}

for (const [name, provider] of Object.entries(providers)) {
  const model = provider(url)("gpt-4o");

  test(`${name}: text and usage`, async () => {
    const reply = await generateText({ ...once, model, system: "Be short.", prompt: "#plain" });
    assert.equal(reply.text, scripts.plain[0]);
    assert.equal(reply.finishReason, "stop");
    assert.ok(reply.usage.outputTokens > 5);
  });

  test(`${name}: streaming`, async () => {
    const reply = streamText({ ...once, model, prompt: "#plain" });
    const pieces = [];
    for await (const piece of reply.textStream) pieces.push(piece);
    assert.equal(pieces.join(""), scripts.plain[0]);
    assert.ok(pieces.length > 5);
    assert.equal(await reply.finishReason, "stop");
    assert.ok((await reply.usage).outputTokens > 5);
  });

  test(`${name}: tools, a loop of three turns`, async () => {
    const has = tools();
    const reply = await generateText({ ...once, model, prompt: "#weather", tools: declared(has), stopWhen: stepCountIs(5) });
    assert.equal(reply.text, scripts.weather[2]);
    assert.equal(reply.steps.length, 3);
    assert.deepEqual(has.asked, asked);
  });

  test(`${name}: tools, a loop of three turns, streamed`, async () => {
    const has = tools();
    const reply = streamText({ ...once, model, prompt: "#weather", tools: declared(has), stopWhen: stepCountIs(5) });
    let pieces = 0;
    for await (const part of reply.fullStream) {
      if (part.type === "error") throw part.error;
      pieces += part.type === "tool-input-delta";
    }
    assert.equal(await reply.text, scripts.weather[2]);
    assert.equal((await reply.steps).length, 3);
    assert.deepEqual(has.asked, asked);
    assert.ok(pieces > 6, `${pieces} pieces`);
  });

  test(`${name}: tools, required`, async () => {
    const has = tools();
    const reply = await generateText({ ...once, model, prompt: "#call", tools: declared(has), toolChoice: "required" });
    assert.deepEqual(reply.toolCalls.map((call) => [call.toolName, call.input]), [["get_time", { zone: "UTC" }]]);
  });

  test(`${name}: generateObject and streamObject`, async () => {
    assert.deepEqual((await generateObject({ ...once, model, schema: Person, prompt: "#json" })).object, person);
    const stream = streamObject({ ...once, model, schema: Person, prompt: "#json" });
    let parts = 0;
    for await (const part of stream.partialObjectStream) parts += part !== undefined;
    assert.deepEqual(await stream.object, person);
    assert.ok(parts > 2, `${parts} parts`);
    assert.deepEqual((await generateObject({ ...once, model, output: "no-schema", prompt: "#json" })).object, person);
  });

  test(`${name}: cancel in mid-stream ends the generation`, async () => {
    await endsTheGeneration(async () => {
      const abort = new AbortController();
      const reply = streamText({ ...once, model, prompt: "#endless", abortSignal: abort.signal, onError: () => {} });
      let pieces = 0;
      for await (const part of reply.fullStream) {
        pieces += part.type === "text-delta";
        if (pieces === 3) abort.abort();
      }
      assert.ok(pieces >= 3);
    });
  });

  test(`${name}: errors`, async () => {
    const ask = (of, more) => generateText({ ...once, model: of, prompt: "#plain", ...more });
    const wrong = await fails(ask(provider(url, "not-the-key")("gpt-4o")), APICallError, 401);
    assert.equal(wrong.isRetryable, false);
    assert.doesNotMatch(wrong.message, /^Unauthorized$/); // it understood the server's error
    await fails(ask(model, { prompt: "#plain".repeat(50_000) }), APICallError, 400);
    await fails(ask(provider(strict)("gpt-4o")), APICallError, 404);
    await whileBusy(async () => {
      const full = await fails(ask(provider(strict)("scripted")), APICallError, 429);
      assert.equal(full.isRetryable, true);
    });
  });
}

test("compatible: thoughts are apart", async () => {
  const reply = await generateText({ ...once, model: providers.compatible(url)("qwen3"), prompt: "#think" });
  assert.equal(reply.reasoningText.trim(), answers.thought);
  assert.equal(reply.text.trim(), answers.think);
});

test("embeddings", async () => {
  const model = createOpenAI({ baseURL: `${stories}/v1`, apiKey: key }).textEmbeddingModel("text-embedding-3-small");
  const reply = await embed({ ...once, model, value: "a fox" });
  assert.ok(reply.embedding.length > 10);
});
