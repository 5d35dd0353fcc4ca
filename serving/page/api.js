// What both halves of the page share: elements, the API key, requests to our own origin.

export const $ = (id) => document.getElementById(id);

const keyField = $("key");
keyField.value = sessionStorage.getItem("larder-key") ?? "";
keyField.addEventListener("change", () => sessionStorage.setItem("larder-key", keyField.value));

export function headers(more = {}) {
  return keyField.value ? { ...more, Authorization: `Bearer ${keyField.value}` } : more;
}

export async function getJson(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw new Error(await problem(response));
  return response.json();
}

// The server's own words, if it has any.
export async function problem(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    if (error?.message) return error.message;
  } catch {
    // not JSON: the status says it
  }
  return `the server answered ${response.status} ${response.statusText}`.trim();
}

// A new element; text is always text, never markup.
export function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// The plan, asked for once the server has it: what chat and machine both want to know.
export const plan = {
  value: null,
  async load() {
    this.value = await getJson("/v1/larder/plan");
    return this.value;
  },
};
