// Helpers for elements and requests. Text from files and runs always becomes a text node, so markup in it has no effect.

export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list" && name !== "form") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return node;
}

export const fill = (node, ...children) => (node.replaceChildren(...children.flat().filter(Boolean)), node);

let hints = 0;

export function field(label, input, hint, width = "") {
  input.setAttribute("aria-label", label);
  const description = hint ? h("small", { id: `hint-${++hints}` }, hint) : null;
  if (description) input.setAttribute("aria-describedby", description.id);
  return h("label", { className: `field ${width}` }, h("span", { ariaHidden: "true" }, label), input, description);
}

export const options = (items, chosen) =>
  items.map(([value, text]) => h("option", { value, selected: value === chosen }, text));

export function say(text, bad = false) {
  const status = document.getElementById("status");
  status.className = bad ? "bad" : "";
  status.textContent = text;
}

// The key is kept for all tabs of this studio's address. Only this page can read it, and no browser sends it by itself.
export const key = () => localStorage.getItem("key") ?? "";

// Exchanges the token in the address for the key. The token serves once.
export async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", "/");
  const answer = await fetch("/enter", { method: "POST", headers: { "x-scopil-token": token } });
  if (answer.ok) localStorage.setItem("key", await answer.text());
}

// A request to the server. Returns the answer's fields; pictures and files are in its field `blob`.
export async function ask(request, args = {}) {
  let answer;
  try {
    answer = await fetch(`/ask/${request}`, { method: "POST", headers: { "content-type": "application/json", "x-scopil-key": key() }, body: JSON.stringify(args) });
  } catch {
    throw new Error("The studio does not answer. Is `scopil studio` still running?");
  }
  if (answer.headers.has("x-fields")) return { ...JSON.parse(answer.headers.get("x-fields")), blob: await answer.blob() };
  if (answer.status === 401) throw new Error("This browser has no key of this studio: open the address that `scopil studio` has printed last.");
  const fields = await answer.json();
  if (!answer.ok) throw new Error(fields.refused ?? `refused (${answer.status})`);
  return fields;
}

// Wraps an event handler: its errors appear in the status line.
export const showErrors = (work) => async (...args) => {
  try {
    return await work(...args);
  } catch (error) {
    say(error.message, true);
  }
};

export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Files that cannot be read, with the reasons; null if there are none.
export function faulty(files) {
  const bad = files.filter((f) => f.problem);
  return bad.length ? h("details", { className: "panel" }, h("summary", {}, `${count(bad.length, "file")} cannot be read`),
    h("ul", {}, bad.map((f) => h("li", {}, h("strong", {}, f.name), `: ${f.problem}`)))) : null;
}

// A number of violations; null: no rule is known.
export const violations = (n, what = "violation") =>
  h("span", { className: n === null || n === undefined ? "quiet" : n ? "bad" : "good" }, n === null || n === undefined ? "rules not known" : count(n, what));

export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
export const short = (x) => (x === null || x === undefined ? "–" : Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : String(+x.toFixed(2)));
