// @ts-check
// One ring as a map: 64 slots a row, shape and colour by state, a cursor for the keyboard. Which moment it shows and which
// state alone is said by the map of all rings (ringmap.js).

import { make, say } from "./dom.js";
import { count, several, span } from "./format.js";
import { fit, paintSlot } from "./paint.js";
import { STATES } from "./ring.js";

/** Widest map and its widest cell, in pixels. */
const WIDEST = 358, CELL = 16;

/** @typedef {{state: string, incarnation: number, request: number, moved: number}} Held */

/** Where a key leads to from a slot, or from none (null); undefined if it is no such key. Arrows go from slot to slot, Page up
 * and Page down from taken to taken. @param {string} key @param {number | null} cursor @param {number} columns @param {number} total
 * @param {number[]} taken In order. @returns {number | undefined} */
export function placeAfter(key, cursor, columns, total, taken) {
  const at = cursor ?? 0, last = total - 1;
  switch (key) {
    case "ArrowRight": return cursor === null ? 0 : Math.min(last, at + 1);
    case "ArrowLeft": return Math.max(0, at - 1);
    case "ArrowDown": return cursor === null || at + columns > last ? at : at + columns;
    case "ArrowUp": return at < columns ? at : at - columns;
    case "Home": return 0;
    case "End": return last;
    case "PageDown": return taken.find((place) => cursor === null || place > cursor) ?? at;
    case "PageUp": return taken.findLast((place) => cursor === null || place < cursor) ?? at;
  }
}

export class RingPane {
  /** @param {HTMLCanvasElement} canvas @param {string} name The GPU's node; empty while it is not known.
   * @param {{say: (pane: RingPane, words: [string, string] | null, x: number, y: number) => void, request: (request: number) => void, called: (request: number) => string, changed: () => void}} on `called` is a request's name. */
  constructor(canvas, name, on) {
    this.canvas = canvas;
    this.name = name;
    this.on = on;
    this.head = make("p", { class: "ringn" }, make("b", {}, name), make("span"));
    /** @type {Map<number, Held>} */ this.shown = new Map();
    this.total = 0;
    this.cell = 5;
    this.columns = 64;
    /** The slot that the keyboard is at. @type {number | null} */ this.cursor = null;
    canvas.addEventListener("pointermove", (event) => this.#point(this.#at(event.offsetX, event.offsetY), event.offsetX, event.offsetY));
    canvas.addEventListener("pointerleave", () => on.say(this, null, 0, 0));
    canvas.addEventListener("click", (event) => this.#choose(this.#at(event.offsetX, event.offsetY)));
    canvas.addEventListener("keydown", (event) => { if (this.#key(event.key)) event.preventDefault(); });
    canvas.addEventListener("blur", () => { this.#go(null); });
  }

  /** How many of its slots are in each state. */
  counts() {
    const counts = new Map([["empty", this.total - this.shown.size]]);
    for (const slot of this.shown.values()) counts.set(slot.state, (counts.get(slot.state) ?? 0) + 1);
    return counts;
  }

  /** @param {number} x @param {number} y */
  #at(x, y) {
    const place = Math.floor(y / this.cell) * this.columns + Math.floor(x / this.cell);
    return place < this.total && x < this.columns * this.cell ? place : null;
  }

  /** @param {number | null} place @param {number} x @param {number} y */
  #point(place, x, y) { this.on.say(this, place === null ? null : this.#words(place), x, y); }

  /** @param {number} place @returns {[string, string]} */
  #words(place) {
    const slot = this.shown.get(place), of = this.head.isConnected ? ` of ${this.name}` : "";
    return [`slot ${place}${of}`, slot ? `${slot.state}${slot.state === "empty" ? "" : `, ${this.on.called(slot.request)}`}, since ${span(slot.moved)}, used ${slot.incarnation} ×` : "empty, never used"];
  }

  /** @param {number | null} place */
  #choose(place) {
    const slot = place === null ? undefined : this.shown.get(place);
    if (slot && slot.state !== "empty") this.on.request(slot.request);
  }

  /** True if the key was one of ours. @param {string} key */
  #key(key) {
    if (key === "Enter" || key === " ") { this.#choose(this.cursor); return true; }
    const taken = [...this.shown].filter(([, slot]) => slot.state !== "empty").map(([place]) => place).sort((a, b) => a - b);
    const place = key === "Escape" ? null : placeAfter(key, this.cursor, this.columns, this.total, taken);
    if (place === undefined) return false;
    this.#go(place);
    return true;
  }

  /** @param {number | null} place */
  #go(place) {
    this.cursor = place;
    const x = ((place ?? 0) % this.columns) * this.cell, y = Math.floor((place ?? 0) / this.columns) * this.cell;
    this.#point(place, x, y + this.cell);
    this.on.changed();
  }

  /** @param {any} colours @param {number} width Of the room for it. @param {number} only Place in STATES that is shown alone, or -1. @param {number | null} selected */
  draw(colours, width, only, selected) {
    const { total, shown: slots } = this, counts = this.counts();
    this.columns = total >= 1024 ? 64 : Math.ceil(Math.sqrt(total));
    const box = Math.min(WIDEST, width);
    this.cell = Math.min(box / this.columns, CELL);
    const rows = Math.ceil(total / this.columns);
    this.canvas.style.width = `${box}px`;
    const { pen } = fit(this.canvas, rows * this.cell + 2);
    const size = Math.max(1, this.cell - Math.min(1, this.cell * 0.18));
    pen.globalAlpha = only > 0 ? 0.35 : 1;
    for (let place = 0; place < total; place++) {
      if (!slots.has(place)) paintSlot(pen, 0, (place % this.columns) * this.cell, Math.floor(place / this.columns) * this.cell, size, colours);
    }
    for (const [place, slot] of slots) {
      const state = Math.max(0, STATES.indexOf(slot.state));
      pen.globalAlpha = only >= 0 && state !== only ? 0.15 : 1;
      paintSlot(pen, state, (place % this.columns) * this.cell, Math.floor(place / this.columns) * this.cell, size, colours);
    }
    pen.globalAlpha = 1;
    for (const [place, ink] of [[selected, colours.ink], [this.cursor, colours.accent]]) {
      if (place === null) continue;
      pen.strokeStyle = ink;
      pen.lineWidth = 1.5;
      pen.strokeRect((place % this.columns) * this.cell - 2, Math.floor(place / this.columns) * this.cell - 2, this.cell + 4, this.cell + 4);
    }
    const of = this.head.isConnected ? ` of ${this.name}, ${count(total)} slots` : ` of ${count(total)} slots`;
    this.canvas.setAttribute("aria-label", `Ring${of}: ${STATES.map((state) => `${count(counts.get(state) ?? 0)} ${state}`).join(", ")}`);
    say(/** @type {Element} */ (this.head.lastElementChild), `${several(total - (counts.get("empty") ?? 0), "slot")} taken`);
  }
}
