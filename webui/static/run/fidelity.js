// @ts-check
// The fidelity verdict so far: the same fold as testbed.metrics.fidelity, with the same table of thresholds (the page
// brings it along). The verdict that counts is the one in summary.json, made by the Python fold.

const MS = 1e6;
const SHORTEST_READING = 50 * MS;
/** As testbed.metrics.fidelity.GRAIN_PACKETS. */
const GRAIN_PACKETS = 2;
const UNTIMED_ROLES = new Set(["host"]);
const BUSY_HOST = new Set(["lateness p99", "run-queue wait", "other processes", "stopped", "send lag p99"]);
const REAL_NETWORK = new Set(["port", "uplink", "rnic"]);
const FEWEST_WAKES = 100;
const FEW = "nodes with few wakes";

/** @typedef {{name: string, unit: string, faithful: number, invalid: number, needed: boolean}} Limit */
/** @typedef {{name: string, unit: string, measured: number | null, limit: number, invalid: number, held: boolean | null, where: string}} Threshold */

export class FidelityFold {
  /** @param {Limit[]} limits */
  constructor(limits) {
    this.limits = limits;
    this.clock = "";
    this.dilation = 1;
    /** @type {Map<string, string>} */ this.nodes = new Map();
    /** @type {Map<string, number[][]>} */ this.late = new Map();
    /** @type {Map<string, number>} */ this.excess = new Map();
    /** @type {Record<string, Map<string, number>>} */
    this.counts = { drops: new Map(), packets: new Map(), resent: new Map(), sent: new Map(), received: new Map(), icrc: new Map(),
      sequence: new Map(), waited: new Map(), watched: new Map(), looks: new Map(), halted: new Map(), missed: new Map(), seq: new Map(), gaps: new Map() };
    /** @type {Map<string, number>} */ this.drift = new Map();
    /** @type {string[]} */ this.changes = [];
    this.partReal = false;
    this.partKilled = false;
    this.waitsUnknown = false;
    this.hostWorks = false;
    this.cpu = { busy: 0, ours: 0, had: 0 };
    /** @type {string[]} */ this.displaced = [];
    /** @type {number[]} */ this.lags = [];
    /** @type {string[]} */ this.planned = [];
    /** @type {Set<string>} */ this.stopped = new Set();
    this.over = false;
    this.version = 0;
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    const { seq, gaps } = this.counts;
    const missing = event.seq - (seq.get(event.node) ?? 0);
    if (missing) add(gaps, event.node, Math.abs(missing));
    seq.set(event.node, event.seq + 1);
    switch (event.type) {
      case "run.started": this.clock = event.clock; this.dilation = event.dilation; this.planned = event.nodes ?? []; this.displaced = event.displaced ?? []; break;
      case "node.stopped": this.stopped.add(event.node); break;
      case "run.finished": this.over = true; break;
      case "node.ready": this.nodes.set(event.node, event.role); break;
      case "request.sent": this.lags.push(event.lag); break;
      case "rnic.measured": this.#nic(event); break;
      case "processor.calibrated": this.hostWorks = true; break;
      case "host.changed": this.changes.push(`${event.what}: ${event.detail}`); break;
      case "fault.injected": this.partKilled = true; break;
      case "hardware.engaged": this.partReal ||= REAL_NETWORK.has(event.seam); break;
      default: if (event.t >= 0) this.#reading(event); return;
    }
    this.version++;
  }

  /** What the numbers of all events say, those that the pack leaves out included. @param {import("./pack.js").Pack} pack */
  load(pack) {
    this.counts.gaps.clear();
    for (const [node, [next, gaps]] of Object.entries(pack.head.seqs)) {
      this.counts.seq.set(node, next);
      if (gaps) this.counts.gaps.set(node, gaps);
    }
    this.version++;
  }

  /** @param {import("./order.js").Event} event */
  #reading(event) {
    const { drops, packets, waited, watched, looks, halted, missed } = this.counts;
    if (event.type === "clock.measured") {
      const list = this.late.get(event.node) ?? [];
      if (event.wakes > 0) list.push([event.wakes, event.p50, event.p99, event.worst]);
      this.late.set(event.node, list);
    } else if (event.type === "link.measured") {
      const place = event.lane < 0 ? event.port : `${event.port} VL${event.lane}`;
      add(drops, place, event.drops);
      add(packets, place, event.packets);
      if (event.interval >= SHORTEST_READING && event.setting_bits_per_s > 0) {
        const share = 1 - Math.min(1, GRAIN_PACKETS / Math.max(1, event.packets));
        const over = (100 * share * event.rate_bits_per_s) / event.setting_bits_per_s - 100;
        this.excess.set(place, Math.max(0, over, this.excess.get(place) ?? 0));
      }
    } else if (event.type === "cpu.measured") {
      this.cpu.busy += ((event.busy_percent / 100) * (event.cores ?? 0) * (event.interval ?? 0));
      this.cpu.had += (event.cores ?? 0) * (event.interval ?? 0);
    } else if (event.type === "neighbour.measured") {
      this.cpu.ours += event.cpu;
    } else if (event.type === "wait.measured") {
      this.cpu.ours += event.ran;
      if (event.waited < 0) this.waitsUnknown = true;
      else {
        add(waited, event.process, event.waited);
        add(watched, event.process, event.interval);
      }
      add(looks, event.process, event.looks);
      add(halted, event.process, event.stopped);
    } else if (event.type === "capture.finished") {
      add(missed, event.port, event.lost ?? 0);
      this.drift.set(event.port, Math.abs(event.clock_drift ?? 0));
    } else return;
    this.version++;
  }

  /** Counts of before the epoch count too. @param {import("./order.js").Event} event */
  #nic(event) {
    const { sent, received, resent, icrc, sequence } = this.counts;
    add(sent, event.rnic, event.packets_sent);
    add(received, event.rnic, event.packets_received);
    add(resent, event.rnic, event.resent);
    add(icrc, event.rnic, event.icrc_errors);
    add(sequence, event.rnic, event.sequence_errors);
  }

  /** @returns {{verdict: "faithful" | "degraded" | "invalid", thresholds: Threshold[], missing: string[], simulated: boolean}} */
  result() {
    const simulated = this.clock === "simulated";
    const thresholds = this.limits.filter((limit) => !simulated || limit.name === "log gaps").map((limit) => this.#judge(limit));
    const headless = this.planned.filter((node) => !this.nodes.has(node)).map((node) => `incomplete log: nothing of ${node}`);
    const missing = [...headless, ...this.#endless(), ...(simulated ? [] : this.#missing(thresholds))];
    const far = headless.length > 0 || thresholds.some((one) => one.measured !== null && one.measured > one.invalid);
    const crossed = thresholds.some((one) => one.held === false);
    return { verdict: far ? "invalid" : crossed || missing.length ? "degraded" : "faithful", thresholds, missing, simulated };
  }

  /** @param {Limit} limit @returns {Threshold} */
  #judge(limit) {
    const [value, where] = this.#measure(limit.name);
    return { name: limit.name, unit: limit.unit, measured: value === null ? null : Math.round(value * 1000) / 1000,
      limit: limit.faithful, invalid: limit.invalid, held: value === null ? null : value <= limit.faithful, where: value ? where : "" };
  }

  /** @param {string} name @returns {[number | null, string]} */
  #measure(name) {
    const { drops, packets, resent, sent, received, icrc, sequence, waited, watched, looks, halted, missed, seq, gaps } = this.counts;
    switch (name) {
      case "lateness p99": return worst(map(byWakes(this.#timedLate()), (readings) => lateEstimate(readings) / MS / this.dilation));
      case "run-queue wait": return worst(this.#shares(waited, watched));
      case "other processes": return [this.#others(), ""];
      case "stopped": return worst(this.#shares(halted, looks));
      case "sequence errors": return worst(perMillion(sequence, received));
      case "lost frames": return this.#lostFrames();
      case "host changes": return [this.changes.length, this.changes.join("; ")];
      case "capture losses": return worst(missed);
      case "capture drift": return worst(map(this.drift, (value) => value / MS));
      case "link over its setting": return worst(this.excess);
      case "drops": return worst(perMillion(drops, packets));
      case "resent packets": return this.partKilled ? [null, ""] : worst(perMillion(resent, sent));
      case "ICRC errors": return worst(icrc);
      case "send lag p99": return [sendLag(this.lags), ""];
      case "log gaps": return worst(new Map([...seq.keys()].map((node) => [node, gaps.get(node) ?? 0])));
      default: return [null, ""];
    }
  }

  /** Whether the node that writes this log must keep time; a node of several processes has logs like host0-core. @param {string} log */
  #timed(log) {
    const node = [...this.nodes.keys()].find((known) => log === known || log.startsWith(`${known}-`)) ?? log;
    return !UNTIMED_ROLES.has(this.nodes.get(node) ?? "") && !this.displaced.includes(node);
  }

  /** CPU time that nobody of the run had, in percent; null where that disturbs nothing that is measured. */
  #others() {
    const { busy, ours, had } = this.cpu;
    return had && (this.hostWorks || this.displaced.length) ? Math.max(0, (100 * (busy - ours)) / had) : null;
  }

  #timedLate() {
    return new Map([...this.late].filter(([node]) => this.#timed(node)));
  }

  /** In percent, by process; on cores of the host that is what is measured. @param {Map<string, number>} part @param {Map<string, number>} whole */
  #shares(part, whole) {
    const timed = [...part].filter(([process]) => process.startsWith("nic ") || this.#timed(process.slice(5)));
    return new Map(timed.map(([process, value]) => [process, (100 * value) / Math.max(1, whole.get(process) ?? 0)]));
  }

  /** Frames that one NIC sent and none received, once every NIC has counted for the last time. @returns {[number | null, string]} */
  #lostFrames() {
    const { sent, received } = this.counts;
    if (!sent.size || this.partReal || this.partKilled || [...sent.keys()].some((rnic) => !this.stopped.has(`${rnic}-nic`))) return [null, ""];
    const total = (/** @type {Map<string, number>} */ counts) => [...counts.values()].reduce((a, b) => a + b, 0);
    return [Math.abs(total(sent) - total(received)), "all NICs"];
  }

  /** Nodes whose log has no end; none is missed while the run goes on. */
  #endless() {
    if (!this.over) return [];
    const nics = this.planned.map((node) => `${node}-nic`).filter((nic) => this.counts.seq.has(nic));
    const silent = [...this.planned.filter((node) => this.nodes.has(node)), ...nics].filter((node) => !this.stopped.has(node));
    return silent.map((node) => `incomplete log: no node.stopped of ${node}`);
  }

  /** @param {Threshold[]} thresholds */
  #missing(thresholds) {
    const timed = [...this.nodes.keys()].filter((node) => this.#timed(node)).sort();
    const silent = timed.filter((node) => !this.late.has(node));
    const reasons = silent.length ? [`no lateness reading of ${silent.join(", ")}`] : [];
    for (const one of thresholds) {
      const needed = this.limits.find((limit) => limit.name === one.name)?.needed;
      if (one.measured !== null || !needed || silent.length) continue;
      if (one.name === "run-queue wait" && this.waitsUnknown) continue;
      reasons.push(`no reading of ${one.name}`);
    }
    return reasons;
  }
}

/** Whether a busy host is what crosses this threshold. @param {string} name */
export const isBusyHost = (name) => BUSY_HOST.has(name);

/** Readings by node; those of nodes with too few wakes for a p99 of their own together. @param {Map<string, number[][]>} late */
function byWakes(late) {
  const own = new Map([...late].filter(([, readings]) => wakesOf(readings) >= FEWEST_WAKES));
  const rest = [...late].filter(([node]) => !own.has(node)).flatMap(([, readings]) => readings);
  if (wakesOf(rest) >= FEWEST_WAKES || (rest.length && !own.size)) own.set(FEW, rest);
  return own;
}

/** @param {number[][]} readings */
const wakesOf = (readings) => readings.reduce((sum, [wakes]) => sum + wakes, 0);

/** The 99th percentile over readings (wakes, p50, p99, worst), as testbed.metrics.fidelity estimates it. @param {number[][]} readings */
export function lateEstimate(readings) {
  /** @type {number[][]} */ const parts = [];
  for (const [wakes, p50, p99, most] of readings) {
    const low = Math.max(p50, 1), high = Math.max(p99, 1);
    const top = normalScore(Math.min(0.99, 1 - 0.5 / Math.max(wakes, 2)));
    parts.push([p50, 50 * wakes]);
    for (const score of UPPER_SCORES) parts.push([Math.min(low * (high / low) ** (score / top), most), wakes]);
  }
  parts.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const needed = 99 * wakesOf(readings);
  let reached = 0;
  for (const [value, weight] of parts) { reached += weight; if (reached >= needed) return Math.round(value); }
  return 0;
}

/** Standard normal distribution function by its series about 0, exact to the last digits for |x| < 4. @param {number} x */
function normal(x) {
  let term = x, sum = x;
  for (let n = 3; Math.abs(term) > 1e-17; n += 2) { term *= (x * x) / n; sum += term; }
  return 0.5 + (sum * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
}

/** The score below which a share `p` (0.5 to 0.995) of a normal law lies, by Newton's method. @param {number} p */
function normalScore(p) {
  let x = 0;
  for (let round = 0; round < 50; round++) {
    const step = ((normal(x) - p) * Math.sqrt(2 * Math.PI)) / Math.exp((-x * x) / 2);
    x -= step;
    if (Math.abs(step) < 1e-15) break;
  }
  return x;
}

const UPPER_SCORES = Array.from({ length: 50 }, (_, step) => normalScore(0.505 + step / 100));

/** @param {number[]} lags */
function sendLag(lags) {
  if (!lags.length) return null;
  const sorted = Float64Array.from(lags).sort();
  return sorted[Math.ceil((99 * sorted.length) / 100) - 1] / MS;
}

/** @param {Map<string, number>} counts @param {string} key @param {number} value */
function add(counts, key, value) { counts.set(key, (counts.get(key) ?? 0) + value); }

/** @template V @param {Map<string, V>} values @param {(value: V) => number} change @returns {Map<string, number>} */
function map(values, change) { return new Map([...values].map(([key, value]) => [key, change(value)])); }

/** @param {Map<string, number>} counts @param {Map<string, number>} of */
function perMillion(counts, of) {
  return new Map([...counts].map(([key, count]) => [key, of.get(key) ? (1e6 * count) / /** @type {number} */ (of.get(key)) : 0]));
}

/** @param {Map<string, number>} values @returns {[number | null, string]} */
function worst(values) {
  /** @type {[number | null, string]} */ let answer = [null, ""];
  for (const key of [...values.keys()].sort()) {
    const value = /** @type {number} */ (values.get(key));
    if (answer[0] === null || value > answer[0]) answer = [value, key];
  }
  return answer;
}
