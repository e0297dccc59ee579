// @ts-check
// The log on the page: newest first, by level and node from what the page holds; a search goes over the whole log on the
// server, and so does what is older. Held still while the person scrolls down or presses pause.

import { make, say } from "./dom.js";
import { lineOf } from "./journal.js";

const SHOWN = 250, WAIT_MS = 250, AGAIN_MS = 3000;
const SHORT = { debug: "debug", info: "info", warning: "warn", error: "error" };

/** @typedef {import("./journal.js").Line} Line */

export class LogView {
  /**
   * @param {{list: HTMLElement, sub: HTMLElement, level: HTMLSelectElement, node: HTMLSelectElement, text: HTMLInputElement, pause: HTMLElement, older: HTMLElement, download: HTMLAnchorElement}} parts
   * @param {import("./journal.js").Journal} journal
   * @param {{address: string, trial: string, remember: import("./remember.js").Remember, show: (t: number) => void}} page
   */
  constructor(parts, journal, page) {
    this.parts = parts;
    this.journal = journal;
    this.page = page;
    this.held = false;
    this.live = true;
    this.seen = "";
    /** Lines that came from the server; null while the page shows its own. @type {Line[] | null} */ this.found = null;
    /** Where a search goes on; null when there is nothing older. @type {string | null} */ this.next = null;
    this.asked = 0;
    this.askedAt = -Infinity;
    /** The line that a link points at, as t:node:seq. */ this.marked = page.remember.get("line") ?? "";
    const { level, text, node, remember } = { ...parts, remember: page.remember };
    level.value = remember.get("level") ?? level.value;
    if (!level.value) level.value = "info";
    text.value = remember.get("find") ?? "";
    this.wantedNode = remember.get("node") ?? "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */ let typing;
    const changed = () => {
      remember.set({ level: level.value === "info" ? null : level.value, find: text.value, node: node.value });
      this.next = null;
      if (text.value) void this.#ask(""); else { this.found = null; this.draw(true); }
      this.#linkDownload();
    };
    level.addEventListener("change", changed);
    node.addEventListener("change", changed);
    text.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(changed, WAIT_MS); });
    parts.older.addEventListener("click", () => void this.#older());
    parts.pause.addEventListener("click", () => {
      this.held = !this.held;
      parts.pause.setAttribute("aria-pressed", String(this.held));
      this.draw(!this.held);
    });
    parts.list.addEventListener("click", (event) => this.#clicked(event));
    this.#linkDownload();
    if (this.marked) void this.#ask(justAfter(this.marked)); else if (text.value) void this.#ask("");
  }

  /** @param {boolean} [force] */
  draw(force = false) {
    const { list, sub, text, level, node, older } = this.parts;
    this.#offerNodes();
    const still = this.held || list.scrollTop > 8, searching = Boolean(text.value);
    say(sub, this.marked && this.found ? "at the linked line" : still ? "held still" : searching ? "found in the whole log, newest first" : "newest first");
    if (still && !force) return;
    if (searching && this.live && this.found && !this.marked && performance.now() - this.askedAt > AGAIN_MS) void this.#ask("");
    if (searching && !this.found && !force) return;
    const own = this.found === null, lines = this.found ?? this.journal.read(level.value, node.value, SHOWN);
    older.hidden = own ? lines.length < SHOWN : this.next === null;
    const seen = lines.length ? `${own ? this.journal.version : this.asked} ${lines.length} ${lines[0].node} ${lines[0].seq}` : `none ${searching}`;
    if (seen === this.seen && !force) return;
    this.seen = seen;
    if (!lines.length) {
      list.replaceChildren(make("li", { class: "none" }, make("span", { class: "dim" }, searching && this.next !== null ? "None in the newest part of the log; “Older lines” searches on." : searching ? "No line matches. Choose “everything” to search tokens too." : node.value || level.value !== "info" ? "No such line." : "Nothing yet.")));
      return;
    }
    list.replaceChildren(...lines.map((line) => lineItem(line, text.value, this.marked)));
  }

  /** Lines before those that are shown. */
  async #older() {
    const shown = this.found ?? this.journal.read(this.parts.level.value, this.parts.node.value, SHOWN), last = shown.at(-1);
    const from = this.next ?? (last ? placeOf(last) : "");
    await this.#ask(from, shown);
  }

  /** Asks the server. @param {string} before @param {Line[]} [shown] What stands above the answer. */
  async #ask(before, shown = []) {
    const number = ++this.asked;
    this.askedAt = performance.now();
    const answer = await fetch(`${this.page.address}?${this.#query({ before })}`, { headers: { Accept: "application/json" } }).catch(() => null);
    if (number !== this.asked) return;
    if (!answer?.ok) { say(this.parts.sub, "the log cannot be read just now"); return; }
    const told = await answer.json();
    if (number !== this.asked) return;
    this.found = [...shown, ...told.events.map((/** @type {any} */ event) => lineOf(event, this.journal.levels))];
    this.next = told.older;
    const top = this.parts.list.scrollTop;
    this.draw(true);
    if (shown.length) this.parts.list.scrollTop = top;
    else if (this.marked) this.parts.list.querySelector(".marked")?.scrollIntoView({ block: "nearest" });
  }

  /** @param {Record<string, string>} more */
  #query(more) {
    const { level, node, text } = this.parts, query = new URLSearchParams();
    const told = { level: this.marked && more.before ? "debug" : level.value, node: node.value || this.wantedNode, text: text.value, trial: this.page.trial, ...more };
    for (const [name, value] of Object.entries(told)) if (value) query.set(name, value);
    return query;
  }

  #linkDownload() { this.parts.download.href = `${this.page.address}?${this.#query({ download: "1" })}`; }

  #offerNodes() {
    const { node } = this.parts, names = [...this.journal.nodes].sort();
    if (names.length === node.options.length - 1) return;
    const chosen = node.value || this.wantedNode;
    node.replaceChildren(make("option", { value: "" }, "all nodes"), ...names.map((name) => make("option", { value: name }, name)));
    if (names.includes(chosen)) node.value = chosen;
  }

  /** A line's time is its link: it marks the line, goes to the address, and shows the moment above. @param {MouseEvent} event */
  #clicked(event) {
    const link = event.target instanceof Element && event.target.closest("a[data-line]");
    if (!(link instanceof HTMLElement) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.marked = link.dataset.line ?? "";
    this.page.remember.set({ line: this.marked });
    for (const item of this.parts.list.querySelectorAll(".marked")) item.classList.remove("marked");
    link.closest("li")?.classList.add("marked");
    const t = Number(this.marked.split(":")[0]);
    if (t >= 0) this.page.show(t);
    this.marked = "";
  }
}

/** @param {Line} line */
const placeOf = (line) => `${line.t}:${line.node}:${line.seq}`;

/** So that the linked line is the first of the answer. @param {string} place */
function justAfter(place) {
  const parts = place.split(":"), seq = Number(parts.pop());
  return [...parts, String(seq + 1)].join(":");
}

/** @param {Line} line @param {string} text What is searched for, marked where it stands. @param {string} [marked] */
export function lineItem(line, text, marked = "") {
  const place = placeOf(line), what = make("em", {});
  what.append(...withMarks(`${line.node}: ${line.text}`, text));
  const address = new URL(location.href);
  address.searchParams.set("line", place);
  return make("li", { class: `${line.level}${place === marked ? " marked" : ""}` },
    make("a", { class: "dim", href: `${address.search}#log`, "data-line": place, title: "Link to this line" }, line.t < 0 ? "before" : (line.t / 1e9).toFixed(3)),
    make("span", { class: "lv" }, SHORT[/** @type {keyof SHORT} */ (line.level)] ?? line.level),
    make("span", { class: "what" }, ...withMarks(line.type, text), " ", what));
}

/** @param {string} words @param {string} text @returns {(Node | string)[]} */
export function withMarks(words, text) {
  if (!text) return [words];
  /** @type {(Node | string)[]} */ const parts = [];
  const low = words.toLowerCase(), wanted = text.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, from)) {
    parts.push(words.slice(from, at), make("mark", {}, words.slice(at, at + wanted.length)));
    from = at + wanted.length;
  }
  parts.push(words.slice(from));
  return parts;
}
