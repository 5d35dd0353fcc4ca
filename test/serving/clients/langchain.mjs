// LangChain's ChatOpenAI, over Chat Completions and over Responses.
import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import assert from "node:assert/strict";
import test from "node:test";
import { Person, asked, endsTheGeneration, fails, key, person, scripts, stories, strict, tools, url, whileBusy } from "./world.mjs";

const open = (more = {}, server = url, apiKey = key) =>
  new ChatOpenAI({ model: "gpt-4o", apiKey, maxRetries: 0, configuration: { baseURL: `${server}/v1` }, ...more });
const textOf = (message) => message.text ?? message.content;
const declared = (of) =>
  ["get_weather", "get_time"].map((name) => tool(of[name].run, { name, description: of[name].description, schema: of[name].schema }));

for (const useResponsesApi of [false, true]) {
  const named = (name) => `${useResponsesApi ? "Responses" : "Chat"}: ${name}`;
  const model = open({ useResponsesApi });

  test(named("invoke"), async () => {
    const reply = await model.invoke([new SystemMessage("Be short."), new HumanMessage("#plain")]);
    assert.equal(textOf(reply), scripts.plain[0]);
    assert.ok(reply.usage_metadata.output_tokens > 5);
  });

  test(named("stream"), async () => {
    const pieces = [];
    for await (const piece of await model.stream("#plain")) if (textOf(piece)) pieces.push(textOf(piece));
    assert.equal(pieces.join(""), scripts.plain[0]);
    assert.ok(pieces.length > 5);
  });

  for (const streamed of [false, true]) {
    test(named(`tools, a loop of three turns${streamed ? ", streamed" : ""}`), async () => {
      const has = tools();
      const able = model.bindTools(declared(has));
      const messages = [new HumanMessage("#weather")];
      for (let turn = 0; turn < 5; ++turn) {
        let reply;
        if (streamed) for await (const piece of await able.stream(messages)) reply = reply ? reply.concat(piece) : piece;
        else reply = await able.invoke(messages);
        messages.push(reply);
        if (!reply.tool_calls?.length) break;
        for (const call of reply.tool_calls) messages.push(new ToolMessage({ tool_call_id: call.id, content: has[call.name].run(call.args) }));
      }
      assert.equal(textOf(messages.at(-1)), scripts.weather[2]);
      assert.deepEqual(has.asked, asked);
    });
  }

  test(named("withStructuredOutput"), async () => {
    assert.deepEqual(await model.withStructuredOutput(Person, { method: "jsonSchema", name: "person" }).invoke("#json"), person);
    // Over Responses this version of LangChain parses the list of parts instead of its text.
    if (!useResponsesApi) assert.deepEqual(await model.withStructuredOutput(Person, { method: "jsonMode", name: "person" }).invoke("#json"), person);
    const called = await model.withStructuredOutput(Person, { method: "functionCalling", name: "person" }).invoke("#person_call");
    assert.deepEqual(called, { name: "Grace Hopper", age: 85, languages: ["COBOL"] });
  });

  test(named("cancel in mid-stream ends the generation"), async () => {
    for (const how of ["signal", "break"]) {
      await endsTheGeneration(async () => {
        const abort = new AbortController();
        let pieces = 0;
        try {
          for await (const piece of await model.stream("#endless", { signal: abort.signal })) {
            pieces += textOf(piece) !== "";
            if (pieces < 3) continue;
            if (how === "break") break;
            abort.abort();
          }
        } catch (error) {
          assert.match(String(error), /abort/i);
        }
        assert.ok(pieces >= 3);
      });
    }
  });

  test(named("errors"), async () => {
    await fails(open({ useResponsesApi }, url, "not-the-key").invoke("#plain"), Error, 401);
    await fails(model.invoke("#plain".repeat(50_000)), Error, 400);
    const unknown = await fails(open({ useResponsesApi }, strict).invoke("#plain"), Error, 404);
    assert.equal(unknown.lc_error_code, "MODEL_NOT_FOUND");
    await whileBusy(async () => {
      const full = await fails(open({ useResponsesApi, model: "scripted" }, strict).invoke("#plain"), Error, 429);
      assert.equal(full.lc_error_code, "MODEL_RATE_LIMIT");
    });
  });
}

test("embeddings", async () => {
  const embeddings = new OpenAIEmbeddings({ apiKey: key, maxRetries: 0, configuration: { baseURL: `${stories}/v1` } });
  const reply = await embeddings.embedDocuments(["a fox", "two birds"]);
  assert.equal(reply.length, 2);
  assert.notDeepEqual(reply[0], reply[1]);
  assert.deepEqual(await embeddings.embedQuery("a fox"), reply[0]);
});
