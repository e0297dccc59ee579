// @ts-check
// How one figure went over a run, in at most so many bins: when the run outgrows them, pairs are put together. A total
// is read as a rate a second, a gauge as the most it was; what it was before stays until it is said anew. Pure.

const BASE = 1e6, MOST = 8192;

/** @typedef {{x: number[], y: (number | null)[]}} Points Times in nanoseconds, and a value for each. */

export class Course {
  /** @param {"total" | "gauge"} kind */
  constructor(kind) {
    this.kind = kind;
    /** Of a bin, in nanoseconds: a power of two times a millisecond. */ this.width = BASE;
    /** What a bin holds: the total, or the most. @type {number[]} */ this.values = [];
    /** The last value said in a bin of a gauge. @type {number[]} */ this.last = [];
    this.first = Infinity;
    this.end = -Infinity;
  }

  get empty() { return this.end < 0; }

  /** @param {number} t @param {number} value */
  add(t, value) {
    if (t < 0) return;
    const place = this.#place(t);
    if (this.kind === "total") this.values[place] += value;
    else {
      this.values[place] = Number.isNaN(this.values[place]) ? value : Math.max(this.values[place], value);
      this.last[place] = value;
    }
  }

  /** An amount that came evenly between two moments. @param {number} start @param {number} end @param {number} amount */
  spread(start, end, amount) {
    start = Math.max(0, start);
    if (end < start) return;
    const to = this.#place(end), from = this.#place(start);
    if (from === to) { this.values[to] += amount; return; }
    for (let place = from; place <= to; place++) {
      const share = Math.min(end, (place + 1) * this.width) - Math.max(start, place * this.width);
      this.values[place] += (amount * share) / (end - start);
    }
  }

  /** @param {number} t */
  #place(t) {
    while (t >= this.width * MOST) this.#halve();
    const place = Math.floor(t / this.width);
    while (this.values.length <= place) {
      this.values.push(this.kind === "total" ? 0 : NaN);
      if (this.kind === "gauge") this.last.push(NaN);
    }
    this.first = Math.min(this.first, t);
    this.end = Math.max(this.end, t);
    return place;
  }

  #halve() {
    this.values = inPairs(this.values, this.kind === "total" ? (a, b) => a + b : most);
    this.last = inPairs(this.last, (a, b) => (Number.isNaN(b) ? a : b));
    this.width *= 2;
  }

  /** The stretch on a grid of steps, whose middles are the times. @param {number} start @param {number} end @param {number} step A multiple of the width. @returns {Points} */
  read(start, end, step) {
    /** @type {Points} */ const points = { x: [], y: [] };
    if (this.empty) return points;
    const many = step / this.width, from = Math.max(0, Math.floor(start / step)), to = Math.floor(Math.min(end, this.end) / step);
    let held = this.kind === "gauge" ? this.#before(from * many) : NaN;
    for (let group = from; group <= to; group++) {
      let sum = 0, top = NaN;
      for (let place = group * many; place < (group + 1) * many && place < this.values.length; place++) {
        if (this.kind === "total") sum += this.values[place];
        else {
          top = most(top, this.values[place]);
          if (!Number.isNaN(this.last[place])) held = this.last[place];
        }
      }
      points.x.push((group + 0.5) * step);
      if (this.kind === "total") points.y.push((group + 1) * step > this.first ? (sum * 1e9) / step : null);
      else points.y.push(Number.isNaN(top) ? (Number.isNaN(held) ? null : held) : top);
    }
    return points;
  }

  /** What a gauge was before a bin. @param {number} place */
  #before(place) {
    for (let at = Math.min(place, this.last.length) - 1; at >= 0; at--) if (!Number.isNaN(this.last[at])) return this.last[at];
    return NaN;
  }
}

/** @param {number} a @param {number} b */
const most = (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.max(a, b));

/** @param {number[]} list @param {(a: number, b: number) => number} join */
function inPairs(list, join) {
  const half = [];
  for (let place = 0; place < list.length; place += 2) half.push(place + 1 < list.length ? join(list[place], list[place + 1]) : list[place]);
  return half;
}

/** A step that fits all of these courses, with at most about `points` steps in the stretch. @param {Course[]} courses @param {number} start @param {number} end @param {number} points */
export function stepFor(courses, start, end, points) {
  let step = courses.reduce((wide, one) => Math.max(wide, one.width), BASE);
  while ((end - start) / step > points) step *= 2;
  return step;
}
