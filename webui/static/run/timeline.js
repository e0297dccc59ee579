// @ts-check
// The token timeline: requests, GPU launches and virtual lanes on one canvas, one axis and one gutter. It draws when
// something has changed, at most once a frame, and never changes a view that the person has moved.

import { axisLabel, ticks, View } from "./view.js";
import { fit, paintLane, paintLaunches, paintRelaunches, paintSeries, palette } from "./paint.js";
import { count, rate, span } from "./format.js";

const ROW = 14, GAP = 2, AXIS = 24, GPU = 34, VL = 46;
const ROWS_WIDE = 24, ROWS_NARROW = 16;

export class Timeline {
  /**
   * @param {HTMLCanvasElement} canvas @param {import("./model.js").Model} model
   * @param {{select: (lane: import("./requests.js").Lane | null) => void, moved: () => void}} on
   */
  constructor(canvas, model, on) {
    this.canvas = canvas;
    this.model = model;
    this.on = on;
    this.view = new View();
    /** First row shown, counted from the first request. */ this.top = 0;
    this.port = "";
    /** @type {string | null} */ this.selected = null;
    /** @type {{x: number, y: number} | null} */ this.pointer = null;
    this.live = true;
    this.dirty = true;
    this.left = 156;
    this.width = 300;
    /** A moment that charts beside it point at; null is none. @type {number | null} */ this.cursor = null;
    /** @type {((start: number, end: number) => void)[]} */ this.viewers = [];
    /** @type {((t: number | null) => void)[]} */ this.pointers = [];
    /** @type {[number, number]} */ this.told = [NaN, NaN];
    /** How many request rows the canvas has; it only grows, so that nothing below it jumps. */ this.rows = 8;
    const frame = () => { if (this.dirty) this.draw(); requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    new ResizeObserver(() => this.refresh()).observe(/** @type {HTMLElement} */ (canvas.parentElement));
    document.addEventListener("theme", () => this.refresh());
  }

  refresh() { this.dirty = true; }

  /** New events have been folded. */
  advance() {
    this.view.advance(this.model.now);
    this.refresh();
  }

  /** `told` hears the stretch of time on screen whenever it has changed, at most once a frame. @param {(start: number, end: number) => void} told */
  onView(told) {
    this.viewers.push(told);
    told(this.view.start, this.view.end);
  }

  /** `told` hears the moment under the pointer, or null. @param {(t: number | null) => void} told */
  onCursor(told) { this.pointers.push(told); }

  /** The pointer has moved over the canvas, or left it. @param {{x: number, y: number} | null} at */
  point(at) {
    this.pointer = at;
    const t = at && at.x >= this.left ? this.timeAt(at.x) : null;
    for (const told of this.pointers) told(t);
    this.refresh();
  }

  /** A chart beside the timeline points at a moment. @param {number | null} t */
  setCursor(t) {
    if (t === this.cursor) return;
    this.cursor = t;
    this.refresh();
  }

  /** Goes to a stretch of time, and to a request where one is meant; a moment gets a second around it.
   * @param {number} start @param {number} end @param {string | null} [key] */
  show(start, end, key = null) {
    const air = end > start ? (end - start) * 0.1 : 0.5e9;
    this.view.set(start - air, end + air);
    if (key !== null) this.choose(key);
    this.bring();
    this.on.moved();
  }

  get most() { return this.width < 600 ? ROWS_NARROW : ROWS_WIDE; }

  /** Lanes as they are listed. */
  lanes() { return this.model.requestLanes(); }

  /** Index of the first lane on screen: the newest while following, else where the person left it. @param {number} total */
  first(total) {
    const last = Math.max(0, total - this.rows);
    return this.view.follow && this.live ? last : Math.min(this.top, last);
  }

  /** Moves by rows; leaves follow. @param {number} by */
  scroll(by) {
    const total = this.lanes().length;
    const first = this.first(total);
    if (this.view.follow) this.view.set(this.view.start, this.view.end);
    this.top = Math.max(0, Math.min(Math.max(0, total - this.rows), first + by));
    this.on.moved();
    this.refresh();
  }

  /** After a move in time: if no row on screen has a mark in view, goes to the first request that has. */
  bring() {
    const lanes = this.lanes(), { start, end } = this.view;
    const seen = (/** @type {import("./requests.js").Lane} */ lane) => lane.start < end && lane.end > start;
    const first = this.first(lanes.length);
    if (!lanes.slice(first, first + this.rows).some(seen)) {
      const place = lanes.findIndex(seen);
      if (place >= 0) this.top = place;
    }
    this.refresh();
  }

  /** Chooses a lane and brings its row on screen. @param {string | null} key */
  choose(key) {
    this.selected = key;
    const lanes = this.lanes(), place = lanes.findIndex((lane) => lane.key === key);
    if (place >= 0) {
      const first = this.first(lanes.length);
      if (place < first || place >= first + this.rows) this.scroll(place < first ? place - first : place - first - this.rows + 1);
    }
    this.on.select(place >= 0 ? lanes[place] : null);
    this.refresh();
  }

  /** The next or previous lane. @param {number} by */
  step(by) {
    const lanes = this.lanes();
    if (!lanes.length) return;
    const place = lanes.findIndex((lane) => lane.key === this.selected);
    const next = place < 0 ? (by > 0 ? this.first(lanes.length) : lanes.length - 1) : Math.max(0, Math.min(lanes.length - 1, place + by));
    this.choose(lanes[next].key);
  }

  /** What is under the pointer. @param {number} x @param {number} y */
  hit(x, y) {
    const lanes = this.lanes(), row = Math.floor((y - AXIS - 1) / (ROW + GAP));
    const lane = row >= 0 && row < this.rows ? lanes[this.first(lanes.length) + row] ?? null : null;
    return { lane, t: this.timeAt(x), inside: x >= this.left };
  }

  /** @param {number} x */
  timeAt(x) { return this.view.start + ((x - this.left) / (this.width - this.left - 8)) * (this.view.end - this.view.start); }

  /** Where a moment is drawn. @param {number} t */
  xOf(t) { return this.left + ((t - this.view.start) / (this.view.end - this.view.start)) * (this.width - this.left - 8); }

  draw() {
    this.dirty = false;
    const { model, view } = this;
    const lanes = this.lanes();
    this.rows = Math.max(this.rows, Math.min(this.most, Math.max(8, Math.max(lanes.length, Math.min(model.expected, this.most)))));
    const port = model.links.ports.get(this.port);
    const virtual = port ? [...port.keys()].filter((lane) => lane >= 0).sort((a, b) => a - b) : [];
    const shown = virtual.length ? virtual : port ? [-1] : [];
    const rowsEnd = AXIS + this.rows * (ROW + GAP) + 8;
    const height = rowsEnd + GPU + shown.length * VL + 14;
    const { pen, width } = fit(this.canvas, height);
    this.width = width;
    const small = width < 600;
    this.left = small ? 58 : 156;
    const colours = this.colours = palette();
    const right = width - 8, scale = (right - this.left) / (view.end - view.start);
    const axis = { left: this.left, right, x: (/** @type {number} */ t) => this.left + (t - view.start) * scale };
    pen.textBaseline = "middle";
    this.#grid(pen, axis, height, colours);
    this.#requests(pen, axis, lanes, small, colours);
    this.#gpu(pen, axis, rowsEnd + 2, small, colours);
    shown.forEach((lane, place) => this.#virtualLane(pen, axis, lane, rowsEnd + GPU + place * VL, small, colours));
    this.#cursor(pen, axis, height, colours);
    if (this.told[0] !== view.start || this.told[1] !== view.end) {
      this.told = [view.start, view.end];
      for (const told of this.viewers) told(view.start, view.end);
    }
    this.canvas.setAttribute("aria-label", `Token timeline: ${count(lanes.length)} requests, ${count(model.exchanges.tokens)} tokens, ${span(Math.max(0, view.start))} to ${span(Math.max(0, view.end))}`);
  }

  /** @param {number} size @param {string} [weight] @param {boolean} [mono] */
  #font(size, weight = "", mono = false) {
    const colours = /** @type {any} */ (this.colours);
    return `${weight} ${size}px ${mono ? colours.mono : colours.sans}`.trim();
  }

  /** @param {any} pen @param {any} axis @param {number} height @param {any} colours */
  #grid(pen, axis, height, colours) {
    const { at, step } = ticks(Math.max(0, this.view.start), this.view.end, axis.right - axis.left);
    const now = axis.x(this.model.now);
    pen.font = this.#font(12);
    pen.textAlign = "center";
    for (const t of at) {
      const x = Math.round(axis.x(t)) + 0.5;
      if (x < axis.left - 1 || x > axis.right) continue;
      pen.strokeStyle = colours.line;
      pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(x, 20); pen.lineTo(x, height - 8); pen.stroke();
      pen.fillStyle = colours["ink-3"];
      const clear = !this.live || Math.abs(x - now) > 70;
      if (x > axis.left + 14 && x < axis.right - 20 && clear) pen.fillText(axisLabel(t, step), x, 9);
    }
    pen.textAlign = "left";
    for (const late of this.model.late) {
      const x = axis.x(late);
      if (x < axis.left || x > axis.right) continue;
      pen.fillStyle = colours.warn;
      pen.globalAlpha = 0.05; pen.fillRect(x - 3, 20, 6, height - 28);
      pen.globalAlpha = 1; pen.fillRect(x - 2, 20, 4, 2);
    }
  }

  /** @param {any} pen @param {any} axis @param {import("./requests.js").Lane[]} lanes @param {boolean} small @param {any} colours */
  #requests(pen, axis, lanes, small, colours) {
    const first = this.first(lanes.length), hover = this.pointer && this.hit(this.pointer.x, this.pointer.y).lane;
    for (let row = 0; row < this.rows && first + row < lanes.length; row++) {
      const lane = lanes[first + row], y = AXIS + 2 + row * (ROW + GAP), chosen = lane.key === this.selected;
      if (chosen || lane === hover) {
        pen.fillStyle = chosen ? colours["accent-soft"] : colours.sunken;
        pen.fillRect(0, y - 1, this.width, ROW + GAP);
      }
      pen.fillStyle = chosen ? colours.accent : colours["ink-2"];
      pen.font = this.#font(11, chosen ? "bold" : "", true);
      pen.fillText(label(lane), 4, y + ROW / 2 + 0.5);
      if (!small) {
        pen.fillStyle = colours["ink-3"];
        pen.font = this.#font(11);
        pen.textAlign = "right";
        pen.fillText(standing(lane), axis.left - 12, y + ROW / 2 + 0.5);
        pen.textAlign = "left";
      }
      pen.save();
      pen.beginPath(); pen.rect(axis.left, y - 1, axis.right - axis.left, ROW + 2); pen.clip();
      paintLane(pen, lane, axis, y + 1, ROW - 2, colours);
      pen.restore();
    }
  }

  /** @param {any} pen @param {any} axis @param {number} y @param {boolean} small @param {any} colours */
  #gpu(pen, axis, y, small, colours) {
    pen.strokeStyle = colours["line-2"];
    pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(0, y - 4.5); pen.lineTo(this.width, y - 4.5); pen.stroke();
    pen.font = this.#font(12);
    pen.fillStyle = colours.ink;
    pen.fillText(small ? "GPU" : "GPU launches", 4, y + 8);
    if (!small) {
      pen.fillStyle = colours["ink-3"];
      pen.font = this.#font(11);
      pen.fillText("height is batch, ◆ relaunch", 4, y + 22);
    }
    const node = [...this.model.launches.byNode.keys()][0];
    if (node === undefined) return;
    paintLaunches(pen, this.model.launches.byNode.get(node) ?? [], axis, y + 25, 20, this.model.launches.largest, this.model.now, colours);
    paintRelaunches(pen, this.model.launches.relaunches.get(node) ?? [], axis, y, colours);
  }

  /** @param {any} pen @param {any} axis @param {number} lane @param {number} top @param {boolean} small @param {any} colours */
  #virtualLane(pen, axis, lane, top, small, colours) {
    const series = this.model.links.ports.get(this.port)?.get(lane);
    if (!series) return;
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(0, top + 0.5); pen.lineTo(this.width, top + 0.5); pen.stroke();
    const name = lane < 0 ? "Port" : `VL${lane}`, latest = series.rate.at(-1) ?? 0;
    pen.font = this.#font(12, "600");
    pen.fillStyle = colours.ink;
    pen.fillText(name, 4, top + 14);
    pen.fillStyle = colours["ink-3"];
    pen.font = this.#font(11);
    const most = niceTop(series, series.setting), silent = series.sent === 0;
    pen.fillText(small ? silent ? "none" : rate(latest).replace("bit/s", "") : silent ? "nothing sent" : `${rate(latest)} ${this.live ? "now" : "at the end"}`, small ? 4 : 40, top + (small ? 29 : 14));
    if (!small && series.drops) {
      pen.fillStyle = colours.bad;
      pen.fillText(`▲ ${count(series.drops)} dropped`, 40, top + 30);
    }
    paintSeries(pen, series, axis, top + 44, 36, most, colours[`vl${Math.max(0, lane) % 4}`]);
    if (!small && !silent) {
      pen.fillStyle = colours["ink-3"];
      pen.font = this.#font(11);
      pen.fillText(`top ${rate(most)}`, 40, top + (series.drops ? 42 : 30));
    }
  }

  /** @param {any} pen @param {any} axis @param {number} height @param {any} colours */
  #cursor(pen, axis, height, colours) {
    const now = axis.x(this.model.now);
    if (this.live && this.model.events && now <= axis.right && now > axis.left) {
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 1.5;
      pen.beginPath(); pen.moveTo(now, 18); pen.lineTo(now, height - 8); pen.stroke();
      pen.fillStyle = colours.accent;
      pen.font = this.#font(11, "600");
      pen.textAlign = now > axis.right - 60 ? "right" : "center";
      pen.fillText(`now ${(this.model.now / 1e9).toFixed(2)}`, Math.min(now, axis.right), 9);
      pen.textAlign = "left";
    }
    const x = this.pointer ? this.pointer.x : this.cursor === null ? NaN : Math.round(axis.x(this.cursor));
    if (x > axis.left && x <= axis.right) {
      pen.strokeStyle = colours["ink-3"];
      pen.lineWidth = 1;
      pen.setLineDash([2, 3]);
      pen.beginPath(); pen.moveTo(x + 0.5, 18); pen.lineTo(x + 0.5, height - 8); pen.stroke();
      pen.setLineDash([]);
    }
  }
}

/** The lane's short name: the server's number where there is one. @param {import("./requests.js").Lane} lane */
export function label(lane) { return lane.request === null ? lane.name.slice(0, 8) : `r${String(lane.request).padStart(4, "0")}`; }

/** How far a request is, in a few words. @param {import("./requests.js").Lane} lane */
export function standing(lane) {
  if (lane.state === "failed") return lane.reason.slice(0, 18) || "failed";
  if (lane.state === "done") return `${count(lane.tokens.length)} tokens`;
  if (lane.tokens.length) return lane.maxTokens ? `${count(lane.tokens.length)} of ≤ ${count(lane.maxTokens)}` : `${count(lane.tokens.length)} tokens`;
  return lane.phases.at(-1)?.what ?? "";
}

/** The top of a lane's scale: its setting, or a round figure near what it carried where that is far below. It grows only. @param {import("./machine.js").Series} series @param {number} setting */
function niceTop(series, setting) {
  let most = 0;
  for (let place = Math.max(0, series.rate.length - 600); place < series.rate.length; place++) most = Math.max(most, series.rate[place]);
  const power = 10 ** Math.floor(Math.log10(Math.max(most * 1.25, 1)));
  const round = ([1, 2, 4, 10].find((k) => k * power >= most * 1.25) ?? 10) * power;
  series.top = Math.max(series.top, Math.min(round, setting || round));
  return series.top;
}
