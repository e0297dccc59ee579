// @ts-check
// Puts events that arrive node by node into the one order (t, node, seq), and lets them go once no earlier one can
// come. The same law as testbed.events.ordering: an event is complete when every node has been heard at a later t.
// A node that has gone silent must not hold the page up, so one that was not heard for `patience` ms is not waited for.

/** @typedef {{t: number, node: string, seq: number, type: string, [field: string]: any}} Event */

export const PATIENCE_MS = 1000;

/** @param {Event} a @param {Event} b */
export function before(a, b) {
  if (a.t !== b.t) return a.t < b.t;
  if (a.node !== b.node) return a.node < b.node;
  return a.seq < b.seq;
}

/** One node's events on their way: in its own order, so a queue is enough. */
class Lane {
  constructor() {
    /** @type {Event[]} */ this.events = [];
    this.first = 0;
    this.latest = -Infinity;
    this.heard = -Infinity;
    this.stopped = false;
  }
  get head() { return this.first < this.events.length ? this.events[this.first] : null; }
  shift() {
    const event = this.events[this.first++];
    if (this.first > 4096 && this.first * 2 > this.events.length) {
      this.events = this.events.slice(this.first);
      this.first = 0;
    }
    return event;
  }
}

export class Reorderer {
  /** @param {number} patience */
  constructor(patience = PATIENCE_MS) {
    this.patience = patience;
    /** @type {Map<string, Lane>} */ this.lanes = new Map();
  }

  /** Takes events; those of one node in their own order. `now` is the page's clock in ms. @param {Event[]} events @param {number} now */
  add(events, now) {
    for (const event of events) {
      let lane = this.lanes.get(event.node);
      if (!lane) this.lanes.set(event.node, (lane = new Lane()));
      lane.events.push(event);
      lane.latest = event.t;
      lane.heard = now;
      if (event.type === "node.stopped") lane.stopped = true;
    }
  }

  /** Up to when everything is known. @param {number} now */
  completeUpTo(now) {
    let least = Infinity;
    for (const lane of this.lanes.values()) {
      if (!lane.stopped && now - lane.heard <= this.patience) least = Math.min(least, lane.latest);
    }
    return least;
  }

  /** The events that are complete, in order. @param {number} now @returns {Event[]} */
  release(now) { return this.#merge(this.completeUpTo(now)); }

  /** All that is left, in order: every writer has ended. @returns {Event[]} */
  finish() { return this.#merge(Infinity); }

  /** @param {number} limit */
  #merge(limit) {
    const ready = [];
    for (;;) {
      /** @type {Lane | null} */ let next = null;
      for (const lane of this.lanes.values()) {
        const head = lane.head;
        if (head && head.t < limit && (!next || before(head, /** @type {Event} */ (next.head)))) next = lane;
      }
      if (!next) return ready;
      ready.push(next.shift());
    }
  }
}
