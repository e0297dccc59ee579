// @ts-check
// The four figure cells: median, p90, p99, n and a small histogram; tokens a second with its course.

import { draw, make, say } from "./dom.js";
import { count, millis, several } from "./format.js";
import { histogram, latencies, linear } from "./latency.js";
import { rateBetween, servedOf } from "./served.js";

const BINS = 44, HEIGHT = 44;
/** Shown twice a second at most. */
export const EVERY_MS = 500;
const RECENT_NS = 500e6;

const CELLS = /** @type {const} */ ([
  ["ttft", "TTFT", "sent to first chunk", "no request has finished yet"],
  ["tpot", "TPOT", "per finished request, first token left out", "no request has finished yet"],
  ["itl", "ITL", "gaps between chunks, pooled", "no request has finished yet"],
]);

/** What the figures are where the front end alone has logged. */
const FRONT_END = ["front end: arrival to first token streamed", "front end: per request, first token left out", "gaps between tokens in the ring, pooled"];

export class Figures {
  /** @param {HTMLElement} box @param {import("./model.js").Model} model */
  constructor(box, model) {
    this.box = box;
    this.model = model;
    this.version = -1;
    this.live = true;
    this.cells = CELLS.map(([key, name, words, waiting]) => ({ key, waiting, ...cell(box, name, words, "ms median") }));
    this.tokens = cell(box, "Tokens", "received by clients a second", "tok/s");
  }

  /** @param {boolean} force */
  update(force) {
    const { exchanges, tracks } = this.model, version = exchanges.version + tracks.version;
    // A run without requests, as of lanes alone, has its answer in the tables further down.
    this.box.hidden = !this.live && !exchanges.exchanges.length && !tracks.tracks.size;
    if (!force && version === this.version) return;
    this.version = version;
    // Where no client logs, as under `looplane serve`, what the front end saw.
    const served = exchanges.exchanges.length || !tracks.tracks.size ? null : servedOf(tracks);
    const figures = latencies(served ?? exchanges.exchanges);
    for (const one of this.cells) {
      const values = figures[one.key];
      one.big.firstChild && (one.big.firstChild.nodeValue = millis(values.p50));
      one.right.textContent = `n = ${count(values.n)}`;
      one.low.replaceChildren(...(values.n ? [quantile("p90", values.p90, values.n < 10), quantile("p99", values.p99, values.n < 100)] : [make("span", {}, this.live ? one.waiting : "no request finished")]));
      one.chart.replaceChildren(spark(values));
    }
    this.cells.forEach((one, place) => say(one.words, served ? FRONT_END[place] : CELLS[place][2]));
    if (served) this.#served(served); else this.#throughput();
  }

  /** Throughput as the front end saw it. @param {import("./latency.js").Exchange[]} served */
  #served(served) {
    const { now } = this.model, { tokens } = this, ends = served.filter((one) => one.ended !== null), failed = ends.filter((one) => one.error);
    const last = Math.max(...served.map((one) => one.ended ?? one.sent)), first = Math.min(...served.map((one) => one.sent));
    const value = this.live ? rateBetween(served, now - RECENT_NS, now) : rateBetween(served, first - 1, last);
    if (tokens.big.firstChild) tokens.big.firstChild.nodeValue = value === null ? "–" : count(value);
    tokens.words.textContent = this.live ? "published a second, last 500 ms" : "first arrival to last end";
    tokens.right.textContent = `${several(ends.length - failed.length, "request")} served, open-ended`;
    tokens.low.replaceChildren(make("span", {}, "total ", make("b", {}, count(served.reduce((sum, one) => sum + one.received, 0)))), ...(failed.length ? [make("span", {}, "failed ", make("b", {}, count(failed.length)))] : []));
    const bins = new Array(BINS).fill(0);
    for (const { times } of served) for (const t of times) bins[Math.min(BINS - 1, Math.max(0, Math.floor((t / Math.max(1, now)) * BINS)))]++;
    tokens.chart.replaceChildren(course(bins));
  }

  #throughput() {
    const { exchanges, expected, now } = this.model, { tokens } = this;
    const value = this.live ? exchanges.recent(now, RECENT_NS) : exchanges.served();
    if (tokens.big.firstChild) tokens.big.firstChild.nodeValue = value === null ? "–" : count(value);
    tokens.words.textContent = this.live ? "received a second, last 500 ms" : "first sending to last end";
    const all = Math.max(expected, exchanges.exchanges.length);
    tokens.right.textContent = !this.live && !exchanges.exchanges.length ? "no request was sent" : all ? `${count(exchanges.completed)} of ${count(all)} requests done` : this.model.started ? "open-ended" : "";
    const parts = [make("span", {}, "total ", make("b", {}, count(exchanges.tokens)))];
    if (exchanges.failed) parts.push(make("span", {}, "failed ", make("b", {}, count(exchanges.failed))));
    tokens.low.replaceChildren(...parts);
    tokens.chart.replaceChildren(course(exchanges.windows));
  }
}

/** @param {HTMLElement} box @param {string} name @param {string} words @param {string} unit */
function cell(box, name, words, unit) {
  const right = make("span", { class: "n" }), line = make("div", { class: "n d" }, words);
  const big = make("div", { class: "big" }, "–", make("small", {}, unit)), low = make("div", { class: "q" }), chart = make("div");
  box.append(make("div", {}, make("div", { class: "t" }, make("h3", {}, name), right), line,
    make("div", { class: "row" }, make("div", {}, big, low), chart)));
  return { right, words: line, big, low, chart };
}

/** @param {string} name @param {number | null} value @param {boolean} few */
function quantile(name, value, few) {
  const span = make("span", few ? { class: "few", title: `too few values for a ${name}` } : {}, `${name} `, make("b", {}, millis(value)));
  return span;
}

/** Histogram with lines at p50 and p99. @param {import("./latency.js").Distribution} values */
function spark(values) {
  const { counts, top } = histogram(values, BINS), most = Math.max(1, ...counts), width = BINS * 4;
  const svg = draw("svg", { class: "spark", viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  counts.forEach((number, place) => {
    if (!number) return;
    const h = Math.max(1.5, (number / most) * 40);
    svg.append(draw("rect", { class: "bin", x: place * 4, y: 42 - h, width: 3, height: h }));
  });
  svg.append(draw("rect", { class: "base", x: 0, y: 42.5, width, height: 1 }));
  for (const q of values.n >= 100 ? [0.5, 0.99] : values.n ? [0.5] : []) {
    const x = (linear(values.sorted, q) / 1e6 / top) * width;
    svg.append(draw("rect", { class: "mark", x: Math.min(width - 2, x), y: 0, width: 1.6, height: 43 }));
  }
  return svg;
}

/** Tokens over the run. @param {number[]} windows */
function course(windows) {
  const width = 176, bins = Math.min(BINS, Math.max(1, windows.length)), sums = new Array(bins).fill(0);
  windows.forEach((value, place) => { sums[Math.min(bins - 1, Math.floor((place / windows.length) * bins))] += value; });
  const most = Math.max(1, ...sums), step = width / Math.max(1, bins - 1);
  const points = sums.map((value, place) => `${(place * step).toFixed(1)},${(42 - (value / most) * 38).toFixed(1)}`).join(" ");
  return draw("svg", { class: "spark", viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("polyline", { class: "line", points, "vector-effect": "non-scaling-stroke" }), draw("rect", { class: "base", x: 0, y: 42.5, width, height: 1 }));
}
