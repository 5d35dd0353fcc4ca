// Anthropic's own client: Messages.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import assert from "node:assert/strict";
import test from "node:test";
import { Person, answers, asked, endsTheGeneration, fails, jsonSchema, key, person, scripts, strict, tools, url, whileBusy } from "./world.mjs";

const open = (server, apiKey = key) => new Anthropic({ baseURL: server, apiKey, maxRetries: 0, timeout: 60_000 });
const client = open(url);
const common = { model: "claude-sonnet-4-5", max_tokens: 1000 };
const say = (content) => [{ role: "user", content }];
const declared = (of) =>
  ["get_weather", "get_time"].map((name) => ({ name, description: of[name].description, input_schema: jsonSchema(of[name].schema) }));
const text = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");

test("text: system blocks, parts, cache_control, usage", async () => {
  const reply = await client.messages.create({
    ...common, metadata: { user_id: "somebody" },
    system: [{ type: "text", text: "Be short.", cache_control: { type: "ephemeral" } }],
    messages: say([{ type: "text", text: "#plain", cache_control: { type: "ephemeral" } }]),
  });
  assert.equal(reply.type, "message");
  assert.equal(reply.role, "assistant");
  assert.equal(text(reply), scripts.plain[0]);
  assert.equal(reply.stop_reason, "end_turn");
  assert.ok(reply.usage.input_tokens + (reply.usage.cache_read_input_tokens ?? 0) > 5);
  assert.ok(reply.usage.output_tokens > 5);
});

test("streaming: events in order, the same text", async () => {
  const kinds = [];
  let said = "";
  for await (const event of await client.messages.create({ ...common, messages: say("#plain"), stream: true })) {
    if (kinds.at(-1) !== event.type) kinds.push(event.type);
    if (event.type === "content_block_delta") said += event.delta.text;
  }
  assert.equal(said, scripts.plain[0]);
  assert.deepEqual(kinds.filter((kind) => kind !== "ping"), [
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
  ]);
  const stream = client.messages.stream({ ...common, messages: say("#plain") }); // the client's own helper
  let helped = "";
  stream.on("text", (piece) => (helped += piece));
  const final = await stream.finalMessage();
  assert.equal(helped, scripts.plain[0]);
  assert.equal(text(final), scripts.plain[0]);
  assert.equal(final.stop_reason, "end_turn");
});

for (const stream of [false, true]) {
  test(`tools: a loop of three turns${stream ? ", streamed" : ""}`, async () => {
    const has = tools();
    const messages = say("#weather");
    let reply;
    for (let turn = 0; turn < 5; ++turn) {
      const request = { ...common, messages, tools: declared(has) };
      reply = stream ? await client.messages.stream(request).finalMessage() : await client.messages.create(request);
      const calls = reply.content.filter((block) => block.type === "tool_use");
      if (calls.length === 0) break;
      assert.equal(reply.stop_reason, "tool_use");
      if (turn === 0) assert.equal(text(reply).trim(), "I will look at Oslo first.");
      messages.push({ role: "assistant", content: reply.content });
      messages.push({
        role: "user",
        content: calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: [{ type: "text", text: has[call.name].run(call.input) }] })),
      });
    }
    assert.equal(text(reply), scripts.weather[2]);
    assert.deepEqual(has.asked, asked);
  });
}

test("tools: the client's own runner", async () => {
  const has = tools();
  const runner = client.beta.messages.toolRunner({
    ...common, messages: say("#weather"),
    tools: declared(has).map((tool) => ({ ...tool, type: "custom", run: has[tool.name].run, parse: (input) => input })),
  });
  assert.equal(text(await runner), scripts.weather[2]);
  assert.deepEqual(has.asked, asked);
});

test("tools: tool_choice any and a name", async () => {
  for (const tool_choice of [{ type: "any" }, { type: "tool", name: "get_time" }]) {
    const reply = await client.messages.create({ ...common, messages: say("#call"), tools: declared(tools()), tool_choice });
    const calls = reply.content.filter((block) => block.type === "tool_use");
    assert.equal(calls.length, 1);
    assert.equal(calls[0].name, "get_time");
    assert.deepEqual(calls[0].input, { zone: "UTC" });
  }
});

test("thoughts are blocks, and go back", async () => {
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const request = { ...common, max_tokens: 4000, thinking, messages: say("#think") };
  for (const reply of [await client.messages.create(request), await client.messages.stream(request).finalMessage()]) {
    assert.equal(reply.content[0].type, "thinking");
    assert.equal(reply.content[0].thinking.trim(), answers.thought);
    assert.equal(text(reply).trim(), answers.think);
    const more = await client.messages.create({
      ...request, messages: [...request.messages, { role: "assistant", content: reply.content }, ...say("#plain")],
    });
    assert.equal(text(more), scripts.plain[0]);
  }
});

test("structured output", async () => {
  const reply = await client.messages.parse({ ...common, messages: say("#json"), output_config: { format: zodOutputFormat(Person) } });
  assert.deepEqual(reply.parsed_output, person);
});

test("count_tokens", async () => {
  const count = async (content) => (await client.messages.countTokens({ model: common.model, messages: say(content) })).input_tokens;
  const few = await count("a fox");
  assert.ok(few > 5);
  assert.equal(await count("a fox and"), few + 4);
});

test("stop sequences and too few tokens", async () => {
  const stopped = await client.messages.create({ ...common, messages: say("#plain"), stop_sequences: ["short"] });
  assert.equal(stopped.stop_reason, "stop_sequence");
  assert.equal(stopped.stop_sequence, "short");
  const cut = await client.messages.create({ ...common, max_tokens: 10, messages: say("#endless") });
  assert.equal(cut.stop_reason, "max_tokens");
  assert.equal(cut.usage.output_tokens, 10);
});

test("cancel in mid-stream ends the generation", async () => {
  for (const how of ["abort", "break"]) {
    await endsTheGeneration(async () => {
      const stream = client.messages.stream({ ...common, max_tokens: 1_000_000, messages: say("#endless") });
      let pieces = 0;
      try {
        for await (const event of stream) {
          pieces += event.type === "content_block_delta";
          if (pieces < 3) continue;
          if (how === "break") break;
          stream.abort();
        }
      } catch (error) {
        assert.ok(error instanceof Anthropic.APIUserAbortError, String(error));
      }
      assert.ok(pieces >= 3);
    });
  }
});

test("errors are the client's own classes", async () => {
  const ask = (of, more) => of.messages.create({ ...common, messages: say("#plain"), ...more });
  const unknown = await fails(ask(open(url, "not-the-key")), Anthropic.AuthenticationError, 401);
  assert.equal(unknown.error.type, "error");
  assert.equal(unknown.error.error.type, "authentication_error");
  await fails(ask(client, { temperature: "hot" }), Anthropic.BadRequestError, 400);
  await fails(ask(client, { messages: [] }), Anthropic.BadRequestError, 400);
  await fails(ask(open(strict)), Anthropic.NotFoundError, 404);
  await whileBusy(() => fails(ask(open(strict), { model: "scripted" }), Anthropic.RateLimitError, 429));
});
