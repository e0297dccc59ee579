// @ts-check
// The same requests of several sides under each other on one axis, so zoom and pan are linked by construction. Marks are
// those of the run page (run/paint.js); moments count from each side's first sending. The address keeps the view.

import { fit, paintLane, palette } from "../run/paint.js";
import { axisLabel, ticks, View } from "../run/view.js";
import { commonPrefix, firstToken, shortName, pageOf, viewText, viewOf } from "./aligned_view.js";

const ROW = 14, GAP = 3, HEAD = 22, NAME = 20, BETWEEN = 10;

/** @typedef {import("./aligned_view.js").SideLanes} SideLanes */

/** Colours of the sides' names, as compare.css has them. */
function sideColours() {
  const style = getComputedStyle(document.documentElement);
  return [0, 1, 2, 3, 4, 5].map((place) => style.getPropertyValue(`--t${place}`).trim());
}

export class Aligned {
  /** @param {HTMLCanvasElement} canvas @param {string} address */
  constructor(canvas, address) {
    this.canvas = canvas;
    /** @type {SideLanes[]} */ this.sides = [];
    this.view = new View();
    this.top = 0;
    this.left = 120;
    this.width = 300;
    this.colours = palette();
    this.names = sideColours();
    /** What all names begin with. */ this.prefix = "";
    this.asked = 0;
    this.#hands();
    new ResizeObserver(() => this.draw()).observe(/** @type {HTMLElement} */ (canvas.parentElement));
    document.addEventListener("theme", () => { this.colours = palette(); this.names = sideColours(); this.draw(); });
    void this.#load(address);
  }

  get rows() { return this.width < 600 ? 6 : 8; }
  get total() { return Math.max(0, ...this.sides.map((side) => side.lanes.length)); }

  /** @param {string} address */
  async #load(address) {
    const sub = document.getElementById("al-sub");
    try {
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(String(answer.status));
      const told = await answer.json();
      this.sides = told.sides;
      if (sub) sub.textContent = told.matched === "name" ? "matched by name, first repeat of each" : "matched by order of sending, first repeat of each";
    } catch {
      if (sub) sub.textContent = "could not be fetched; reload the page to try again";
      return;
    }
    this.prefix = commonPrefix(this.sides.flatMap((side) => side.lanes.map((lane) => lane.name)));
    this.view.now = Math.max(1e6, ...this.sides.flatMap((side) => side.lanes.map((lane) => lane.end)));
    const kept = viewOf(new URL(location.href).searchParams.get("view") ?? "");
    this.top = kept?.top ?? 0;
    if (kept) this.view.set(kept.start, kept.end);
    else this.#fit();
    this.draw();
  }

  /** The requests that are shown, whole. */
  #fit() {
    const shown = this.sides.flatMap((side) => pageOf(side.lanes, this.top, this.rows));
    const start = Math.min(...shown.map((lane) => lane.start)), end = Math.max(...shown.map((lane) => lane.end));
    if (Number.isFinite(start) && end > start) this.view.set(start - (end - start) * 0.01, end + (end - start) * 0.02);
  }

  /** At most once a frame. */
  draw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => { this.asked = 0; this.#paint(); });
  }

  #paint() {
    const rows = Math.min(this.rows, Math.max(1, this.total - this.top));
    const block = rows * (ROW + GAP), height = HEAD + this.sides.length * (NAME + block + BETWEEN);
    const { pen, width } = fit(this.canvas, Math.max(height, 80));
    this.width = width;
    this.left = width < 600 ? 62 : 84;
    const right = width - 8, colours = this.colours, span = this.view.end - this.view.start;
    const x = (/** @type {number} */ t) => this.left + ((t - this.view.start) / span) * (right - this.left);
    const axis = { x, left: this.left, right };
    const marks = ticks(this.view.start, this.view.end, right - this.left);
    pen.textBaseline = "middle";
    for (const at of marks.at) {
      pen.fillStyle = colours.line;
      pen.fillRect(x(at), 16, 1, height - 18);
      pen.fillStyle = colours["ink-3"];
      pen.font = `11px ${colours.sans}`;
      pen.textAlign = "center";
      pen.fillText(axisLabel(at, marks.step), Math.min(Math.max(x(at), this.left + 16), right - 18), 8);
    }
    this.sides.forEach((side, place) => this.#side(pen, side, HEAD + place * (NAME + block + BETWEEN) + 2, axis));
  }

  /** @param {CanvasRenderingContext2D} pen @param {SideLanes} side @param {number} y @param {{x: (t: number) => number, left: number, right: number}} axis */
  #side(pen, side, y, axis) {
    const colours = this.colours;
    pen.textAlign = "left";
    pen.font = `600 12px ${colours.sans}`;
    pen.fillStyle = this.names["ABCDEF".indexOf(side.letter)] ?? colours.ink;
    pen.fillText(`${side.letter} ${side.name}`, 0, y + 8);
    y += NAME;
    for (const lane of pageOf(side.lanes, this.top, this.rows)) {
      pen.font = `11px ${colours.mono}`;
      pen.fillStyle = colours["ink-3"];
      pen.textAlign = "right";
      pen.fillText(shortName(lane.name, this.prefix), this.left - 8, y + ROW / 2);
      pen.textAlign = "left";
      pen.save();
      pen.beginPath();
      pen.rect(axis.left, y - 3, axis.right - axis.left, ROW + 6);
      pen.clip();
      paintLane(pen, /** @type {any} */ (lane), axis, y, ROW, colours);
      const first = firstToken(lane);
      if (first !== null) {
        const at = axis.x(first);
        pen.fillStyle = colours.ink;
        pen.beginPath();
        pen.moveTo(at - 3.5, y - 3); pen.lineTo(at + 3.5, y - 3); pen.lineTo(at, y + 1.5);
        pen.fill();
      }
      pen.restore();
      y += ROW + GAP;
    }
  }

  /** @param {number} by */
  #scroll(by) {
    const last = Math.max(0, this.total - this.rows);
    this.top = Math.min(Math.max(0, this.top + by), last);
    this.#fit();
    this.#moved();
    const words = document.getElementById("al-words");
    if (words) words.textContent = `Requests ${this.top + 1} to ${Math.min(this.total, this.top + this.rows)} of ${this.total}`;
  }

  #moved() {
    const here = new URL(location.href);
    here.searchParams.set("view", viewText(this.view, this.top));
    history.replaceState(null, "", here);
    this.draw();
  }

  /** @param {number} factor @param {number} [share] */
  #zoom(factor, share = 0.5) { this.view.zoom(factor, share); this.#moved(); }

  #hands() {
    const click = (/** @type {string} */ id, /** @type {() => void} */ does) => document.getElementById(id)?.addEventListener("click", does);
    click("al-in", () => this.#zoom(0.6));
    click("al-out", () => this.#zoom(1 / 0.6));
    click("al-fit", () => { this.#fit(); this.#moved(); });
    click("al-earlier", () => this.#scroll(-this.rows));
    click("al-later", () => this.#scroll(this.rows));
    this.canvas.addEventListener("keydown", (event) => {
      /** @type {Record<string, () => void>} */ const keys = {
        "+": () => this.#zoom(0.6), "=": () => this.#zoom(0.6), "-": () => this.#zoom(1 / 0.6),
        ArrowLeft: () => { this.view.pan(event.shiftKey ? -1 : -0.15); this.#moved(); },
        ArrowRight: () => { this.view.pan(event.shiftKey ? 1 : 0.15); this.#moved(); },
        PageUp: () => this.#scroll(-this.rows), PageDown: () => this.#scroll(this.rows),
        0: () => { this.#fit(); this.#moved(); },
      };
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const inner = this.canvas.clientWidth - 8 - this.left, share = Math.min(1, Math.max(0, (event.offsetX - this.left) / inner));
      if (event.ctrlKey) this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, share);
      else { this.view.pan((event.deltaY || event.deltaX) > 0 ? 0.1 : -0.1); this.#moved(); }
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      let last = event.clientX;
      const move = (/** @type {PointerEvent} */ now) => {
        this.view.pan((last - now.clientX) / Math.max(1, this.canvas.clientWidth - 8 - this.left));
        last = now.clientX;
        this.#moved();
      };
      this.canvas.addEventListener("pointermove", move);
      this.canvas.addEventListener("lostpointercapture", () => this.canvas.removeEventListener("pointermove", move), { once: true });
    });
  }
}
