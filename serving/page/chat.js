// The chat box. The conversation is kept only in this page; answers are streamed by /v1/chat/completions, or, for a
// model without a chat template, text is continued by /v1/completions.
import { $, headers, make, plan, problem } from "./api.js";
import { blame, Calls, fields, pretty } from "./tools.js";

const log = $("log");
const prompt = $("prompt");
let conversation = [];
let answering = null; // AbortController of the running answer
let pending = null; // Calls of the last answer, whose results are missing

function bubble(who, label) {
  $("hint")?.remove();
  const item = make("article", `message ${who}`);
  item.append(make("h3", "hidden", label), make("p", "text"), make("footer", "muted"));
  log.append(item);
  return { item, text: item.querySelector(".text"), note: item.querySelector("footer") };
}

const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
const toEnd = () => (log.scrollTop = log.scrollHeight);

function number(id) {
  const value = $(id).valueAsNumber;
  return Number.isFinite(value) ? value : undefined;
}

// A thought, open while it comes; made with its first piece.
function thought(answer) {
  const details = make("details", "thought");
  const text = make("p");
  details.append(make("summary", "", "Thinking"), text);
  details.open = true;
  answer.item.insertBefore(details, answer.text);
  return { details, out: writer(text) };
}

async function request(text) {
  const common = {
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: number("max-tokens"),
    temperature: number("temperature"),
    seed: number("seed"),
  };
  if (!plan.value) await plan.load();
  common.model = plan.value.model.name;
  if (plan.value.model.chat_format === null) return ["/v1/completions", { ...common, prompt: text }];
  const system = $("system").value.trim();
  const messages = system ? [{ role: "system", content: system }, ...conversation] : conversation;
  return ["/v1/chat/completions", { ...common, ...fields(), messages }];
}

// Yields the data of each server-sent event, parsed.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

// Tokens come faster than the screen is drawn, so text is put on the page once per animation frame.
function writer(target) {
  const node = document.createTextNode("");
  target.append(node);
  let waiting = "";
  let scheduled = false;
  const flush = () => {
    scheduled = false;
    if (!waiting) return;
    const follow = atEnd();
    node.appendData(waiting);
    waiting = "";
    if (follow) toEnd();
  };
  return {
    add(text) {
      waiting += text;
      if (!scheduled) requestAnimationFrame(flush);
      scheduled = true;
    },
    flush,
  };
}

// `perSecond` is the server's figure. This page reads many tokens at once, so its own would measure the network.
function summary(tokens, start, first, perSecond) {
  if (!tokens) return "";
  const parts = [`${tokens} token${tokens === 1 ? "" : "s"}`, `first after ${(first - start).toFixed(1)} ms`];
  if (perSecond > 0) parts.push(`${Math.round(perSecond).toLocaleString("en")} tokens/s`);
  return parts.join(" · ");
}

async function stream(text, answer, signal) {
  const [path, body] = await request(text);
  const start = performance.now();
  const response = await fetch(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await problem(response);
  let content = "", reasoning = "", first = 0, pieces = 0, counted = 0, perSecond = 0, reason = null;
  const out = writer(answer.text);
  const calls = new Calls(answer.item);
  let thinking = null;
  try {
    for await (const event of events(response.body)) {
      if (event.error) throw new Error(event.error.message ?? "the server failed");
      perSecond = event.timings?.predicted_per_second ?? perSecond;
      counted = event.usage?.completion_tokens ?? counted;
      const choice = event.choices?.[0];
      const piece = choice?.delta?.content ?? choice?.text ?? "";
      reason = choice?.finish_reason ?? reason;
      const idea = choice?.delta?.reasoning_content ?? "";
      const called = choice?.delta?.tool_calls ?? [];
      if (!piece && !idea && !called.length) continue;
      first ||= performance.now();
      ++pieces;
      if (idea) {
        reasoning += idea;
        thinking ??= thought(answer);
        thinking.out.add(idea);
      } else if (thinking?.details.open && !content && !calls.list.length) {
        thinking.details.open = false;
      }
      content += piece;
      if (piece) out.add(piece);
      if (called.length) {
        const follow = atEnd();
        calls.add(called);
        if (follow) toEnd();
      }
    }
    if (reason === null) throw new Error("the connection closed before the answer's end");
  } finally {
    out.flush();
    thinking?.out.flush();
    answer.note.textContent = summary(counted || pieces, start, first, perSecond);
    const whole = calls.list.length > 0 && reason !== null;
    if (whole) {
      const message = { role: "assistant", content: content || null, tool_calls: calls.messages };
      conversation.push(reasoning ? { ...message, reasoning_content: reasoning } : message);
    } else if (content) {
      conversation.push({ role: "assistant", content });
    }
  }
  if (body.response_format && pretty(content) !== content) answer.text.textContent = pretty(content);
  if (body.response_format) answer.text.classList.add("json");
  if (calls.list.length) pending = calls;
  if (reason === "length") answer.note.textContent += " · cut at max tokens";
}

function busy(controller) {
  answering = controller;
  $("send").hidden = controller !== null;
  $("stop").hidden = controller === null;
  log.setAttribute("aria-busy", String(controller !== null));
}

// Calls without results are forgotten when the user goes on without them, and a question that has no answer then.
function forgetCalls() {
  pending?.close();
  pending = null;
  while (["user", "tool"].includes(conversation.at(-1)?.role) || conversation.at(-1)?.tool_calls) {
    const { role, content } = conversation.pop();
    if (role === "assistant" && content) conversation.push({ role, content });
  }
}

function send() {
  const text = prompt.value.trim();
  if (!text || answering) return;
  prompt.value = "";
  forgetCalls();
  conversation.push({ role: "user", content: text });
  bubble("user", "You").text.textContent = text;
  ask(text);
}

// Results of calls, as messages.
function goOn(results) {
  if (answering) return;
  pending = null;
  conversation.push(...results);
  ask("");
}

async function ask(text) {
  const answer = bubble("assistant", "Answer");
  toEnd();
  const controller = new AbortController();
  busy(controller);
  answer.item.classList.add("streaming");
  try {
    await stream(text, answer, controller.signal);
  } catch (error) {
    if (controller.signal.aborted) {
      answer.note.textContent = [answer.note.textContent, "stopped"].filter(Boolean).join(" · ");
    } else {
      const alert = make("p", "error", error.message);
      alert.setAttribute("role", "alert");
      answer.item.append(alert);
      blame(error);
    }
    // A question without an answer is removed, or the roles of the next one would not alternate.
    forgetCalls();
  }
  answer.item.classList.remove("streaming");
  if (answering === controller) busy(null);
  if (pending) pending.askResults(goOn);
  if (atEnd() || answer.text.textContent === "") toEnd();
  if (!pending && $("tools-panel").querySelector(":focus[aria-invalid=true]") === null) prompt.focus();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") answering?.abort();
});
$("stop").addEventListener("click", () => answering?.abort());
$("clear").addEventListener("click", () => {
  answering?.abort();
  pending = null;
  conversation = [];
  log.replaceChildren();
  prompt.focus();
});
