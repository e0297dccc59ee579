// @ts-check
// Tokens a second and latencies over a run, from what clients received. Takes from each request only what has come since
// it last looked, so it costs the same whether chunks came one by one or all at once (a packed timeline). Latencies are
// of the chunks that came in a bin: TTFT by first chunks, ITL by gaps; also of requests that still run.

import { Course } from "./course.js";
import { linear } from "./latency.js";

/** Bins of latencies; each keeps its values, for a percentile needs them all. */
const BINS = 96;
const LEAST_BIN = 5e6;
const LEAST = { p50: 1, p99: 100 };

class Spread {
  constructor() {
    this.width = LEAST_BIN;
    /** @type {number[][]} */ this.bins = [];
    /** @type {({p50: number, p99: number | null, worst: number} | null)[]} */ this.known = [];
  }

  /** @param {number} t @param {number} value */
  add(t, value) {
    if (t < 0) return;
    while (t >= this.width * BINS) {
      const wide = [];
      for (let place = 0; place < this.bins.length; place += 2) wide.push([...(this.bins[place] ?? []), ...(this.bins[place + 1] ?? [])]);
      this.bins = wide;
      this.known = [];
      this.width *= 2;
    }
    const place = Math.floor(t / this.width);
    while (this.bins.length <= place) this.bins.push([]);
    this.bins[place].push(value);
    this.known[place] = null;
  }

  /** Median, p99 (of 100 values or more) and worst of each bin that has any. @returns {{x: number[], p50: (number | null)[], p99: (number | null)[], worst: (number | null)[]}} */
  read() {
    /** @type {{x: number[], p50: (number | null)[], p99: (number | null)[], worst: (number | null)[]}} */
    const points = { x: [], p50: [], p99: [], worst: [] };
    this.bins.forEach((values, place) => {
      const told = values.length >= LEAST.p50 ? (this.known[place] ??= figures(values)) : null;
      points.x.push((place + 0.5) * this.width);
      points.p50.push(told && told.p50);
      points.p99.push(told && told.p99);
      points.worst.push(told && told.worst);
    });
    return points;
  }
}

/** @param {number[]} values */
function figures(values) {
  const sorted = Float64Array.from(values).sort();
  return { p50: linear(sorted, 0.5), p99: sorted.length >= LEAST.p99 ? linear(sorted, 0.99) : null, worst: sorted[sorted.length - 1] };
}

export class TokenCourse {
  constructor() {
    this.tokens = new Course("total");
    this.ttft = new Spread();
    this.itl = new Spread();
    /** How many chunks of each request have been looked at. @type {number[]} */ this.seen = [];
  }

  /** Looks at what has come since. @param {{sent: number, times: ArrayLike<number>, counts: ArrayLike<number> | null}[]} exchanges */
  look(exchanges) {
    exchanges.forEach((exchange, place) => {
      const { times, counts } = exchange;
      for (let chunk = this.seen[place] ?? 0; chunk < times.length; chunk++) {
        const t = times[chunk];
        this.tokens.add(t, counts ? counts[chunk] : 1);
        if (chunk === 0) this.ttft.add(t, (t - exchange.sent) / 1e6);
        else this.itl.add(t, (t - times[chunk - 1]) / 1e6);
      }
      this.seen[place] = times.length;
    });
  }
}
