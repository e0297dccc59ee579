// @ts-check
// What became of each request as its client saw it, and the latencies made of that. The definitions are those of
// testbed.metrics.latency, row "vllm": TTFT = first chunk - sent; ITL = gaps between chunks, pooled over all requests;
// TPOT = (last - first) / (tokens - 1), a request. Only completed requests count. A test holds both against each other.

import { growing } from "./pack.js";

const MS = 1e6;
/** Name, quantile, and how many values it takes to say it. */
export const PERCENTILES = /** @type {const} */ ([["p50", 0.5, 1], ["p90", 0.9, 10], ["p99", 0.99, 100], ["p999", 0.999, 1000]]);

/** @typedef {{name: string, scheduled: number, sent: number, promptTokens: number, maxTokens: number, times: number[] | Float64Array,
 *   counts: number[] | Uint32Array | null, received: number, ended: number | null, tokens: number, reason: string, error: string}} Exchange */

/** `counts` are tokens in each chunk, null while every chunk brought one. */
export class ExchangeFold {
  constructor() {
    /** @type {Exchange[]} */ this.exchanges = [];
    /** @type {Map<string, Exchange>} */ this.byName = new Map();
    /** What something was heard of since somebody last looked. @type {Set<Exchange>} */ this.touched = new Set();
    this.completed = 0;
    this.failed = 0;
    this.tokens = 0;
    this.strays = 0;
    /** Tokens that came in each window of `windowNs`. @type {number[]} */ this.windows = [];
    this.windowNs = 100e6;
    /** Counts changes, so that a reader knows whether to look again. */ this.version = 0;
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    switch (event.type) {
      case "request.sent": this.#begin(event); break;
      case "token.received": this.#chunk(event); break;
      case "request.finished": this.#end(event, event.tokens, event.reason, ""); break;
      case "request.failed": this.#end(event, 0, "", event.error || "failed"); break;
      default: return;
    }
    this.version++;
  }

  /** @param {import("./order.js").Event} event */
  #begin(event) {
    const exchange = { name: event.name, scheduled: event.scheduled, sent: event.t, promptTokens: event.prompt_tokens,
      maxTokens: event.max_tokens, times: [], counts: null, received: 0, ended: null, tokens: 0, reason: "", error: "" };
    this.exchanges.push(exchange);
    this.byName.set(event.name, exchange);
    this.touched.add(exchange);
  }

  /** @param {import("./order.js").Event} event */
  #chunk(event) {
    const exchange = this.byName.get(event.name);
    if (!exchange) { this.strays++; return; }
    this.touched.add(exchange);
    const count = event.count ?? 1;
    const times = exchange.times = growing(exchange.times);
    if (count !== 1 && !exchange.counts) exchange.counts = new Array(times.length).fill(1);
    times.push(event.t);
    if (exchange.counts) (exchange.counts = growing(exchange.counts)).push(count);
    exchange.received += count;
    this.tokens += count;
    this.#fill(event.t, count);
  }

  /** @param {number} t @param {number} count */
  #fill(t, count) {
    if (t < 0) return;
    const window = Math.floor(t / this.windowNs);
    while (this.windows.length <= window) this.windows.push(0);
    this.windows[window] += count;
  }

  /** The chunks of a pack; its other events have been taken. @param {import("./pack.js").Pack} pack */
  load(pack) {
    const counts = pack.head.columns["received.count"] ? /** @type {Uint32Array} */ (pack.column("received.count")) : null;
    let at = 0;
    pack.times("received").forEach((times, place) => {
      const exchange = this.exchanges[place], own = counts && counts.subarray(at, at + times.length);
      exchange.times = times;
      this.touched.add(exchange);
      exchange.counts = own && own.some((count) => count !== 1) ? own : null;
      exchange.received = own ? own.reduce((sum, count) => sum + count, 0) : times.length;
      this.tokens += exchange.received;
      for (let place = 0; place < times.length; place++) this.#fill(times[place], own ? own[place] : 1);
      at += times.length;
    });
    this.strays += pack.head.strays;
    this.version++;
  }

  /** @param {import("./order.js").Event} event @param {number} tokens @param {string} reason @param {string} error */
  #end(event, tokens, reason, error) {
    const exchange = this.byName.get(event.name);
    if (!exchange || exchange.ended !== null) { this.strays++; return; }
    this.touched.add(exchange);
    Object.assign(exchange, { ended: event.t, tokens, reason, error });
    if (error) this.failed++; else this.completed++;
  }

  /** Output tokens a second, from the first sending to the last end (vLLM: only completed requests' tokens). */
  served() {
    let first = Infinity, last = -Infinity, tokens = 0;
    for (const one of this.exchanges) {
      first = Math.min(first, one.sent);
      if (one.ended === null) continue;
      last = Math.max(last, one.ended);
      if (!one.error) tokens += one.tokens || one.received;
    }
    return last > first ? (tokens * 1e9) / (last - first) : null;
  }

  /** Tokens a second that came in the `span` ns before `now`. @param {number} now @param {number} span */
  recent(now, span) {
    const to = Math.floor(now / this.windowNs), from = Math.max(0, to - Math.round(span / this.windowNs));
    let sum = 0;
    for (let window = from; window < to; window++) sum += this.windows[window] ?? 0;
    return to > from ? (sum * 1e9) / ((to - from) * this.windowNs) : 0;
  }
}

/** @param {Exchange[]} exchanges */
export function latencies(exchanges) {
  const ttft = [], ttst = [], itl = [], tpot = [];
  for (const one of exchanges) {
    if (one.ended === null || one.error) continue;
    const { times } = one;
    if (times.length) ttft.push(times[0] - one.sent);
    if (times.length > 1) ttst.push(times[1] - times[0]);
    for (let k = 1; k < times.length; k++) itl.push(times[k] - times[k - 1]);
    const tokens = one.tokens || one.received;
    if (tokens > 1 && times.length) tpot.push((times[times.length - 1] - times[0]) / (tokens - 1));
  }
  return { ttft: distribution(ttft), ttst: distribution(ttst), itl: distribution(itl), tpot: distribution(tpot) };
}

/** @typedef {{n: number, mean: number | null, p50: number | null, p90: number | null, p99: number | null,
 *   p999: number | null, worst: number | null, sorted: Float64Array}} Distribution */

/** Milliseconds from values in nanoseconds; a percentile that n is too small for is null. @param {number[]} values @returns {Distribution} */
export function distribution(values) {
  const sorted = Float64Array.from(values).sort();
  const n = sorted.length;
  /** @type {any} */ const answer = { n, mean: null, worst: n ? sorted[n - 1] / MS : null, sorted };
  if (n) answer.mean = sorted.reduce((sum, value) => sum + value, 0) / n / MS;
  for (const [name, quantile, least] of PERCENTILES) answer[name] = n >= least ? linear(sorted, quantile) / MS : null;
  return answer;
}

/** numpy.percentile, method "linear". @param {ArrayLike<number>} sorted @param {number} quantile */
export function linear(sorted, quantile) {
  const place = (sorted.length - 1) * quantile, below = Math.floor(place), share = place - below;
  const a = sorted[below], b = sorted[Math.min(below + 1, sorted.length - 1)];
  // From the nearer end, as numpy does, so that both give the same last digit.
  return share < 0.5 ? a + (b - a) * share : b - (b - a) * (1 - share);
}

/** Counts for a small histogram from 0 to a little over p99.9, or the worst where n is small. @param {Distribution} values @param {number} bins */
export function histogram(values, bins) {
  const { sorted, n } = values;
  const top = n ? Math.max(linear(sorted, n >= 1000 ? 0.999 : 1) * 1.04, 1) : 1;
  const counts = new Array(bins).fill(0);
  for (const value of sorted) counts[Math.min(bins - 1, Math.floor((value / top) * bins))]++;
  return { counts, top: top / MS };
}
