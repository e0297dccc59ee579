// @ts-check
// The requests as lanes: phases, tokens, pauses, the stretch in which KV is read and by which side. Only lanes that
// something was heard of are made anew, so a frame costs what happened in it and not what happened so far.

import { count } from "./format.js";

/** @typedef {{what: string, start: number, end: number}} Span */
/** @typedef {{start: number, end: number, path: string}} Reading Path: prefill (the upper half), decode (the lower), split, or "" while unknown. */
/** @typedef {{key: string, name: string, request: number | null, slot: number | null, ring: string, start: number, end: number,
 *   phases: Span[], tokens: number[] | Float64Array, pauses: [number, number][], reading: Reading | null,
 *   state: "running" | "done" | "failed", reason: string, promptTokens: number, maxTokens: number,
 *   track: import("./requests.js").Track | null, exchange: import("./latency.js").Exchange | null,
 *   turn: import("./turns.js").Turn | null}} Lane */

export class LaneBook {
  /** @param {import("./requests.js").TrackFold} tracks @param {import("./latency.js").ExchangeFold} exchanges @param {import("./turns.js").TurnFold} turns */
  constructor(tracks, exchanges, turns) {
    this.tracks = tracks;
    this.exchanges = exchanges;
    this.turns = turns;
    /** In the order of sending (of arrival, where no client logged). @type {Lane[]} */ this.lanes = [];
    /** @type {Map<string, Lane>} */ this.byKey = new Map();
    /** @type {Set<Lane>} */ this.running = new Set();
    this.now = -Infinity;
    this.sorted = true;
  }

  /** All lanes, as they are at `now`. @param {number} now */
  at(now) {
    const { tracks, exchanges, turns } = this;
    for (const turn of turns.touched) { const exchange = exchanges.byName.get(turn.name); if (exchange) exchanges.touched.add(exchange); }
    for (const track of tracks.touched) this.#renew(track, exchanges.byName.get(track.name) ?? null, now);
    for (const exchange of exchanges.touched) {
      // Of two requests of one name the newer is shown.
      if (exchanges.byName.get(exchange.name) !== exchange) continue;
      const track = tracks.byName.get(exchange.name) ?? null;
      if (!track || !tracks.touched.has(track)) this.#renew(track, exchange, now);
    }
    turns.touched.clear();
    tracks.touched.clear();
    exchanges.touched.clear();
    if (now > this.now) { this.now = now; for (const lane of this.running) stretch(lane, now); }
    if (!this.sorted) { this.lanes.sort((a, b) => (follows(a, b) ? 1 : -1)); this.sorted = true; }
    return this.lanes;
  }

  /** @param {import("./requests.js").Track | null} track @param {import("./latency.js").Exchange | null} exchange @param {number} now */
  #renew(track, exchange, now) {
    const fresh = laneOf(track, exchange, now, exchange && !track ? this.turns.byName.get(exchange.name) : undefined);
    if (!fresh) return;
    let lane = this.byKey.get(fresh.key);
    if (!lane && track && exchange) {
      // It was known by its client's name until the server had it.
      const early = this.byKey.get(`n${exchange.name}`);
      if (early) { lane = early; this.byKey.delete(early.key); this.byKey.set(fresh.key, early); }
    }
    if (lane) {
      if (lane.start !== fresh.start || lane.name !== fresh.name) this.sorted = false;
      Object.assign(lane, fresh);
    } else {
      lane = fresh;
      const last = this.lanes.at(-1);
      if (last && follows(last, lane)) this.sorted = false;
      this.lanes.push(lane);
      this.byKey.set(lane.key, lane);
    }
    if (lane.state === "running") this.running.add(lane); else this.running.delete(lane);
  }
}

/** Whether `a` stands below `b`. @param {Lane} a @param {Lane} b */
const follows = (a, b) => a.start > b.start || (a.start === b.start && a.name > b.name);

/** @param {Lane} lane @param {number} now */
function stretch(lane, now) {
  if (now <= lane.end) return;
  lane.end = now;
  const phase = lane.phases.at(-1), pause = lane.pauses.at(-1);
  if (phase) phase.end = now;
  if (pause && lane.track?.pauses.at(-1)?.[1] === null) pause[1] = now;
  if (lane.reading && lane.turn && lane.turn.stages.at(-1)?.stage === "reading") lane.reading.end = now;
}

/** @param {import("./requests.js").Track | null} track @param {import("./latency.js").Exchange | null} exchange @param {number} now @param {import("./turns.js").Turn} [turn] @returns {Lane | null} */
function laneOf(track, exchange, now, turn) {
  const start = exchange ? exchange.sent : track?.steps.get(1)?.first;
  if (start === undefined) return null;
  const ended = exchange ? exchange.ended : track ? track.ended : null;
  const end = Math.max(start, ended ?? now);
  const tokens = track && track.published.length ? track.published : received(exchange);
  const marks = [start, track?.steps.get(1)?.first ?? turn?.last.get("queued"),
    track?.steps.get(6)?.first ?? track?.steps.get(7)?.first ?? turn?.last.get("prefilling") ?? turn?.last.get("ready"), tokens[0],
    ended !== null ? tokens.at(-1) : undefined];
  const phases = phasesOf(marks, end);
  const decode = phases.find((phase) => phase.what === "decode");
  return {
    key: track ? `r${track.request}` : `n${exchange?.name}`,
    name: exchange?.name || track?.name || "",
    request: track ? track.request : null,
    slot: track ? track.slot : null,
    ring: track ? track.ring : "",
    start, end, phases, tokens, pauses: decode && track ? pausesOf(track, decode) : [],
    reading: turn ? readingOf(turn, end) : null,
    state: ended === null ? "running" : exchange?.error ? "failed" : "done",
    reason: exchange ? exchange.error || exchange.reason : track ? track.reason : "",
    promptTokens: exchange?.promptTokens || track?.promptTokens || 0,
    maxTokens: exchange?.maxTokens || track?.maxTokens || 0,
    track, exchange, turn: turn ?? null,
  };
}

/** @param {import("./latency.js").Exchange | null} exchange @returns {number[] | Float64Array} */
function received(exchange) {
  if (!exchange) return [];
  const { times, counts } = exchange;
  return counts ? [...times].flatMap((t, place) => new Array(counts[place]).fill(t)) : times;
}

const PHASES = ["sending", "queued", "prefill", "decode", "delivery"];

/** Spans between the known marks, made to rise and to stay before `end`. @param {(number | undefined)[]} marks @param {number} end @returns {Span[]} */
function phasesOf(marks, end) {
  /** @type {{what: string, start: number}[]} */ const known = [];
  let low = 0;
  marks.forEach((mark, place) => {
    if (mark === undefined) return;
    low = Math.min(Math.max(mark, known.length ? low : mark), end);
    known.push({ what: PHASES[place], start: low });
  });
  return known.map((phase, place) => ({ ...phase, end: place + 1 < known.length ? known[place + 1].start : end }));
}

/** @param {import("./requests.js").Track} track @param {Span} decode @returns {[number, number][]} */
function pausesOf(track, decode) {
  const inside = (/** @type {number} */ t) => Math.min(Math.max(t, decode.start), decode.end);
  return track.pauses.map(([start, stop]) => {
    const low = inside(start);
    return [low, Math.max(low, inside(stop ?? decode.end))];
  });
}

/** From the last time it began to read until the next stage. @param {import("./turns.js").Turn} turn @param {number} end @returns {Reading | null} */
function readingOf(turn, end) {
  const place = turn.stages.findLastIndex((one) => one.stage === "reading");
  if (place < 0 || turn.path === "none") return null;
  return { start: turn.stages[place].t, end: Math.min(end, turn.stages[place + 1]?.t ?? end), path: turn.path };
}

/** The lane's name, as the log has it: what the client calls the request, else the server's number. @param {{request: number | null, name: string}} lane */
export function label(lane) { return lane.name || `request ${lane.request}`; }

/** How far a request is, in a few words. @param {Lane} lane */
export function standing(lane) {
  if (lane.state === "failed") return lane.reason.slice(0, 18) || "failed";
  if (lane.state === "done") return `${count(lane.tokens.length)} tokens`;
  if (lane.tokens.length) return lane.maxTokens ? `${count(lane.tokens.length)} of ≤ ${count(lane.maxTokens)}` : `${count(lane.tokens.length)} tokens`;
  if (lane.turn?.stages.at(-1)?.stage === "reading" && lane.reading) return readingWords(lane.reading);
  return lane.phases.at(-1)?.what ?? "";
}

/** Where a request was at a moment, in a few words. @param {Lane} lane @param {number} t */
export function whereabouts(lane, t) {
  if (lane.pauses.some(([start, end]) => start <= t && t < end)) return "paused for a prefill";
  if (lane.reading && lane.reading.start <= t && t < lane.reading.end) return readingWords(lane.reading);
  return lane.phases.find((one) => one.start <= t && t < one.end)?.what ?? (t < lane.start ? "not sent yet" : lane.state);
}

/** @param {Reading} reading */
export function readingWords({ path }) {
  return path === "prefill" ? "reading, PE path" : path === "decode" ? "reading, DE path" : path === "split" ? "reading, both paths" : "reading";
}

/** The request that `text` names best: by its number (as the log has it: 3 or request 3), its whole name, the beginning of one, a part of one. @param {Lane[]} lanes @param {string} text @returns {Lane | null} */
export function laneNamed(lanes, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const number = /^(?:r|request )?0*(\d+)$/.exec(wanted)?.[1];
  return (number && lanes.find((lane) => String(lane.request) === number)) || lanes.find((lane) => lane.name.toLowerCase() === wanted)
    || lanes.find((lane) => lane.name.toLowerCase().startsWith(wanted)) || lanes.find((lane) => lane.name.toLowerCase().includes(wanted)) || null;
}
