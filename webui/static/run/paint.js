// @ts-check
// How marks look on the timeline. Each kind has a second cue beside its colour: queued is a thin line with a start bar,
// prefill is full height, a token is one tick (closer than 2.8 px: a pale band), a pause is dashes on the middle line,
// done is an end bar, failed a cross.

import { lowerBound, lowerBoundBy } from "./machine.js";

/** @typedef {CanvasRenderingContext2D} Pen */
/** @typedef {{x: (t: number) => number, left: number, right: number}} Axis */
/** @typedef {Record<string, string>} Colours */

const NAMES = ["queued", "prefill", "decode", "paused", "done", "completed", "completed-edge", "ink", "ink-2", "ink-3", "line", "line-2",
  "accent", "accent-soft", "surface", "sunken", "bad", "warn", "read-pe", "read-pe-edge", "read-de", "read-de-edge", "vl0", "vl1", "vl2", "vl3", "slot-empty", "bg"];
const BAND_PX = 2.8;
/** From so many marks a pixel the next pixel's first mark is looked up instead of walking through all of them. */
const DENSE = 4;

/** @type {any} */ let known = null;
if (typeof document !== "undefined") document.addEventListener("theme", () => { known = null; });

/** The colours of the present theme. @returns {Colours & {sans: string, mono: string}} */
export function palette() {
  if (known) return known;
  const style = getComputedStyle(document.documentElement);
  /** @type {any} */ const colours = {};
  for (const name of [...NAMES, "sans", "mono"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
  // A style sheet that is still on its way has no colours to remember.
  if (colours.ink) known = colours;
  return colours;
}

/** Sizes the canvas to its box and the screen's pixels; the pen then draws in CSS px. @param {HTMLCanvasElement} canvas @param {number} height */
export function fit(canvas, height) {
  const width = canvas.clientWidth || canvas.parentElement?.clientWidth || 300, dots = window.devicePixelRatio || 1;
  const w = Math.round(width * dots), h = Math.round(height * dots);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const pen = /** @type {Pen} */ (canvas.getContext("2d"));
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width };
}

/** One request. @param {Pen} pen @param {import("./requests.js").Lane} lane @param {Axis} axis @param {number} y @param {number} height @param {Colours} colours */
export function paintLane(pen, lane, axis, y, height, colours) {
  const middle = y + height / 2;
  for (const phase of lane.phases) {
    if (phase.what === "sending" || phase.what === "queued") {
      stretch(axis, phase.start, phase.end, (a, b) => {
        pen.fillStyle = colours.queued;
        pen.fillRect(a, middle - 0.75, Math.max(b - a, 0.5), 1.5);
      });
    } else if (phase.what === "prefill") {
      stretch(axis, phase.start, phase.end, (a, b) => {
        pen.fillStyle = colours.prefill;
        pen.fillRect(a, y, Math.max(1.5, b - a - 1), height);
      });
    }
  }
  if (lane.reading) paintReading(pen, lane.reading, axis, y, height, colours);
  startBar(pen, axis, lane, middle, colours);
  paintTokens(pen, lane.tokens, axis, middle, height * 0.62, colours.decode);
  pen.fillStyle = colours.paused;
  for (const [start, end] of lane.pauses) {
    stretch(axis, start, end, (a, b) => { for (let x = a + 2; x < b - 1; x += 6) pen.fillRect(x, middle - 1, Math.min(3.5, b - x), 2); });
  }
  if (lane.state !== "running") endMark(pen, axis, lane, y, height, colours);
}

/** Which side reads is told by the half of the lane: above for the PE path, below for the DE path, both where the read is
 * split. @param {Pen} pen @param {import("./lanes.js").Reading} reading @param {Axis} axis @param {number} y @param {number} height @param {Colours} colours */
function paintReading(pen, reading, axis, y, height, colours) {
  stretch(axis, reading.start, reading.end, (a, b) => {
    const wide = Math.max(1.5, b - a), half = height / 2;
    pen.clearRect(a, y, wide, height);
    pen.fillStyle = colours.queued;
    pen.fillRect(a, y + half - 0.75, wide, 1.5);
    if (reading.path !== "decode") {
      pen.fillStyle = colours["read-pe"]; pen.fillRect(a, y, wide, half);
      pen.fillStyle = colours["read-pe-edge"]; pen.fillRect(a, y, wide, 1.5);
    }
    if (reading.path !== "prefill") {
      pen.fillStyle = colours["read-de"]; pen.fillRect(a, y + half, wide, half);
      pen.fillStyle = colours["read-de-edge"]; pen.fillRect(a, y + height - 1.5, wide, 1.5);
    }
  });
}

/** Calls `draw` with the part of [start, end] that is on screen. @param {Axis} axis @param {number} start @param {number} end @param {(a: number, b: number) => void} draw */
function stretch(axis, start, end, draw) {
  const a = Math.max(axis.left, axis.x(start)), b = Math.min(axis.right, axis.x(end));
  if (b >= a && axis.x(end) >= axis.left && axis.x(start) <= axis.right) draw(a, b);
}

/** @param {Pen} pen @param {Axis} axis @param {import("./requests.js").Lane} lane @param {number} middle @param {Colours} colours */
function startBar(pen, axis, lane, middle, colours) {
  const x = axis.x(lane.start);
  if (x < axis.left || x > axis.right) return;
  pen.fillStyle = colours.queued;
  pen.fillRect(x, middle - 3, 1.5, 7);
}

/** @param {Pen} pen @param {Axis} axis @param {import("./requests.js").Lane} lane @param {number} y @param {number} height @param {Colours} colours */
function endMark(pen, axis, lane, y, height, colours) {
  const x = axis.x(lane.end) + 4;
  if (x < axis.left || x > axis.right - 2) return;
  pen.lineWidth = 1.5;
  pen.beginPath();
  if (lane.state === "failed") {
    pen.strokeStyle = colours.bad;
    pen.moveTo(x, y + 2); pen.lineTo(x + 7, y + height - 2);
    pen.moveTo(x + 7, y + 2); pen.lineTo(x, y + height - 2);
  } else {
    pen.strokeStyle = colours.done;
    pen.moveTo(x, y + 1.5); pen.lineTo(x, y + height - 1.5);
  }
  pen.stroke();
}

/** Ticks, or a pale band where ticks would touch: so the cost depends on the width, not on the number of tokens. @param {Pen} pen @param {ArrayLike<number>} times @param {Axis} axis @param {number} middle @param {number} height @param {string} colour */
function paintTokens(pen, times, axis, middle, height, colour) {
  const from = lowerBound(times, timeAt(axis, axis.left - 4)), to = lowerBound(times, timeAt(axis, axis.right + 4));
  pen.fillStyle = colour;
  if (to - from > DENSE * (axis.right - axis.left)) { paintDense(pen, times, from, to, axis, middle, height); return; }
  let bandStart = NaN, last = NaN;
  const flush = () => {
    if (Number.isNaN(bandStart)) return;
    band(pen, axis, bandStart, last + 1.2, middle, height);
    bandStart = NaN;
  };
  for (let place = from; place < to; place++) {
    const x = axis.x(times[place]);
    const next = place + 1 < times.length ? axis.x(times[place + 1]) - x : Infinity;
    const near = Math.min(x - last || 0, next) < BAND_PX && Math.max(Number.isNaN(last) ? 0 : x - last, next === Infinity ? 0 : next) < 3 * BAND_PX;
    if (near) { if (Number.isNaN(bandStart)) bandStart = x - 0.6; } else {
      flush();
      if (x >= axis.left && x <= axis.right) pen.fillRect(x - 0.75, middle - height / 2, 1.5, height);
    }
    if (near && next >= 3 * BAND_PX) { last = x; flush(); }
    last = x;
  }
  flush();
}

/** @param {Pen} pen @param {Axis} axis @param {number} start @param {number} end @param {number} middle @param {number} height */
function band(pen, axis, start, end, middle, height) {
  const a = Math.max(axis.left, start), b = Math.min(axis.right, end);
  if (b <= a) return;
  pen.globalAlpha = 0.5;
  pen.fillRect(a, middle - height / 2, b - a, height);
  pen.globalAlpha = 1;
}

/** Bands between the gaps, from pixel to pixel. @param {Pen} pen @param {ArrayLike<number>} times @param {number} from @param {number} to @param {Axis} axis @param {number} middle @param {number} height */
function paintDense(pen, times, from, to, axis, middle, height) {
  let start = NaN, last = NaN;
  for (let place = from; place < to;) {
    const x = axis.x(times[place]);
    if (Number.isNaN(start)) start = x - 0.6;
    else if (x - last > 3 * BAND_PX) { band(pen, axis, start, last + 1.2, middle, height); start = x - 0.6; }
    last = x;
    place = ahead(times, place, to, timeAt(axis, x + 1));
  }
  if (!Number.isNaN(start)) band(pen, axis, start, last + 1.2, middle, height);
}

/** The first place after `place` whose time is not before `t`, sought in growing steps: it is near. @param {ArrayLike<number>} times @param {number} place @param {number} to @param {number} t */
function ahead(times, place, to, t) {
  let step = 1, low = place + 1;
  while (low < to && times[low] < t) { low += step; step *= 2; }
  let high = Math.min(low, to);
  low = Math.max(place + 1, low - step / 2);
  while (low < high) { const middle = (low + high) >> 1; if (times[middle] < t) low = middle + 1; else high = middle; }
  return Math.min(low, to);
}

/** @param {Axis} axis @param {number} x */
function timeAt(axis, x) {
  const zero = axis.x(0), one = axis.x(1e9);
  return ((x - zero) / (one - zero)) * 1e9;
}

/** Of a pixel with more launches than this, so many are looked at for the tallest. */
const LOOKED_AT = 16;

/** Launches: height is the batch; more than one in a pixel become the tallest of them. @param {Pen} pen @param {import("./machine.js").Launch[]} launches @param {Axis} axis @param {number} base @param {number} height @param {number} largest @param {number} now @param {Colours} colours */
export function paintLaunches(pen, launches, axis, base, height, largest, now, colours) {
  const from = Math.max(0, lowerBoundBy(launches, timeAt(axis, axis.left)) - 1), to = lowerBoundBy(launches, timeAt(axis, axis.right));
  const tall = (/** @type {number} */ batch) => 4 + (height - 4) * (batch / Math.max(largest, 1));
  if (to - from > DENSE * (axis.right - axis.left)) { paintPacked(pen, launches, from, to, axis, base, tall, colours); return; }
  let column = -1, tallest = 0;
  for (let place = from; place < to; place++) {
    const launch = launches[place], next = launches[place + 1]?.t ?? Infinity;
    // Where the log does not say when the device was done, the bar lasts until the next launch, at most 40 ms.
    const end = launch.end ?? Math.min(next, launch.t + 40e6, Math.max(now, launch.t));
    const a = axis.x(launch.t), b = Math.min(axis.x(end), axis.right), h = tall(launch.batch), at = Math.floor(a);
    pen.fillStyle = launch.kind === "prefill" ? colours.prefill : colours["ink-2"];
    if (b - a < 1.6) {
      tallest = at === column ? Math.max(tallest, h) : h;
      column = at;
      pen.globalAlpha = 0.55;
      if (a >= axis.left) pen.fillRect(at, base - tallest, 1, tallest);
    } else {
      const left = Math.max(axis.left, a), width = b - left - (b - a > 4 ? 1 : 0.5);
      pen.globalAlpha = launch.kind === "prefill" ? 1 : 0.6;
      if (width > 0) pen.fillRect(left, base - h, width, h);
    }
  }
  pen.globalAlpha = 1;
}

/** @param {Pen} pen @param {import("./machine.js").Launch[]} launches @param {number} from @param {number} to @param {Axis} axis @param {number} base @param {(batch: number) => number} tall @param {Colours} colours */
function paintPacked(pen, launches, from, to, axis, base, tall, colours) {
  pen.fillStyle = colours["ink-2"];
  pen.globalAlpha = 0.6;
  for (let x = Math.floor(axis.left), place = from; x < axis.right && place < to; x++) {
    let end = place, most = 0, step = 1;
    const until = timeAt(axis, x + 1);
    while (end < to && launches[end].t < until) { end += step; step *= 2; }
    let low = Math.max(place, end - step / 2), high = Math.min(end, to);
    while (low < high) { const middle = (low + high) >> 1; if (launches[middle].t < until) low = middle + 1; else high = middle; }
    for (let look = place; look < low; look += Math.max(1, Math.floor((low - place) / LOOKED_AT))) most = Math.max(most, launches[look].batch);
    if (low > place) pen.fillRect(x, base - tall(most), 1, tall(most));
    place = low;
  }
  pen.globalAlpha = 1;
}

/** Slots that hold a request, and of these the paused ones, as steps. @param {Pen} pen @param {import("./slothistory.js").SlotHistory} history @param {Axis} axis @param {number} base @param {number} height @param {number} total @param {Colours} colours */
export function paintSlots(pen, history, axis, base, height, total, colours) {
  const times = history.moved.subarray(0, history.length);
  for (let x = Math.floor(axis.left), place = lowerBound(times, timeAt(axis, axis.left)); x < axis.right; x++) {
    place = ahead(times, place - 1, history.length, timeAt(axis, x + 1));
    if (!place || (place === history.length && times[place - 1] < timeAt(axis, axis.left))) continue;
    const taken = (history.taken[place - 1] / total) * height, paused = (history.paused[place - 1] / total) * height;
    if (!taken) continue;
    pen.globalAlpha = 0.5;
    pen.fillStyle = colours.decode;
    pen.fillRect(x, base - taken, 1, taken - paused);
    pen.globalAlpha = 1;
    pen.fillStyle = colours.paused;
    if (paused) pen.fillRect(x, base - paused, 1, paused);
    pen.fillStyle = colours.ink;
    pen.fillRect(x, base - taken - 1, 1, 1);
  }
}

/** @param {Pen} pen @param {{t: number}[]} relaunches @param {Axis} axis @param {number} y @param {Colours} colours */
export function paintRelaunches(pen, relaunches, axis, y, colours) {
  pen.fillStyle = colours.ink;
  for (let place = lowerBoundBy(relaunches, timeAt(axis, axis.left)); place < relaunches.length; place++) {
    const x = axis.x(relaunches[place].t);
    if (x > axis.right) return;
    pen.beginPath();
    pen.moveTo(x, y - 4); pen.lineTo(x + 4, y); pen.lineTo(x, y + 4); pen.lineTo(x - 4, y);
    pen.fill();
  }
}

/** A lane's readings as steps: each reading holds for the interval before it. @param {Pen} pen @param {import("./machine.js").Series} series @param {Axis} axis @param {number} base @param {number} height @param {number} top @param {string} colour */
export function paintSeries(pen, series, axis, base, height, top, colour) {
  const { t, rate } = series;
  const from = Math.max(0, lowerBound(t, timeAt(axis, axis.left)) - 1);
  const to = Math.min(t.length, lowerBound(t, timeAt(axis, axis.right)) + 2);
  if (to - from < 1) return;
  const y = (/** @type {number} */ value) => base - Math.min(1, value / top) * height;
  const line = () => {
    pen.beginPath();
    // More than one reading in half a pixel: the most of them, so that no peak is lost.
    const stride = Math.max(1, Math.floor((to - from) / (2 * (axis.right - axis.left))));
    for (let first = from; first < to; first += stride) {
      let place = first;
      for (let other = first + 1; other < Math.min(to, first + stride); other++) if (rate[other] > rate[place]) place = other;
      const x = axis.x(t[place]);
      if (first === from) pen.moveTo(place ? axis.x(t[place - 1]) : x, y(rate[place]));
      pen.lineTo(place ? axis.x(t[place - 1]) : x, y(rate[place]));
      pen.lineTo(x, y(rate[place]));
    }
  };
  pen.save();
  pen.beginPath();
  pen.rect(axis.left, base - height - 4, axis.right - axis.left, height + 6);
  pen.clip();
  line();
  pen.lineTo(axis.x(t[to - 1]), base);
  pen.lineTo(axis.x(from ? t[from - 1] : t[from]), base);
  pen.closePath();
  pen.globalAlpha = 0.2;
  pen.fillStyle = colour;
  pen.fill();
  pen.globalAlpha = 1;
  line();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.lineJoin = "round";
  pen.stroke();
  pen.restore();
}

/** One slot of the ring. Shape goes with colour. @param {Pen} pen @param {number} state Place in STATES. @param {number} x @param {number} y @param {number} size @param {Colours} colours */
export function paintSlot(pen, state, x, y, size, colours) {
  switch (state) {
    case 0: pen.fillStyle = colours["slot-empty"]; pen.fillRect(x, y, size, size); return;
    case 1: pen.strokeStyle = colours["ink-3"]; pen.lineWidth = 1; pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1); return;
    case 2:
      pen.fillStyle = colours.prefill; pen.fillRect(x, y, size, size);
      pen.fillStyle = colours.surface; pen.fillRect(x + size * 0.25, y + size * 0.5 - 0.5, size * 0.5, 1.2); return;
    case 3: pen.fillStyle = colours.decode; pen.fillRect(x, y, size, size); return;
    case 4:
      pen.fillStyle = colours.paused; pen.fillRect(x, y, size * 0.36, size); pen.fillRect(x + size * 0.64, y, size * 0.36, size); return;
    default:
      pen.fillStyle = colours.completed;
      pen.beginPath(); pen.moveTo(x, y + size); pen.lineTo(x + size, y + size); pen.lineTo(x + size, y); pen.fill();
  }
}
