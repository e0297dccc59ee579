// @ts-check
// The fidelity verdict so far: the same fold as testbed.metrics.fidelity, with the same table of thresholds (the page
// brings it along). The verdict that counts is the one in summary.json, made by the Python fold.

const MS = 1e6;
const SHORTEST_READING = 50 * MS;
const UNTIMED_ROLES = new Set(["host"]);
const BUSY_HOST = new Set(["lateness p99", "CPU pressure", "send lag p99"]);
const WEIGHTS = [50, 49, 1];

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
    this.counts = { drops: new Map(), packets: new Map(), resent: new Map(), sent: new Map(), icrc: new Map(), seq: new Map(), gaps: new Map() };
    /** @type {number[]} */ this.pressure = [];
    this.pressureMissing = false;
    /** @type {number[]} */ this.lags = [];
    this.version = 0;
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    const { seq, gaps } = this.counts;
    const missing = event.seq - (seq.get(event.node) ?? 0);
    if (missing) add(gaps, event.node, Math.abs(missing));
    seq.set(event.node, event.seq + 1);
    switch (event.type) {
      case "run.started": this.clock = event.clock; this.dilation = event.dilation; break;
      case "node.ready": this.nodes.set(event.node, event.role); break;
      case "request.sent": this.lags.push(event.lag); break;
      default: if (event.t >= 0) this.#reading(event); return;
    }
    this.version++;
  }

  /** @param {import("./order.js").Event} event */
  #reading(event) {
    const { drops, packets, resent, sent, icrc } = this.counts;
    if (event.type === "clock.measured" && event.wakes > 0) {
      const list = this.late.get(event.node) ?? [];
      list.push([event.wakes, event.p50, event.p99, event.worst]);
      this.late.set(event.node, list);
    } else if (event.type === "link.measured") {
      add(drops, event.port, event.drops);
      add(packets, event.port, event.packets);
      if (event.interval >= SHORTEST_READING && event.setting_bits_per_s > 0) {
        const over = (100 * event.rate_bits_per_s) / event.setting_bits_per_s - 100;
        this.excess.set(event.port, Math.max(over, this.excess.get(event.port) ?? over));
      }
    } else if (event.type === "rnic.measured") {
      add(sent, event.rnic, event.packets_sent);
      add(resent, event.rnic, event.resent);
      add(icrc, event.rnic, event.icrc_errors);
    } else if (event.type === "cpu.measured") {
      if (event.some_percent < 0) this.pressureMissing = true; else this.pressure.push(event.some_percent);
    } else return;
    this.version++;
  }

  /** @returns {{verdict: "faithful" | "degraded" | "invalid", thresholds: Threshold[], missing: string[], simulated: boolean}} */
  result() {
    const simulated = this.clock === "simulated";
    const thresholds = this.limits.filter((limit) => !simulated || limit.name === "log gaps").map((limit) => this.#judge(limit));
    const missing = simulated ? [] : this.#missing(thresholds);
    const far = thresholds.some((one) => one.measured !== null && one.measured > one.invalid);
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
    const { drops, packets, resent, sent, icrc, seq, gaps } = this.counts;
    switch (name) {
      case "lateness p99": return worst(map(this.late, (readings) => lateBound(readings) / MS / this.dilation));
      case "link over its setting": return worst(this.excess);
      case "drops": return worst(perMillion(drops, packets));
      case "resent packets": return worst(perMillion(resent, sent));
      case "ICRC errors": return worst(icrc);
      case "CPU pressure": return [this.pressure.length ? this.pressure.reduce((a, b) => a + b, 0) / this.pressure.length : null, ""];
      case "send lag p99": return [sendLag(this.lags), ""];
      case "log gaps": return worst(new Map([...seq.keys()].map((node) => [node, gaps.get(node) ?? 0])));
      default: return [null, ""];
    }
  }

  /** @param {Threshold[]} thresholds */
  #missing(thresholds) {
    const timed = [...this.nodes].filter(([, role]) => !UNTIMED_ROLES.has(role)).map(([node]) => node).sort();
    const silent = timed.filter((node) => !this.late.has(node));
    const reasons = silent.length ? [`no lateness reading of ${silent.join(", ")}`] : [];
    for (const one of thresholds) {
      const needed = this.limits.find((limit) => limit.name === one.name)?.needed;
      if (one.measured !== null || !needed || silent.length) continue;
      if (one.name === "CPU pressure" && this.pressureMissing) continue;
      reasons.push(`no reading of ${one.name}`);
    }
    return reasons;
  }
}

/** Whether a busy host is what crosses this threshold. @param {string} name */
export const isBusyHost = (name) => BUSY_HOST.has(name);

/** An upper bound of the 99th percentile over readings (wakes, p50, p99, worst). @param {number[][]} readings */
export function lateBound(readings) {
  const parts = readings.flatMap(([wakes, ...values]) => values.map((value, place) => [value, wakes * WEIGHTS[place]]));
  parts.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const needed = 99 * readings.reduce((sum, reading) => sum + reading[0], 0);
  let reached = 0;
  for (const [value, weight] of parts) { reached += weight; if (reached >= needed) return value; }
  return 0;
}

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
