// @ts-check
// The log as people read it: one line an event, with a level. Levels come from the schema (the page brings the table,
// webui/runs/levels.py); events that come thousands at a time are for "everything" only, whatever their level.

/** @typedef {{t: number, node: string, seq: number, level: string, type: string, text: string}} Line */

export const LEVELS = ["debug", "info", "warning", "error"];
/** How many lines are kept, the newest ones; packs bring as many (webui/runs/packing.py). */
export const KEPT = 4000;
const LONGEST = 2000;

export class Journal {
  /** @param {Record<string, string>} levels Level by event type, where it is not "info". */
  constructor(levels) {
    this.levels = levels;
    /** @type {Record<string, Line[]>} */ this.lines = { debug: [], info: [] };
    this.version = 0;
    /** Who has written. @type {Set<string>} */ this.nodes = new Set();
    /** @type {Map<string, {since: number, times: number, worst: number, line: Line | null}>} */ this.late = new Map();
    /** How many lines of each level there were in all. @type {Record<string, number>} */ this.counts = {};
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    const level = levelOf(event, this.levels);
    this.counts[level] = (this.counts[level] ?? 0) + 1;
    if (event.type === "clock.late" && this.#again(event)) return;
    this.nodes.add(event.node);
    const line = lineOf(event, this.levels);
    const late = event.type === "clock.late" && this.late.get(event.node);
    if (late && !late.line) late.line = line;
    keep(this.lines.debug, line);
    if (level !== "debug") { keep(this.lines.info, line); this.version++; }
  }

  /** An event of a pack that lies behind the newest `KEPT` lines. @param {import("./order.js").Event} event */
  old(event) {
    if (levelOf(event, this.levels) !== "debug") { this.take(event); return; }
    this.nodes.add(event.node);
    this.counts.debug = (this.counts.debug ?? 0) + 1;
  }

  /** Counts the lines that a pack leaves out: the oldest of those that only "everything" shows. @param {import("./pack.js").Pack} pack */
  skip(pack) {
    const elided = Object.values(pack.head.elided).reduce((sum, count) => sum + count, 0);
    const brought = pack.head.tables.reduce((/** @type {number} */ sum, /** @type {any} */ table) => sum + (table.logged ? table.n : 0), 0);
    this.counts.debug = (this.counts.debug ?? 0) + elided - brought;
    for (const node of Object.keys(pack.head.seqs)) this.nodes.add(node);
    this.version++;
  }

  /** Late wakes of one node within a second become one line with the worst of them: a busy host logs hundreds. @param {import("./order.js").Event} event */
  #again(event) {
    const last = this.late.get(event.node);
    if (!last || event.t - last.since > 1e9) {
      this.late.set(event.node, { since: event.t, times: 1, worst: event.lateness, line: null });
      return false;
    }
    last.times++;
    last.worst = Math.max(last.worst, event.lateness);
    if (last.line) last.line.text = `woke late ${last.times} times within a second, worst ${ms(last.worst)}, wall time`;
    this.version++;
    return true;
  }

  /** Newest first: lines of at least `level`, of one node or all. @param {string} level @param {string} node @param {number} limit */
  read(level, node, limit) {
    const least = LEVELS.indexOf(level);
    const lines = least === 0 ? this.lines.debug : this.lines.info;
    const found = [];
    for (let place = lines.length - 1; place >= Math.max(0, lines.length - KEPT) && found.length < limit; place--) {
      const line = lines[place];
      if (LEVELS.indexOf(line.level) < least) continue;
      if (node && line.node !== node) continue;
      found.push(line);
    }
    return found;
  }
}

/** The level at which an event is shown; webui.runs.levels has the same cases. @param {import("./order.js").Event} event @param {Record<string, string>} levels */
export function levelOf(event, levels) {
  if (event.type === "line.logged") return LEVELS.includes(event.severity) ? event.severity : "info";
  if (event.type === "node.stopped" && event.code !== 0) return "error";
  if (event.type === "run.finished" && event.outcome === "errored") return "error";
  if (event.type === "fidelity.judged" && event.verdict !== "faithful") return "warning";
  return levels[event.type] ?? "info";
}

/** @param {import("./order.js").Event} event @param {Record<string, string>} levels @returns {Line} */
export function lineOf(event, levels) {
  return { t: event.t, node: event.node, seq: event.seq, level: levelOf(event, levels), type: event.type, text: cut(wordsOf(event)) };
}

/** A line of megabytes is cut with a mark: it would stop the page, and the file has it whole. @param {string} text */
function cut(text) {
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST)} … (${text.length - LONGEST} characters more, in the file)`;
}

/** @param {Line[]} lines @param {Line} line */
function keep(lines, line) {
  lines.push(line);
  if (lines.length > 2 * KEPT) lines.splice(0, KEPT);
}

const ms = (/** @type {number} */ ns) => `${(ns / 1e6).toFixed(ns < 1e6 ? 3 : 1)} ms`;
/** @param {any} e */
const scheduler = (e) => `scheduler ${e.life}${e.ring ? ` of ${e.ring}` : ""}`;
const gbit = (/** @type {number} */ bits) => `${(bits / 1e9).toFixed(1)} Gbit/s`;

/** How each kind is put into words; kinds without an entry show their fields. @type {Record<string, (e: any) => string>} */
const WORDS = {
  "run.started": (e) => `${e.system}, ${e.clock} clock, time × ${e.dilation}, seed ${e.seed}, ${e.requests || "open-ended"} requests`,
  "run.finished": (e) => e.detail ? `${e.outcome}: ${e.detail}` : e.outcome,
  "stage.entered": (e) => e.detail ? `${e.stage}: ${e.detail}` : e.stage,
  "node.ready": (e) => `${e.role}, pid ${e.pid}`,
  "node.stopped": (e) => e.code === 0 ? "exit 0" : `exit ${e.code}: ${e.detail || "no last words"}`,
  "host.provisioned": (e) => `${e.model}, ${e.graphs} graphs, ${e.kv_blocks} KV blocks; the host leaves the path`,
  "line.logged": (e) => e.text,
  "request.sent": (e) => `${e.name}, ${e.prompt_tokens} tokens in, at most ${e.max_tokens} out`,
  "request.finished": (e) => `${e.name}, ${e.tokens} tokens, ${e.reason}`,
  "request.failed": (e) => `${e.name}: ${e.error}`,
  "request.refused": (e) => `${e.name || `request ${e.request}`}: ${e.reason}`,
  "request.abandoned": (e) => `request ${e.request}: its client went away`,
  "request.arrived": (e) => `${e.name} is request ${e.request}, at most ${e.max_tokens} tokens`,
  "request.served": (e) => `request ${e.request}, ${e.tokens} tokens, ${e.reason}`,
  "slot.moved": (e) => `slot ${e.slot}: ${e.before} → ${e.after}, request ${e.request}`,
  "window.relaunched": (e) => `window ${e.window} after ${e.launches} launches, gap ${ms(e.gap)}`,
  "verb.failed": (e) => `${e.verb} to ${e.peer}: ${e.status}`,
  "device.faulted": (e) => `${e.code}: ${e.detail}`,
  "fault.injected": (e) => `${e.what}: ${e.kind}`,
  "watchdog.fired": (e) => `no sign of life of ${scheduler(e)} for ${ms(e.silent)}; restart ${e.restarts}`,
  "watchdog.calmed": (e) => `${scheduler(e)} gives signs of life, ${ms(e.outage)} after the last one`,
  "watchdog.gave_up": (e) => `${scheduler(e)} does not come back after ${e.restarts} restarts: requests are refused`,
  "scheduler.restarted": (e) => `scheduler ${e.life} goes on with ${e.running} requests, prefills ${e.waiting} again, ends ${e.ended}, gives up ${e.interrupted}`,
  "neighbour.started": (e) => `${e.name}: ${e.program || e.kind}, ${e.threads} threads in ${e.containers} containers on CPU ${e.cpus.join(", ")}`,
  "neighbour.ended": (e) => `${e.name}: ${Math.round(e.done)} ${e.unit} done${e.detail ? `, ${e.detail}` : ""}`,
  "mitigation.applied": (e) => `${e.name} ${e.applied ? "in force" : "NOT in force"}: ${e.detail}`,
  "clock.late": (e) => `woke ${ms(e.lateness)} late, wall time`,
  "link.measured": (e) => `${e.port}${e.lane < 0 ? "" : ` VL${e.lane}`} ${gbit(e.rate_bits_per_s)} of ${gbit(e.setting_bits_per_s)}, ${e.drops} drops`,
  "lanes.applied": (e) => `${e.port} set to ${gbit(e.setting_bits_per_s)}, ${e.classes.length} classes read back`,
  "capture.finished": (e) => `${e.file}, ${e.packets} packets`,
  "fidelity.judged": (e) => e.reasons.length ? `${e.verdict}: ${e.reasons.join("; ")}` : e.verdict,
  "turn.stage": (e) => `${e.turn}: ${e.stage}${e.detail ? `, ${e.detail}` : ""}`,
  "turn.placed": (e) => `${e.turn} on ${e.prefill_node}.${e.prefill_engine} and ${e.decode_node}.${e.decode_engine}, ${e.hit_tokens} of ${e.prompt_tokens} tokens hit, waited ${ms(e.waited)}`,
  "turn.replaced": (e) => `${e.turn}: ${e.reason}${e.again ? ", back in the queue" : ", failed for good"}`,
  "path.chosen": (e) => `${e.turn}: ${e.path} path; read queues ${e.prefill_queue} and ${e.decode_queue} tokens`,
  "agent.started": (e) => `${e.agent}, ${e.turns} turns`,
  "agent.finished": (e) => `${e.agent} ${e.outcome} after ${e.turns} turns in ${ms(e.duration)}`,
  "node.lost": (e) => `${e.lost} does not answer any more, found by ${e.found_by}`,
  "prefix.reused": (e) => `request ${e.request}: ${e.cached_tokens} of ${e.prompt_tokens} prompt tokens were cached`,
  "host.changed": (e) => `${e.what}: ${e.detail}`,
  "hardware.engaged": (e) => `${e.place} is ${e.device}${e.facts.length ? ` (${e.facts.join(", ")})` : ""}`,
};

/** @param {import("./order.js").Event} event */
export function wordsOf(event) {
  const words = WORDS[event.type];
  try {
    if (words) return String(words(event));
  } catch { /* a field of another version: show what there is */ }
  return Object.entries(event).filter(([key]) => !["t", "node", "seq", "type"].includes(key))
    .map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}
