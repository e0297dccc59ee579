// @ts-check
// What there is to tell of one request, as plain data: where its time went, its gaps, its text token by token, the path
// its KV took and why, its hops. From its lane, and from its own events where the server has sent them. Pure.

const GAPS = 5;

/** @typedef {{stage: string, ms: number, percent: number}} Share */
/** @typedef {{hop: string, transfers: number, blocks: number, bytes: number, first: number, last: number, ends: string[]}} HopTold */
/** @typedef {{name: string, request: number | null, slot: number | null, ring: string, state: string, reason: string, sent_ms: number, took_ms: number,
 *   prompt_tokens: number, max_tokens: number, tokens: number, ttft_ms: number | null, shares: Share[], paused_ms: number, pauses: number,
 *   gaps: {token: number, at_ms: number, ms: number}[], text: {first: number, text: string, ms: number | null}[],
 *   placed: string, path: string, why: string, hit_tokens: number, blocks: string, hops: HopTold[], notes: string[]}} Tale */

/** @param {import("./requests.js").Lane} lane @param {import("./order.js").Event[]} [events] Of this request alone; all it has. @returns {Tale} */
export function taleOf(lane, events = []) {
  const { tokens, turn } = lane, first = tokens.length ? tokens[0] : null;
  return {
    name: lane.name, request: lane.request, slot: lane.slot, ring: lane.ring, state: lane.state, reason: lane.reason,
    sent_ms: lane.start / 1e6, took_ms: (lane.end - lane.start) / 1e6,
    prompt_tokens: turn?.promptTokens || lane.promptTokens, max_tokens: lane.maxTokens, tokens: tokens.length,
    ttft_ms: first === null ? null : (first - lane.start) / 1e6,
    shares: sharesOf(lane), paused_ms: lane.pauses.reduce((sum, [start, end]) => sum + end - start, 0) / 1e6, pauses: lane.pauses.length,
    gaps: longest(tokens), text: textOf(lane, events),
    placed: turn?.placed ?? "", ...pathOf(turn?.path ?? "", events), hit_tokens: turn?.hitTokens ?? 0,
    hops: hopsOf(events), notes: notesOf(events),
  };
}

/** Where its time went: an agent's turn by the stages that the servers named, else by phases. @param {import("./requests.js").Lane} lane @returns {Share[]} */
export function sharesOf(lane) {
  /** @type {Map<string, number>} */ const spent = new Map();
  const add = (/** @type {string} */ what, /** @type {number} */ ns) => spent.set(what, (spent.get(what) ?? 0) + ns);
  const stages = (lane.turn?.stages ?? []).filter(({ t }) => t >= lane.start && t <= lane.end);
  if (stages.length) {
    add("sending", stages[0].t - lane.start);
    stages.forEach(({ stage, t }, place) => add(stage, (stages[place + 1]?.t ?? lane.end) - t));
  } else {
    for (const { what, start, end } of lane.phases) add(what, end - start);
    const paused = lane.pauses.reduce((sum, [start, end]) => sum + end - start, 0);
    if (paused) { add("decode", -paused); add("paused", paused); }
  }
  const whole = lane.end - lane.start;
  return [...spent].filter(([, ns]) => ns > 0).map(([stage, ns]) => ({ stage, ms: ns / 1e6, percent: whole > 0 ? (100 * ns) / whole : 0 }));
}

/** The longest gaps between its tokens, longest first. @param {ArrayLike<number>} tokens */
export function longest(tokens) {
  const gaps = [];
  for (let place = 1; place < tokens.length; place++) gaps.push({ token: place + 1, at_ms: tokens[place - 1] / 1e6, ms: (tokens[place] - tokens[place - 1]) / 1e6 });
  return gaps.filter(({ ms }) => ms > 0).sort((a, b) => b.ms - a.ms || a.token - b.token).slice(0, GAPS);
}

/** Its text with the moment of each piece. @param {import("./requests.js").Lane} lane @param {import("./order.js").Event[]} events */
function textOf(lane, events) {
  const told = events.filter((event) => event.type === "tokens.detokenised" && event.text);
  /** @type {[number, string][]} */ const pieces = told.length ? told.map((event) => [event.first, event.text]) : lane.track?.text ?? [];
  return pieces.map(([first, text]) => ({ first, text, ms: first < lane.tokens.length ? (lane.tokens[first] - lane.start) / 1e6 : null }));
}

/** Which side read its KV, what was compared, and how many blocks each read. @param {string} path @param {import("./order.js").Event[]} events */
function pathOf(path, events) {
  const chosen = events.filter((event) => event.type === "path.chosen").at(-1);
  if (!chosen) return { path, why: "", blocks: "" };
  const { prefill_queue: pe, decode_queue: de, prefill_blocks: onPe, decode_blocks: onDe } = chosen;
  const why = chosen.path === "none" ? "nothing of its prompt was stored" : `the read queues were ${pe} tokens on the prefill side and ${de} on the decode side`;
  return { path: chosen.path, why, blocks: onPe || onDe ? `${onPe} blocks by the prefill node, ${onDe} by the decode node` : "" };
}

/** Its transfers by hop, in the order in which they began. @param {import("./order.js").Event[]} events @returns {HopTold[]} */
function hopsOf(events) {
  /** @type {Map<string, HopTold>} */ const hops = new Map();
  for (const event of events) {
    if (event.type !== "transfer.finished") continue;
    let hop = hops.get(event.hop);
    if (!hop) hops.set(event.hop, (hop = { hop: event.hop, transfers: 0, blocks: 0, bytes: 0, first: Infinity, last: 0, ends: [] }));
    hop.transfers++;
    hop.blocks += event.blocks;
    hop.bytes += event.bytes;
    hop.first = Math.min(hop.first, event.began);
    hop.last = Math.max(hop.last, event.t);
    const ends = `${event.source} → ${event.target}`;
    if (!hop.ends.includes(ends)) hop.ends.push(ends);
  }
  return [...hops.values()].sort((a, b) => a.first - b.first || (a.hop < b.hop ? -1 : 1));
}

/** What befell it. @param {import("./order.js").Event[]} events */
function notesOf(events) {
  return events.flatMap((event) => {
    if (event.type === "request.refused") return [`refused: ${event.reason}`];
    if (event.type === "request.abandoned") return ["its client went away"];
    if (event.type === "turn.replaced") return [`${event.reason}${event.again ? ", so it was placed again" : ", and it failed"}`];
    if (event.type === "prefix.reused" && event.cached_tokens) return [`${event.cached_tokens} of ${event.prompt_tokens} prompt tokens were cached`];
    if (event.type === "turn.stage" && event.detail) return [`${event.stage}: ${event.detail}`];
    return [];
  });
}
