// @ts-check
// When the worst reading of each threshold of fidelity was taken, and where, so that a reason can be jumped to. Also the
// stages of the bench and the nodes that have ended, for a page that tells what a run is doing.

/** @typedef {{t: number, score: number}} Moment */

export class MomentFold {
  constructor() {
    /** By threshold, then by place. @type {Map<string, Map<string, Moment>>} */ this.worst = new Map();
    /** @type {{t: number, stage: string, detail: string}[]} */ this.stages = [];
    /** What the bench last said while it cleaned up: what it removes, counted. */ this.cleaning = "";
    /** Nodes of the plan, and those that have ended. */ this.planned = 0;
    /** @type {Map<string, number>} */ this.stopped = new Map();
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    const { t, node } = event;
    switch (event.type) {
      case "run.started": this.planned = event.nodes?.length ?? 0; break;
      case "stage.entered": if (node === "bench") this.stages.push({ t, stage: event.stage, detail: event.detail ?? "" }); break;
      case "line.logged": if (node === "bench" && (event.severity ?? "info") === "info" && this.stages.at(-1)?.stage === "finalising") this.cleaning = event.text; break;
      case "node.stopped": this.stopped.set(node, event.code); break;
      case "clock.measured": this.#note("lateness p99", node, t, event.p99); break;
      case "wait.measured":
        if (event.interval > 0) this.#note("run-queue wait", event.process, t, event.waited / event.interval);
        if (event.stopped) this.#note("stopped", event.process, t, event.stopped);
        break;
      case "cpu.measured": this.#note("other processes", "", t, event.busy_percent); break;
      case "link.measured": this.#link(event); break;
      case "rnic.measured":
        this.#note("resent packets", event.rnic, t, event.resent);
        this.#note("ICRC errors", event.rnic, t, event.icrc_errors);
        this.#note("sequence errors", event.rnic, t, event.sequence_errors);
        break;
      case "request.sent": this.#note("send lag p99", "", t, event.lag); break;
      case "host.changed": this.#note("host changes", "", t, 1); break;
      case "capture.finished": this.#note("capture losses", event.port, t, event.lost ?? 0); break;
    }
  }

  /** @param {import("./order.js").Event} event */
  #link(event) {
    const place = event.lane < 0 ? event.port : `${event.port} VL${event.lane}`;
    this.#note("drops", place, event.t, event.drops);
    if (event.setting_bits_per_s) this.#note("link over its setting", place, event.t, event.rate_bits_per_s / event.setting_bits_per_s);
  }

  /** @param {string} name @param {string} where @param {number} t @param {number} score */
  #note(name, where, t, score) {
    if (t < 0 || !(score > 0)) return;
    let places = this.worst.get(name);
    if (!places) this.worst.set(name, (places = new Map()));
    const known = places.get(where);
    if (!known || score > known.score) places.set(where, { t, score });
  }

  /** The moment of the worst reading at a place; where none was taken there, of the worst anywhere. @param {string} name @param {string} where @returns {number | null} */
  of(name, where) {
    const places = this.worst.get(name);
    if (!places) return null;
    const here = places.get(where);
    if (here) return here.t;
    return [...places.values()].reduce((/** @type {Moment | null} */ worst, one) => (!worst || one.score > worst.score ? one : worst), null)?.t ?? null;
  }
}

/** The request that a broken expectation on latency is about: the worst of this trial. @param {string} metric As `systems.blink.ttft_ms.p99`.
 * @param {import("./latency.js").Exchange[]} exchanges @returns {{start: number, end: number} | null} */
export function worstOf(metric, exchanges) {
  /** @type {{start: number, end: number} | null} */ let found = null;
  const keep = (/** @type {number} */ start, /** @type {number} */ end) => { if (!found || end - start > found.end - found.start) found = { start, end }; };
  const failed = metric.includes("requests.failed");
  for (const exchange of exchanges) {
    const { times, sent } = exchange;
    if (failed) { if (exchange.error && !found) keep(sent, exchange.ended ?? sent); continue; }
    if (exchange.error || exchange.ended === null || !times.length) continue;
    if (metric.includes("ttft_ms")) keep(sent, times[0]);
    else if (metric.includes("itl_ms")) for (let place = 1; place < times.length; place++) keep(times[place - 1], times[place]);
    else if (metric.includes("tpot_ms") && times.length > 1) keep(times[0], times[times.length - 1]);
  }
  return found;
}
