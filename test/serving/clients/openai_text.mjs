// OpenAI's own client: Completions, and what needs a model that draws: seeds, log-probabilities, many at once.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { fails, key, stories } from "./world.mjs";

const client = new OpenAI({ baseURL: `${stories}/v1`, apiKey: key, maxRetries: 0, timeout: 60_000 });
const models = await client.models.list();
const model = models.data[0].id;
const prompt = "One day, a little fox";
const greedy = { model, temperature: 0, max_tokens: 24 };

test("models", async () => {
  assert.equal(models.data.length, 1);
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("completions: text, finish reason, usage", async () => {
  const reply = await client.completions.create({ ...greedy, prompt });
  assert.equal(reply.object, "text_completion");
  assert.equal(reply.choices[0].finish_reason, "length");
  assert.equal(reply.usage.completion_tokens, 24);
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + 24);
  assert.ok(reply.choices[0].text.length > 20);
});

test("completions: streamed text is the same text", async () => {
  const whole = await client.completions.create({ ...greedy, prompt });
  const stream = await client.completions.create({ ...greedy, prompt, stream: true, stream_options: { include_usage: true } });
  let text = "", pieces = 0, usage = null, finish = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.text ?? "";
    pieces += chunk.choices[0]?.text ? 1 : 0;
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].text);
  assert.ok(pieces > 5, `${pieces} pieces`);
  assert.equal(finish, "length");
  assert.equal(usage.completion_tokens, 24);
});

test("completions: stop, seed, logprobs, n", async () => {
  const whole = (await client.completions.create({ ...greedy, prompt })).choices[0].text;
  const word = whole.trim().split(/\s+/)[3];
  const stopped = await client.completions.create({ ...greedy, prompt, stop: [word] });
  assert.equal(stopped.choices[0].finish_reason, "stop");
  assert.equal(stopped.choices[0].text, whole.slice(0, whole.indexOf(word)));

  const sampled = (seed) => client.completions.create({ ...greedy, prompt, temperature: 1, seed });
  const [a, b, c] = await Promise.all([sampled(7), sampled(7), sampled(8)]);
  assert.equal(a.choices[0].text, b.choices[0].text);
  assert.notEqual(a.choices[0].text, c.choices[0].text);

  const { logprobs } = (await client.completions.create({ ...greedy, prompt, max_tokens: 5, logprobs: 3 })).choices[0];
  assert.equal(logprobs.tokens.length, 5);
  assert.equal(logprobs.token_logprobs.length, 5);
  assert.ok(logprobs.token_logprobs.every((p) => p <= 0));
  assert.ok(Object.keys(logprobs.top_logprobs[0]).length >= 1);
});

test("chat: whole and streamed", async () => {
  const messages = [{ role: "system", content: "Tell stories." }, { role: "user", content: "A fox." }];
  const reply = await client.chat.completions.create({ ...greedy, messages });
  assert.equal(reply.object, "chat.completion");
  assert.equal(reply.choices[0].message.role, "assistant");
  const stream = await client.chat.completions.create({ ...greedy, messages, stream: true });
  let text = "", role = null, finish = null;
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    role = chunk.choices[0]?.delta?.role ?? role;
    text += chunk.choices[0]?.delta?.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
  }
  assert.equal(role, "assistant");
  assert.equal(text, reply.choices[0].message.content);
  assert.equal(finish, reply.choices[0].finish_reason);
});

test("chat: the client's own helper for streams, and logprobs", async () => {
  const messages = [{ role: "user", content: "A fox." }];
  const runner = client.chat.completions.stream({ ...greedy, messages });
  let text = "";
  runner.on("content", (delta) => (text += delta));
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, text);
  const reply = await client.chat.completions.create({ ...greedy, messages, max_tokens: 3, logprobs: true, top_logprobs: 2 });
  const { content } = reply.choices[0].logprobs;
  assert.ok(content.length >= 1);
  assert.equal(content[0].top_logprobs.length, 2);
});

test("errors are the client's own classes", async () => {
  await fails(client.completions.create({ ...greedy, prompt, temperature: "hot" }), OpenAI.BadRequestError, 400);
  const long = await fails(client.completions.create({ ...greedy, prompt: "a fox ".repeat(20_000) }), OpenAI.BadRequestError, 400);
  assert.match(long.message, /\d+/);
  await fails(client.post("/nowhere", { body: {} }), OpenAI.NotFoundError, 404);
});

test("many at once are each what they are alone", async () => {
  const prompts = ["A fox", "Two birds", "The old owl", "In the snow", "One day", "A little boat", "Tom", "Far away"];
  const ask = (text) => client.completions.create({ ...greedy, prompt: text });
  const alone = [];
  for (const text of prompts) alone.push((await ask(text)).choices[0].text);
  const together = await Promise.all(prompts.map(ask));
  assert.deepEqual(together.map((reply) => reply.choices[0].text), alone);
});
