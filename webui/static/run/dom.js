// @ts-check
// Small steps with the document. Text always goes in as text: names, log lines and tokens come from clients.

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} id */
export function part(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** @param {string} tag @param {Record<string, string>} [attributes] @param {...(Node | string)} children */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** @param {string} tag @param {Record<string, string | number>} [attributes] @param {...Node} children */
export function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** An icon of the page's sprite. @param {string} name */
export function icon(name) {
  return draw("svg", { class: name === "run" ? "i live" : "i", "aria-hidden": "true" }, draw("use", { href: `#i-${name}` }));
}

/** Sets the text only if it differs, so that screen readers are not told the same again. @param {Element} node @param {string} text */
export function say(node, text) { if (node.textContent !== text) node.textContent = text; }

/** A mark of how something stands: a tone, an icon, words. @param {string} id @param {string} tone @param {string} name @param {string} words */
export function mark(id, tone, name, words) {
  const node = part(id);
  if (node.dataset.told === `${tone} ${words}`) return;
  node.dataset.told = `${tone} ${words}`;
  node.className = `st ${tone}`;
  node.replaceChildren(icon(name), words);
}
