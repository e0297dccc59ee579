// @ts-check
// The rings as maps, one a GPU, with one legend that counts over all of them and filters, and a table for those who do not
// see the maps.

import { make, say } from "./dom.js";
import { count } from "./format.js";
import { label } from "./lanes.js";
import { paintSlot, palette } from "./paint.js";
import { STATES } from "./ring.js";
import { RingPane } from "./ringpane.js";
import { SlotTable } from "./slottable.js";

/** From so many rings on two stand side by side. */
const SIDE_BY_SIDE = 3, BETWEEN = 12;

export class RingMap {
  /**
   * @param {{canvas: HTMLCanvasElement, legend: HTMLElement, tip: HTMLElement, title: HTMLElement, sub: HTMLElement, said: HTMLElement}} parts
   * @param {import("./model.js").Model} model @param {{request: (request: number) => void}} on
   */
  constructor(parts, model, on) {
    this.parts = parts;
    this.maps = /** @type {HTMLElement} */ (parts.canvas.parentElement);
    this.box = /** @type {HTMLElement} */ (this.maps.parentElement);
    this.model = model;
    this.on = { ...on, called: this.called.bind(this), say: this.#tell.bind(this), changed: () => { this.dirty = true; } };
    /** Slots of each ring and the GPUs that have one, as the plan has them. */ this.slots = 0;
    /** @type {string[]} */ this.planned = [];
    /** Place in STATES that is shown alone, or -1. */ this.only = -1;
    /** @type {import("./ring.js").Place | null} */ this.selected = null;
    this.live = true;
    /** The moment that the pointer on the timeline asks for. @type {number | null} */ this.asked = null;
    this.dirty = true;
    this.panes = [new RingPane(parts.canvas, "", this.on)];
    /** @type {HTMLElement[]} */ this.numbers = [];
    this.#makeLegend();
    this.table = new SlotTable(this.box, this);
    const frame = () => { if (this.dirty) this.draw(); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    document.addEventListener("theme", () => { this.dirty = true; this.#paintLegend(); });
    new ResizeObserver(() => { this.dirty = true; }).observe(this.box);
  }

  /** A request as the timeline calls it. @param {number} request */
  called(request) { return label({ request, name: this.model.tracks.tracks.get(request)?.name ?? "" }); }

  /** What the plan says. @param {number} slots Of each ring. @param {string[]} rings */
  plan(slots, rings) {
    this.slots = slots;
    this.planned = rings;
    this.dirty = true;
  }

  /** Shows the rings at a moment of the run; null is now, or after a run the moment at which they were fullest. @param {number | null} t */
  show(t) {
    if (t === this.asked) return;
    this.asked = t;
    this.dirty = true;
  }

  /** The moment to be drawn; null is now. */
  get moment() { return this.asked ?? (this.live ? null : this.model.ring.fullest.t); }

  /** Which moment that is, in words. */
  #caption() {
    const { panes, moment } = this, many = this.slots ? `${count(this.slots)} slots` : "slots";
    const where = panes.length > 1 ? `${many} in each of ${panes.length} GPUs` : many;
    if (moment === null) return panes.length > 1 ? where : `${where} in the GPU's memory`;
    return `${where}, ${this.asked === null ? "at the fullest" : "at"} ${(moment / 1e9).toFixed(3)} s`;
  }

  /** One map a ring, of those that are planned or that something was heard of. A map alone needs no name. */
  #arrange() {
    const names = [...new Set([...this.planned, ...this.model.ring.names()])].sort();
    if (!names.length || names.join() === this.panes.map((pane) => pane.name).join()) return;
    const { canvas } = this.parts;
    const old = this.panes;
    this.panes = names.map((name, place) => {
      const known = old[place];
      if (known) { known.name = name; say(/** @type {Element} */ (known.head.firstElementChild), name); return known; }
      const more = /** @type {HTMLCanvasElement} */ (canvas.cloneNode());
      more.id = `ring-${name}`;
      return new RingPane(more, name, this.on);
    });
    const columns = this.#columns;
    const maps = names.length > 1 ? this.panes.map((pane) => make("div", {}, pane.head, pane.canvas)) : [canvas];
    this.maps.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    this.maps.replaceChildren(...maps);
  }

  get #columns() { return this.panes.length < SIDE_BY_SIDE ? 1 : 2; }

  /** What the pointer or the keyboard is at. @param {RingPane} pane @param {[string, string] | null} words @param {number} x @param {number} y */
  #tell(pane, words, x, y) {
    const { tip, said } = this.parts;
    tip.hidden = !words;
    if (!words) return;
    tip.replaceChildren(make("b", {}, words[0]), words[1]);
    if (pane.cursor !== null) say(said, words.join(": "));
    const left = pane.canvas.offsetLeft + x + 8, last = this.box.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(left, last))}px`;
    tip.style.top = `${pane.canvas.offsetTop + y + 18}px`;
  }

  draw() {
    this.dirty = false;
    this.#arrange();
    const { panes, moment, model: { ring } } = this, colours = palette(), columns = this.#columns;
    const width = (this.box.clientWidth - 32 - BETWEEN * (columns - 1)) / columns;
    /** @type {Map<string, number>} */ const counts = new Map();
    for (const pane of panes) {
      pane.shown = ring.at(pane.name, moment);
      const highest = ring.rings.get(pane.name)?.highest ?? -1;
      pane.total = this.slots || Math.max(64, 2 ** Math.ceil(Math.log2(highest + 1 || 1)));
      pane.draw(colours, width, this.only, this.selected?.ring === pane.name ? this.selected.slot : null);
      for (const [state, number] of pane.counts()) counts.set(state, (counts.get(state) ?? 0) + number);
    }
    say(this.parts.title, panes.length > 1 ? "Slot rings" : "Slot ring");
    say(this.parts.sub, this.#caption());
    STATES.forEach((state, place) => say(this.numbers[place], count(counts.get(state) ?? 0)));
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
        [...this.parts.legend.children].forEach((child, index) => child.setAttribute("aria-pressed", String(index === this.only)));
        this.dirty = true;
      });
      this.parts.legend.append(button);
    });
    this.#paintLegend();
  }

  #paintLegend() {
    const colours = palette();
    this.parts.legend.querySelectorAll("canvas").forEach((canvas, place) => {
      const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      pen.setTransform(2, 0, 0, 2, 0, 0);
      pen.clearRect(0, 0, 12, 12);
      paintSlot(pen, place, 0, 0, 12, colours);
    });
  }
}
