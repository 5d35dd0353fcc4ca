// OpenAI's own client: files and batches.
import assert from "node:assert/strict";
import { File } from "node:buffer";
import test from "node:test";
import OpenAI, { toFile } from "openai";
import { fails, key, stories } from "./world.mjs";

globalThis.File ??= File; // Node 18 has none
const client = new OpenAI({ baseURL: `${stories}/v1`, apiKey: key, maxRetries: 0, timeout: 60_000 });
const line = (id, body, url = "/v1/completions") => JSON.stringify({ custom_id: id, method: "POST", url, body }) + "\n";
const send = async (text) => client.files.create({ file: await toFile(Buffer.from(text), "stories.jsonl"), purpose: "batch" });
const create = (file) => client.batches.create({ input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h", metadata: { of: "a test" } });
const ended = async ({ id }) => {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (["completed", "failed", "cancelled"].includes(batch.status)) return batch;
    await new Promise((wake) => setTimeout(wake, 20));
  }
};
const lines = async (file) => (await (await client.files.content(file)).text()).trim().split("\n").map((one) => JSON.parse(one));

test("a file: sent, listed, read, deleted", async () => {
  const text = "x".repeat(3 << 20);
  const file = await send(text);
  assert.equal(file.object, "file");
  assert.equal(file.bytes, text.length);
  assert.equal(file.filename, "stories.jsonl");
  assert.deepEqual(await client.files.retrieve(file.id), file);
  assert.equal(await (await client.files.content(file.id)).text(), text);
  const second = await send("y");
  const ids = [];
  for await (const one of client.files.list({ limit: 1 })) ids.push(one.id); // the client asks for the pages
  assert.deepEqual(ids.slice(0, 2), [second.id, file.id]);
  for (const id of [file.id, second.id]) assert.equal((await client.files.delete(id)).deleted, true);
  await fails(client.files.retrieve(file.id), OpenAI.NotFoundError, 404);
});

test("a batch: answers and errors", async () => {
  const body = { prompt: "One day", max_tokens: 10, temperature: 0 };
  const file = await send(line("good", body) + line("two", { ...body, n: 2 }) + line("bad", { ...body, prompt: "too long ".repeat(3000) }));
  const batch = await create(file);
  assert.equal(batch.object, "batch");
  assert.deepEqual(batch.metadata, { of: "a test" });
  const done = await ended(batch);
  assert.equal(done.status, "completed");
  assert.deepEqual(done.request_counts, { total: 3, completed: 2, failed: 1 });
  const alone = await client.completions.create({ model: "any", ...body });
  const answers = new Map((await lines(done.output_file_id)).map((one) => [one.custom_id, one.response]));
  assert.equal(answers.get("good").body.choices[0].text, alone.choices[0].text);
  assert.equal(answers.get("two").body.choices.length, 2);
  const [bad] = await lines(done.error_file_id);
  assert.equal(bad.custom_id, "bad");
  assert.equal(bad.response.status_code, 400);
  const listed = [];
  for await (const one of client.batches.list({ limit: 1 })) listed.push(one.id);
  assert.ok(listed.includes(batch.id));
});

test("a batch whose file is wrong fails with the line", async () => {
  const failed = await ended(await create(await send(line("a", { prompt: "x" }) + "no JSON\n")));
  assert.equal(failed.status, "failed");
  assert.equal(failed.errors.data[0].line, 2);
});

test("a batch is cancelled", async () => {
  let text = "";
  for (let at = 0; at < 3000; ++at) text += line(`${at}`, { prompt: "One day", max_tokens: 400, ignore_eos: true });
  const batch = await create(await send(text));
  await client.batches.cancel(batch.id);
  const cancelled = await ended(batch);
  assert.equal(cancelled.status, "cancelled");
  assert.ok(cancelled.request_counts.completed < 3000);
});

test("errors are the client's own", async () => {
  await fails(client.files.create({ file: await toFile(Buffer.from("x"), "x"), purpose: "fine-tune" }), OpenAI.BadRequestError, 400);
  await fails(client.batches.retrieve("batch_0"), OpenAI.NotFoundError, 404);
  await fails(create({ id: "file-0" }), OpenAI.NotFoundError, 404);
  await fails(new OpenAI({ baseURL: `${stories}/v1`, apiKey: "wrong", maxRetries: 0 }).files.list(), OpenAI.AuthenticationError, 401);
});
