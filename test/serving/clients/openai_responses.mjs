// OpenAI's own client: the Responses API.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { Person, answers, asked, endsTheGeneration, fails, jsonSchema, key, person, scripts, strict, tools, url, whileBusy } from "./world.mjs";

const open = (server, apiKey = key) => new OpenAI({ baseURL: `${server}/v1`, apiKey, maxRetries: 0, timeout: 60_000 });
const client = open(url);
const model = "gpt-5-codex";
const functions = (of) =>
  ["get_weather", "get_time"].map((name) => ({
    type: "function", name, description: of[name].description, parameters: jsonSchema(of[name].schema), strict: true,
  }));

test("text: instructions, items and parts", async () => {
  const reply = await client.responses.create({
    model, instructions: "Be short.", store: false, reasoning: { effort: "low" }, include: ["reasoning.encrypted_content"],
    input: [{ role: "user", content: [{ type: "input_text", text: "#plain" }] }],
  });
  assert.equal(reply.object, "response");
  assert.equal(reply.status, "completed");
  assert.equal(reply.output_text, scripts.plain[0]);
  assert.ok(reply.usage.output_tokens > 5);
  assert.equal((await client.responses.create({ model, input: "#plain" })).output_text, scripts.plain[0]);
});

test("streaming: events in order, the same text", async () => {
  const kinds = [];
  let text = "", numbers = [], completed;
  for await (const event of await client.responses.create({ model, input: "#plain", stream: true })) {
    if (kinds.at(-1) !== event.type) kinds.push(event.type);
    numbers.push(event.sequence_number);
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.completed") completed = event.response;
  }
  assert.equal(text, scripts.plain[0]);
  assert.deepEqual(kinds, [
    "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
    "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
  ]);
  assert.deepEqual(numbers, numbers.map((_, i) => i));
  assert.equal(completed.output[0].content[0].text, scripts.plain[0]);
  const final = await client.responses.stream({ model, input: "#plain" }).finalResponse(); // the client's own helper
  assert.equal(final.output_text, scripts.plain[0]);
});

for (const stream of [false, true]) {
  test(`tools: a loop of three turns${stream ? ", streamed" : ""}; unknown kinds of tools are skipped`, async () => {
    const has = tools();
    const input = [{ role: "user", content: "#weather" }];
    let reply;
    for (let turn = 0; turn < 5; ++turn) {
      const request = { model, input, tools: [...functions(has), { type: "web_search" }], store: false };
      if (stream) {
        const events = client.responses.stream(request);
        let pieces = 0;
        events.on("response.function_call_arguments.delta", () => ++pieces);
        reply = await events.finalResponse();
        if (turn === 0) assert.ok(pieces > 3, `${pieces} pieces`);
      } else {
        reply = await client.responses.create(request);
      }
      const calls = reply.output.filter((item) => item.type === "function_call");
      if (calls.length === 0) break;
      input.push(...reply.output);
      for (const call of calls)
        input.push({ type: "function_call_output", call_id: call.call_id, output: has[call.name].run(JSON.parse(call.arguments)) });
    }
    assert.equal(reply.output_text, scripts.weather[2]);
    assert.deepEqual(has.asked, asked);
  });
}

test("tools: tool_choice required and a name", async () => {
  for (const tool_choice of ["required", { type: "function", name: "get_time" }]) {
    const reply = await client.responses.create({ model, input: "#call", tools: functions(tools()), tool_choice });
    const calls = reply.output.filter((item) => item.type === "function_call");
    assert.equal(calls.length, 1);
    assert.equal(calls[0].name, "get_time");
    assert.deepEqual(JSON.parse(calls[0].arguments), { zone: "UTC" });
  }
});

test("thoughts are items of their own", async () => {
  const reply = await client.responses.create({ model, input: "#think" });
  assert.equal(reply.output_text.trim(), answers.think);
  const thought = reply.output.find((item) => item.type === "reasoning");
  assert.match(JSON.stringify(thought), /Nobody asked how/);
});

test("structured output: parse, streamed", async () => {
  const text = { format: zodTextFormat(Person, "person") };
  assert.deepEqual((await client.responses.parse({ model, input: "#json", text })).output_parsed, person);
  assert.deepEqual((await client.responses.stream({ model, input: "#json", text }).finalResponse()).output_parsed, person);
});

test("cancel in mid-stream ends the generation", async () => {
  await endsTheGeneration(async () => {
    const stream = await client.responses.create({ model, input: "#endless", stream: true });
    let pieces = 0;
    for await (const event of stream) {
      pieces += event.type === "response.output_text.delta";
      if (pieces === 3) break;
    }
  });
});

test("stored: previous_response_id, items by name, retrieve, list, delete", async () => {
  const first = await client.responses.create({ model, input: "#plain" });
  const second = await client.responses.create({ model, input: "#plain", previous_response_id: first.id });
  assert.equal(second.previous_response_id, first.id);
  assert.deepEqual((await client.responses.retrieve(second.id)).output, second.output);
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id, { order: "asc", limit: 2 })) items.push(item.role);
  assert.deepEqual(items, ["user", "assistant", "user"]);
  const named = [{ role: "user", content: "#plain" }, { type: "item_reference", id: first.output[0].id }, { role: "user", content: "#plain" }];
  assert.equal((await client.responses.create({ model, input: named })).usage.input_tokens, second.usage.input_tokens);
  await fails(client.responses.cancel(second.id), OpenAI.BadRequestError, 400);
  await client.responses.delete(second.id);
  await fails(client.responses.retrieve(second.id), OpenAI.NotFoundError, 404);
});

test("too few tokens: incomplete", async () => {
  const reply = await client.responses.create({ model, input: "#endless", max_output_tokens: 20 });
  assert.equal(reply.status, "incomplete");
  assert.equal(reply.incomplete_details.reason, "max_output_tokens");
});

test("errors are the client's own classes", async () => {
  const ask = (of, more) => of.responses.create({ model, input: "#plain", ...more });
  await fails(ask(open(url, "not-the-key")), OpenAI.AuthenticationError, 401);
  await fails(ask(client, { temperature: "hot" }), OpenAI.BadRequestError, 400);
  await fails(ask(client, { previous_response_id: "resp_1" }), OpenAI.BadRequestError, 400);
  await fails(ask(open(strict)), OpenAI.NotFoundError, 404);
  await whileBusy(() => fails(ask(open(strict), { model: "scripted" }), OpenAI.RateLimitError, 429));
});
