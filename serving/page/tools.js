// Tools and schemas: what the panel's fields put into a request, and the calls of an answer, each with a field for its
// result.
import { $, make } from "./api.js";

// Shows an error beside a field, or takes it away.
export function mark(id, message = "") {
  $(`${id}-error`).textContent = message;
  $(id).setAttribute("aria-invalid", String(message !== ""));
  if (message) $("tools-panel").open = true;
}

// The field's JSON; undefined: it is empty. Throws what is wrong with it, and shows that.
function readJson(id, check) {
  const text = $(id).value.trim();
  mark(id);
  if (!text) return undefined;
  try {
    return check(JSON.parse(text));
  } catch (error) {
    mark(id, error.message);
    $(id).focus();
    throw new Error(`${id}: ${error.message}`);
  }
}

function checkTools(value) {
  const list = Array.isArray(value) ? value : [value];
  return list.map((tool, i) => {
    const made = tool?.function ? tool : { type: "function", function: tool };
    if (typeof made.function?.name !== "string") throw new Error(`tool ${i + 1} has no name`);
    return made;
  });
}

function checkSchema(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error("a schema is a JSON object");
  return value;
}

export function fields() {
  const tools = readJson("tools", checkTools);
  const schema = readJson("schema", checkSchema);
  return {
    ...(tools && { tools, tool_choice: $("tool-choice").value }),
    ...(schema && { response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } } }),
  };
}

// The server refused a field: its message belongs beside it.
export function blame(error) {
  if (/^tool/.test(error.param ?? "")) mark("tools", error.message);
  if (/^(response_format|json_schema|schema)/.test(error.param ?? "")) mark("schema", error.message);
}

for (const id of ["tools", "schema"]) {
  $(id).addEventListener("change", () => {
    try {
      readJson(id, id === "tools" ? checkTools : checkSchema);
    } catch {
      // it is shown beside the field
    }
  });
}

export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // cut off, or not JSON: as it is
  }
}

// Collects calls from the deltas of a stream, and shows them below the answer's text.
export class Calls {
  constructor(item) {
    this.item = item;
    this.list = [];
  }

  add(deltas) {
    for (const delta of deltas) {
      const call = (this.list[delta.index] ??= this.begin());
      call.id ||= delta.id ?? "";
      call.name += delta.function?.name ?? "";
      call.arguments += delta.function?.arguments ?? "";
      call.title.textContent = call.name;
      call.text.data = call.arguments;
    }
  }

  begin() {
    this.form ??= this.makeForm();
    const box = make("div", "call");
    const shown = make("pre");
    const text = document.createTextNode("");
    const title = make("h4");
    shown.append(text);
    box.append(title, shown);
    this.form.append(box);
    return { id: "", name: "", arguments: "", box, title, text };
  }

  makeForm() {
    const form = make("form", "calls");
    form.setAttribute("aria-label", "Calls of tools");
    this.item.insertBefore(form, this.item.querySelector("footer"));
    return form;
  }

  get messages() {
    return this.list.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
  }

  // The answer has ended: asks for results, and gives them to `go` as messages.
  askResults(go) {
    const inputs = this.list.map((call) => {
      call.text.data = pretty(call.arguments);
      const label = make("label", "", `Result of ${call.name} `);
      const input = make("textarea");
      input.rows = 2;
      input.placeholder = "Enter goes on, Shift+Enter begins a line";
      label.append(input);
      call.box.append(label);
      return input;
    });
    const button = make("button", "", inputs.length > 1 ? "Send results" : "Send result");
    this.form.append(button);
    this.form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.target === button) return;
      event.preventDefault();
      const next = inputs[inputs.indexOf(event.target) + 1];
      if (next) next.focus();
      else this.form.requestSubmit();
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (button.disabled) return;
      this.close();
      go(this.list.map((call, i) => ({ role: "tool", tool_call_id: call.id, content: inputs[i].value })));
    });
    inputs[0].focus();
  }

  close() {
    for (const control of this.form?.querySelectorAll("textarea, button") ?? []) control.disabled = true;
  }
}
