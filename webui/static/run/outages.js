// @ts-check
// When a scheduler gave no sign of life, and what the bench did to the run on purpose: the stretches and the moments
// that the timeline marks. An outage begins with the last sign of life, which the front end only knows afterwards.

/** @typedef {{node: string, ring: string, life: number, start: number, end: number | null, words: string}} Outage `ring` is the
 * GPU's node whose scheduler it is, empty where the front end does not name it. */

const TAKES = new Set(["watchdog.fired", "watchdog.gave_up", "watchdog.calmed", "fault.injected"]);

export class OutageFold {
  constructor() {
    this.takes = TAKES;
    /** In the order in which they were noticed. @type {Outage[]} */ this.outages = [];
    /** Faults that the experiment asked for. @type {{t: number, words: string}[]} */ this.faults = [];
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    switch (event.type) {
      case "watchdog.fired": this.#open(event, event.t - event.silent); break;
      case "watchdog.gave_up": this.#open(event, event.t).words = "scheduler given up"; break;
      case "watchdog.calmed": this.#close(event); break;
      case "fault.injected": this.faults.push({ t: event.t, words: `${event.kind}: ${event.what}` }); break;
    }
  }

  /** The outage of this ring that goes on, as this front end sees it, or a new one. @param {import("./order.js").Event} event @param {number} start */
  #open(event, start) {
    const ring = event.ring ?? "";
    let outage = this.outages.findLast((one) => one.node === event.node && one.ring === ring && one.end === null);
    if (!outage) this.outages.push((outage = { node: event.node, ring, life: event.life, start, end: null, words: "no scheduler" }));
    return outage;
  }

  /** @param {import("./order.js").Event} event */
  #close(event) {
    const outage = this.#open(event, event.t - event.outage);
    outage.start = Math.min(outage.start, event.t - event.outage);
    outage.end = event.t;
  }
}
