// @ts-check
// The token timeline: requests, launches, slots and virtual lanes on one canvas, one axis and one gutter. It draws when
// something has changed, at most once a frame, and never changes a view that the person has moved. What is drawn where
// is picture.js's; charts beside it share its gutter (`left`), its stretch of time and its cursor.

import { laneNamed } from "./lanes.js";
import { palette } from "./paint.js";
import { AXIS, Picture, ROW_PITCH } from "./picture.js";
import { View } from "./view.js";

const ROWS_WIDE = 24, ROWS_NARROW = 16;
const SMALL_PX = 600;

export class Timeline {
  /**
   * @param {HTMLCanvasElement} canvas @param {import("./model.js").Model} model
   * @param {{select: (lane: import("./lanes.js").Lane | null) => void, moved: () => void}} on
   */
  constructor(canvas, model, on) {
    this.canvas = canvas;
    this.model = model;
    this.on = on;
    this.view = new View();
    this.picture = new Picture(this);
    /** First row shown, counted from the first request. */ this.top = 0;
    /** The port whose lanes are shown, and others beside it. */ this.port = "";
    /** @type {string[]} */ this.more = [];
    /** Devices whose launches are shown; null for the first few. @type {string[] | null} */ this.devices = null;
    /** @type {string | null} */ this.selected = null;
    /** @type {{x: number, y: number} | null} */ this.pointer = null;
    /** A moment that charts beside it point at; null is none. @type {number | null} */ this.cursor = null;
    /** A stretch that is being chosen. @type {[number, number] | null} */ this.chosen = null;
    /** @type {((start: number, end: number) => void)[]} */ this.viewers = [];
    /** @type {((t: number | null) => void)[]} */ this.pointers = [];
    /** @type {number[]} */ this.told = [];
    this.live = true;
    this.dirty = true;
    this.left = 156;
    this.width = 300;
    /** How many request rows the canvas has; it only grows, so that nothing below it jumps. */ this.rows = 8;
    /** Milliseconds that the last drawing took, and how many there were: for who measures. */ this.cost = { last: 0, frames: 0 };
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

  /** Goes to the request that `text` names; false if there is none. @param {string} text */
  find(text) {
    const lane = laneNamed(this.lanes(), text);
    if (!lane) return false;
    const { view } = this;
    if (lane.start > view.end || lane.end < view.start) this.show(lane.start, lane.end, lane.key); else this.choose(lane.key);
    return true;
  }

  get small() { return this.width < SMALL_PX; }

  get most() { return this.small ? ROWS_NARROW : ROWS_WIDE; }

  /** Lanes as they are listed. */
  lanes() { return this.model.requestLanes(); }

  /** Lanes on screen. */
  seen() {
    const lanes = this.lanes(), first = this.first(lanes.length);
    return lanes.slice(first, first + this.rows);
  }

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
    const { start, end } = this.view;
    const seen = (/** @type {import("./lanes.js").Lane} */ lane) => lane.start < end && lane.end > start;
    if (!this.seen().some(seen)) {
      const place = this.lanes().findIndex(seen);
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
    const row = Math.floor((y - AXIS - 1) / ROW_PITCH), lane = row >= 0 && row < this.rows ? this.seen()[row] ?? null : null;
    return { lane, t: this.timeAt(x), inside: x >= this.left };
  }

  /** @param {number} x */
  timeAt(x) { return this.view.start + ((x - this.left) / (this.width - this.left - 8)) * (this.view.end - this.view.start); }

  /** Where a moment is drawn. @param {number} t */
  xOf(t) { return this.left + ((t - this.view.start) / (this.view.end - this.view.start)) * (this.width - this.left - 8); }

  draw() {
    const began = performance.now();
    this.dirty = false;
    const total = this.lanes().length;
    this.rows = Math.max(this.rows, Math.min(this.most, Math.max(8, total, Math.min(this.model.expected, this.most))));
    this.picture.draw(palette());
    const { start, end } = this.view, now = [start, end, this.left, this.width];
    if (now.some((value, place) => value !== this.told[place])) {
      this.told = now;
      for (const told of this.viewers) told(start, end);
    }
    this.cost.last = performance.now() - began;
    this.cost.frames++;
  }
}
