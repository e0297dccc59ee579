// @ts-check
// The ring as a map: 64 slots a row, shape and colour by state, a legend that counts and filters.

import { say } from "./dom.js";
import { fit, paintSlot, palette } from "./paint.js";
import { STATES } from "./ring.js";
import { count, span } from "./format.js";

const WIDEST = 358;

export class RingMap {
  /**
   * @param {{canvas: HTMLCanvasElement, legend: HTMLElement, tip: HTMLElement, sub: HTMLElement}} parts
   * @param {import("./model.js").Model} model @param {number | null} slots
   * @param {{request: (request: number) => void}} on
   */
  constructor(parts, model, slots, on) {
    this.canvas = parts.canvas;
    this.legend = parts.legend;
    this.tip = parts.tip;
    this.model = model;
    this.slots = slots ?? 0;
    /** Place in STATES that is shown alone, or -1. */ this.only = -1;
    /** @type {number | null} */ this.selected = null;
    this.sub = parts.sub;
    this.live = true;
    /** The moment that the pointer on the timeline asks for. @type {number | null} */ this.asked = null;
    this.shown = model.ring.slots;
    this.dirty = true;
    this.cell = 5;
    this.columns = 64;
    /** @type {HTMLElement[]} */ this.numbers = [];
    this.#makeLegend();
    const frame = () => { if (this.dirty) this.draw(); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    document.addEventListener("theme", () => { this.dirty = true; this.#paintLegend(); });
    new ResizeObserver(() => { this.dirty = true; }).observe(/** @type {HTMLElement} */ (this.canvas.parentElement));
    this.canvas.addEventListener("pointermove", (event) => this.#hover(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => {
      const slot = this.shown.get(this.#at(event.offsetX, event.offsetY));
      if (slot && slot.state !== "empty") on.request(slot.request);
    });
  }

  get total() { return this.slots || Math.max(64, 2 ** Math.ceil(Math.log2(this.model.ring.highest + 1 || 1))); }

  /** Shows the ring at a moment of the run; null is now, or after a run the moment at which it was fullest. @param {number | null} t */
  show(t) {
    if (t === this.asked) return;
    this.asked = t;
    this.dirty = true;
  }

  /** The slots to be drawn, and in words which moment that is. */
  #moment() {
    const { ring } = this.model, many = this.slots ? `${count(this.slots)} slots` : "slots";
    const t = this.asked ?? (this.live ? null : ring.fullest.t);
    this.shown = t === null ? ring.slots : ring.at(t);
    if (t === null) return `${many} in the GPU's memory`;
    return `${many}, ${this.asked === null ? "at the fullest" : "at"} ${(t / 1e9).toFixed(3)} s`;
  }

  /** How many of the slots shown are in each state. */
  #counted() {
    const counts = new Map([["empty", this.total - this.shown.size]]);
    for (const slot of this.shown.values()) counts.set(slot.state, (counts.get(slot.state) ?? 0) + 1);
    return counts;
  }

  /** @param {number} x @param {number} y */
  #at(x, y) { return Math.floor(y / this.cell) * this.columns + Math.floor(x / this.cell); }

  /** @param {number} x @param {number} y */
  #hover(x, y) {
    const place = this.#at(x, y);
    if (place >= this.total || x >= this.columns * this.cell) { this.tip.hidden = true; return; }
    const slot = this.shown.get(place);
    const bold = document.createElement("b");
    bold.textContent = `slot ${place}`;
    const words = slot ? `${slot.state}${slot.state === "empty" ? "" : `, request ${slot.request}`}, since ${span(slot.moved)}, used ${slot.incarnation} ×` : "empty, never used";
    this.tip.replaceChildren(bold, words);
    this.tip.hidden = false;
    this.tip.style.left = `${Math.min(x + 24, Math.max(0, this.canvas.clientWidth - 160))}px`;
    this.tip.style.top = `${y + 18}px`;
  }

  draw() {
    this.dirty = false;
    say(this.sub, this.#moment());
    const total = this.total, colours = palette(), slots = this.shown, counts = this.#counted();
    this.columns = total >= 1024 ? 64 : Math.ceil(Math.sqrt(total));
    const box = Math.min(WIDEST, (this.canvas.parentElement?.clientWidth ?? 348) - 32);
    this.cell = Math.min(box / this.columns, 16);
    const rows = Math.ceil(total / this.columns);
    this.canvas.style.width = `${box}px`;
    const { pen } = fit(this.canvas, rows * this.cell + 2);
    const size = Math.max(1, this.cell - Math.min(1, this.cell * 0.18));
    pen.globalAlpha = this.only > 0 ? 0.35 : 1;
    for (let place = 0; place < total; place++) {
      if (!slots.has(place)) paintSlot(pen, 0, (place % this.columns) * this.cell, Math.floor(place / this.columns) * this.cell, size, colours);
    }
    for (const [place, slot] of slots) {
      const state = Math.max(0, STATES.indexOf(slot.state));
      pen.globalAlpha = this.only >= 0 && state !== this.only ? 0.15 : 1;
      paintSlot(pen, state, (place % this.columns) * this.cell, Math.floor(place / this.columns) * this.cell, size, colours);
    }
    pen.globalAlpha = 1;
    if (this.selected !== null) {
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 1.5;
      const x = (this.selected % this.columns) * this.cell, y = Math.floor(this.selected / this.columns) * this.cell;
      pen.strokeRect(x - 2, y - 2, this.cell + 4, this.cell + 4);
    }
    STATES.forEach((state, place) => say(this.numbers[place], count(counts.get(state) ?? 0)));
    this.canvas.setAttribute("aria-label", `Ring of ${count(total)} slots: ${STATES.map((state) => `${count(counts.get(state) ?? 0)} ${state}`).join(", ")}`);
  }

  #makeLegend() {
    STATES.forEach((state, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      const mark = document.createElement("canvas"), name = document.createElement("span"), number = document.createElement("span");
      mark.width = mark.height = 24;
      mark.setAttribute("aria-hidden", "true");
      name.className = "name";
      name.textContent = state;
      number.textContent = "0";
      this.numbers.push(number);
      button.append(mark, name, number);
      button.addEventListener("click", () => {
        this.only = this.only === place ? -1 : place;
        [...this.legend.children].forEach((child, index) => child.setAttribute("aria-pressed", String(index === this.only)));
        this.dirty = true;
      });
      this.legend.append(button);
    });
    this.#paintLegend();
  }

  #paintLegend() {
    const colours = palette();
    this.legend.querySelectorAll("canvas").forEach((canvas, place) => {
      const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      pen.setTransform(2, 0, 0, 2, 0, 0);
      pen.clearRect(0, 0, 12, 12);
      paintSlot(pen, place, 0, 0, 12, colours);
    });
  }
}
