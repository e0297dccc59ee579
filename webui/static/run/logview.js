// @ts-check
// The log on the page: newest first, by level and text. Held still while the person scrolls down or presses pause.

import { make, say } from "./dom.js";
import { count } from "./format.js";

const SHOWN = 250;
const SHORT = { debug: "debug", info: "info", warning: "warn", error: "error" };

export class LogView {
  /** @param {{list: HTMLElement, sub: HTMLElement, level: HTMLSelectElement, text: HTMLInputElement, pause: HTMLElement}} parts @param {import("./journal.js").Journal} journal */
  constructor(parts, journal) {
    this.parts = parts;
    this.journal = journal;
    this.held = false;
    this.seen = "";
    parts.level.addEventListener("change", () => this.draw(true));
    parts.text.addEventListener("input", () => this.draw(true));
    parts.pause.addEventListener("click", () => {
      this.held = !this.held;
      parts.pause.setAttribute("aria-pressed", String(this.held));
      this.draw(!this.held);
    });
  }

  /** @param {boolean} [force] */
  draw(force = false) {
    const { list, sub, level, text } = this.parts;
    const still = this.held || list.scrollTop > 8;
    say(sub, still ? "held still" : text.value ? "matching, newest first" : "newest first");
    if (still && !force) return;
    const lines = this.journal.read(level.value, text.value, SHOWN);
    const seen = lines.length ? `${this.journal.version} ${lines.length} ${lines[0].node} ${lines[0].seq}` : "";
    if (seen === this.seen && !force) return;
    this.seen = seen;
    if (!lines.length) {
      list.replaceChildren(make("li", { class: "none" }, make("span", { class: "dim" }, text.value ? "No line matches." : "Nothing yet.")));
      return;
    }
    list.replaceChildren(...lines.map((line) => make("li", { class: line.level },
      make("span", { class: "dim" }, line.t < 0 ? "before" : (line.t / 1e9).toFixed(3)),
      make("span", { class: "lv" }, SHORT[/** @type {keyof SHORT} */ (line.level)] ?? line.level),
      make("span", { class: "what" }, `${line.type} `, make("em", {}, `${line.node}: ${line.text}`)))));
    if (lines.length === SHOWN) list.append(make("li", { class: "none" }, make("span", { class: "dim" }, `The newest ${count(SHOWN)}; all of it is among the files`)));
  }
}
