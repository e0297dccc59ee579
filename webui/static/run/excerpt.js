// @ts-check
// What a run that did not end well said last: the newest warnings and errors of its log, and what to do next.

import { make, part, say } from "./dom.js";
import { lineOf } from "./journal.js";
import { lineItem } from "./logview.js";

const LINES = 8;
/** @type {Record<string, string>} */
const NEXT = { errored: "Read on in the log below. “Clone and edit” starts it again with changes; “./looplane doctor” says what this machine lacks.",
  lost: "What it had logged is kept. “./looplane clean” removes what it may have left on its machine; “Clone and edit” starts it again." };

export class Excerpt {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.asked = false;
  }

  /** @param {any} run */
  draw(run) {
    if (this.asked || !(run.outcome in NEXT)) return;
    this.asked = true;
    void this.#fetch(run);
  }

  /** @param {any} run */
  async #fetch(run) {
    const query = new URLSearchParams({ level: "warning", ...(this.page.trial ? { trial: this.page.trial } : {}) });
    say(part("excerpt-next"), NEXT[run.outcome]);
    part("excerpt").hidden = false;
    try {
      const answer = await fetch(`${this.page.log}?${query}`), told = answer.ok ? (await answer.json()).events.slice(0, LINES) : [];
      const lines = told.map((/** @type {any} */ event) => lineItem(lineOf(event, this.page.levels), ""));
      part("excerpt-lines").replaceChildren(...(lines.length ? lines : [make("li", { class: "none" }, run.detail || "It logged no warning and no error.")]));
    } catch { part("excerpt-lines").replaceChildren(make("li", { class: "none" }, run.detail || "The log cannot be read just now.")); }
  }
}
