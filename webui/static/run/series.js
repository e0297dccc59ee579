// @ts-check
// Which charts a run has, and their lines in a stretch of time. What there is follows from what was logged: no system
// is known by name here. Pure; charts.js draws.

import { stepFor } from "./course.js";

/** More lines than this in one chart are told as least, mean and most. */
const MOST_LINES = 6;
const POINTS = 260;

/** @typedef {{name: string, y: (number | null)[], style?: "line" | "dash" | "dots"}} Line */
/** @typedef {{x: number[], lines: Line[]}} Picture */
/** @typedef {{id: string, title: string, unit: string, words: string, read: (start: number, end: number) => Picture}} Chart */

/** @param {import("./model.js").Model} model @param {import("./tokencourse.js").TokenCourse} tokens @param {() => string} port The port that is looked at.
 * @returns {Chart[]} */
export function chartsOf(model, tokens, port) {
  const { courses, links } = model;
  /** @type {Chart[]} */ const charts = [];
  const add = (/** @type {string} */ id, /** @type {string} */ title, /** @type {string} */ unit, /** @type {string} */ words, /** @type {Chart["read"]} */ read) => charts.push({ id, title, unit, words, read });
  const gauges = (/** @type {string} */ id, /** @type {string} */ title, /** @type {string} */ unit, /** @type {string} */ words, /** @type {string[]} */ kinds) => {
    if (kinds.some((kind) => courses.all(kind).length)) add(id, title, unit, words, (start, end) => together(namedCourses(courses, kinds), start, end));
  };
  // What a node that reads receives over its storage NIC; a storage node receives what is written to it.
  const readers = () => namedCourses(courses, ["snic read"]).filter(([node]) => courses.kinds.get("read queue")?.has(node) ?? true);
  if (readers().length) add("snic", "Storage reads by node", "Gbit/s", "over each node's storage NIC, of finished transfers", (start, end) => together(readers(), start, end));
  gauges("queues", "Read queues", "tokens", "tokens that each node's storage reads still have to bring", ["read queue"]);
  gauges("pending", "Waiting requests", "requests", "in the ring, not yet claimed", ["pending"]);
  gauges("batch", "Batch", "sequences", "sequences that run in each step", ["running", "paused", "decoding"]);
  if (!tokens.tokens.empty) add("tokens", "Tokens a second", "tok/s", "received by clients", (start, end) => together([["received", tokens.tokens]], start, end));
  if (tokens.ttft.bins.length) add("ttft", "Time to first token", "ms", "of first chunks as they came; p99 of 100 or more", () => spread(tokens.ttft));
  if (tokens.itl.bins.length) add("itl", "Gaps between tokens", "ms", "ITL of chunks as they came; p99 of 100 or more", () => spread(tokens.itl));
  if (links.ports.size) add("lanes", "Lane throughput", "Gbit/s", "of the port that the timeline shows", (start, end) => lanes(links.ports.get(port()) ?? links.ports.get(links.names()[0]), start, end));
  gauges("gap", "Launch gaps", "ms", "idle time of the GPU between two graphs of a running batch", ["gap"]);
  gauges("neighbours", "Neighbours' work", "units a second", "what each neighbour got done", ["neighbour"]);
  gauges("kv", "KV blocks in use", "%", "of the pool of each GPU", ["kv"]);
  gauges("memory", "Memory held", "%", "of each buffer", ["memory"]);
  gauges("writes", "Storage writes by node", "Gbit/s", "over each node's storage NIC, of finished transfers", ["snic write"]);
  gauges("cpu", "CPU of this machine", "%", "busy, and time in which some task waited for a CPU", ["cpu"]);
  gauges("late", "Lateness, p99", "ms", "how late nodes woke, wall time ÷ dilation", ["late"]);
  return charts;
}

const PREFIX = new Map([["paused", "paused "], ["prefilling", "prefill "]]);

/** @param {import("./courses.js").CourseFold} courses @param {string[]} kinds @returns {[string, import("./course.js").Course][]} */
function namedCourses(courses, kinds) {
  return kinds.flatMap((kind) => courses.all(kind).map(([where, course]) => /** @type {[string, import("./course.js").Course]} */ ([`${PREFIX.get(kind) ?? ""}${where}${courses.units.has(where) ? `, ${courses.units.get(where)}` : ""}`, course])));
}

/** Courses on one grid. @param {[string, import("./course.js").Course][]} named @param {number} start @param {number} end @returns {Picture} */
export function together(named, start, end) {
  const step = stepFor(named.map(([, course]) => course), start, end, POINTS);
  const read = named.map(([name, course]) => ({ name, ...course.read(start, end, step) }));
  const x = [...new Set(read.flatMap((one) => one.x))].sort((a, b) => a - b), place = new Map(x.map((t, at) => [t, at]));
  const lines = read.map((one) => {
    /** @type {(number | null)[]} */ const y = new Array(x.length).fill(null);
    one.x.forEach((t, at) => { y[/** @type {number} */ (place.get(t))] = one.y[at]; });
    return { name: one.name, y };
  });
  return { x, lines: lines.length > MOST_LINES ? summed(lines) : lines };
}

/** Least, mean and most of many lines. @param {{name: string, y: (number | null)[]}[]} lines @returns {Line[]} */
function summed(lines) {
  const length = lines[0]?.y.length ?? 0;
  /** @type {(f: (values: number[]) => number) => (number | null)[]} */
  const over = (f) => Array.from({ length }, (_, at) => {
    const values = lines.map((line) => line.y[at]).filter((value) => value !== null);
    return values.length ? f(/** @type {number[]} */ (values)) : null;
  });
  return [{ name: `mean of ${lines.length}`, y: over((values) => values.reduce((a, b) => a + b, 0) / values.length) },
    { name: "most", y: over((values) => Math.max(...values)), style: "dash" }, { name: "least", y: over((values) => Math.min(...values)), style: "dash" }];
}

/** @param {import("./tokencourse.js").TokenCourse["ttft"]} values @returns {Picture} */
function spread(values) {
  const { x, p50, p99, worst } = values.read();
  return { x, lines: [{ name: "p50", y: p50 }, { name: "p99", y: p99, style: "dash" }, { name: "worst", y: worst, style: "dots" }] };
}

/** The readings of a port's lanes. @param {Map<number, import("./machine.js").Series> | undefined} port @param {number} start @param {number} end @returns {Picture} */
function lanes(port, start, end) {
  if (!port) return { x: [], lines: [] };
  const virtual = [...port.keys()].filter((lane) => lane >= 0).sort((a, b) => a - b), shown = virtual.length ? virtual : [-1];
  const inside = (/** @type {number} */ t) => t >= start - 1e9 && t <= end + 1e9;
  const x = [...new Set(shown.flatMap((lane) => [.../** @type {any} */ (port.get(lane)).t].filter(inside)))].sort((a, b) => a - b);
  const place = new Map(x.map((t, at) => [t, at]));
  return { x, lines: shown.map((lane) => {
    const series = /** @type {import("./machine.js").Series} */ (port.get(lane));
    /** @type {(number | null)[]} */ const y = new Array(x.length).fill(null);
    series.t.forEach((t, at) => { const to = place.get(t); if (to !== undefined) y[to] = series.rate[at] / 1e9; });
    return { name: lane < 0 ? "whole port" : `VL${lane}`, y };
  }) };
}
