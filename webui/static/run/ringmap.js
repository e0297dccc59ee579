// @ts-check
// The ring as a map: 64 slots a row, shape and colour by state, a legend that counts and filters.

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
    this.dirty = true;
    this.cell = 5;
    this.columns = 64;
    parts.sub.textContent = slots ? `${count(slots)} slots in the GPU's memory` : "";
    /** @type {HTMLElement[]} */ this.numbers = [];
    this.#makeLegend();
    const frame = () => { if (this.dirty) this.draw(); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    document.addEventListener("theme", () => { this.dirty = true; this.#paintLegend(); });
    new ResizeObserver(() => { this.dirty = true; }).observe(/** @type {HTMLElement} */ (this.canvas.parentElement));
    this.canvas.addEventListener("pointermove", (event) => this.#hover(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => {
      const slot = this.model.ring.slots.get(this.#at(event.offsetX, event.offsetY));
      if (slot && slot.state !== "empty") on.request(slot.request);
    });
  }

  get total() { return this.slots || Math.max(64, 2 ** Math.ceil(Math.log2(this.model.ring.highest + 1 || 1))); }

  /** How many slots are in a state. @param {string} state */
  counted(state) {
    const seen = this.model.ring.counts.get(state) ?? 0;
    return state === "empty" ? this.total - this.model.ring.slots.size + seen : seen;
  }

  /** @param {number} x @param {number} y */
  #at(x, y) { return Math.floor(y / this.cell) * this.columns + Math.floor(x / this.cell); }

  /** @param {number} x @param {number} y */
  #hover(x, y) {
    const place = this.#at(x, y);
    if (place >= this.total || x >= this.columns * this.cell) { this.tip.hidden = true; return; }
    const slot = this.model.ring.slots.get(place);
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
    const total = this.total, colours = palette();
    this.columns = total >= 1024 ? 64 : Math.ceil(Math.sqrt(total));
    const box = Math.min(WIDEST, (this.canvas.parentElement?.clientWidth ?? 348) - 32);
    this.cell = Math.min(box / this.columns, 16);
    const rows = Math.ceil(total / this.columns);
    this.canvas.style.width = `${box}px`;
    const { pen } = fit(this.canvas, rows * this.cell + 2);
    const size = Math.max(1, this.cell - Math.min(1, this.cell * 0.18));
    const { slots } = this.model.ring;
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
    STATES.forEach((state, place) => { this.numbers[place].textContent = count(this.counted(state)); });
    this.canvas.setAttribute("aria-label", `Ring of ${count(total)} slots: ${STATES.map((state) => `${count(this.counted(state))} ${state}`).join(", ")}`);
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
