// Shared by both halves of the page: elements, the API key, requests to the page's own origin.

export const $ = (id) => document.getElementById(id);

const keyField = $("key");
keyField.value = sessionStorage.getItem("larder-key") ?? "";
keyField.addEventListener("change", () => sessionStorage.setItem("larder-key", keyField.value));

export function headers(more = {}) {
  return keyField.value ? { ...more, Authorization: `Bearer ${keyField.value}` } : more;
}

export async function getJson(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw await problem(response);
  return response.json();
}

// An Error with the server's own message, if there is one, and the field that it is about.
export async function problem(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    if (error?.message) return Object.assign(new Error(error.message), { param: error.param });
  } catch {
    // not JSON: the status is the message
  }
  return new Error(`the server answered ${response.status} ${response.statusText}`.trim());
}

// Makes an element; text is set as text, never as markup.
export function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// The plan, requested as soon as the server has it; both chat.js and machine.js use it.
export const plan = {
  value: null,
  async load() {
    this.value = await getJson("/v1/larder/plan");
    return this.value;
  },
};
