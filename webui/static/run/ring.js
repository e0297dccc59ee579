// @ts-check
// Every slot's state as the log tells it: the same fold as testbed.metrics.ring_state. Two nodes write a slot's moves
// and one of them may be late in the log; moves that do not join leave a gap, and late ones walk through it.
//
// The DPU's two moves (a prompt written, an answer read to its end) have events of their own. Where a log has no
// slot.moved of the DPU's, the map takes them from those, or finished slots would never empty.

/** @typedef {{state: string, incarnation: number, request: number, moved: number, left: string | null,
 *   found: string | null, lost: number}} Slot */

/** State names in the order in which a slot lives through them, as the legend shows them. */
export const STATES = ["empty", "prefill_pending", "prefill_processing", "decode_processing", "decode_paused", "decode_completed"];

export class RingFold {
  /** @param {{derive?: boolean}} [options] */
  constructor({ derive = true } = {}) {
    /** Whether moves are taken from prompt.written and request.served; off once the log has them itself. */ this.derive = derive;
    /** @type {Map<number, {slot: number, incarnation: number}>} */ this.written = new Map();
    /** @type {Map<number, Slot>} */ this.slots = new Map();
    /** @type {Map<string, number>} */ this.counts = new Map();
    /** Newest slot of each request. @type {Map<number, number>} */ this.slotOf = new Map();
    this.moves = 0;
    this.highest = -1;
    this.version = 0;
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    if (event.type === "slot.moved") {
      if (event.after === "empty" || event.after === "prefill_pending") this.derive = false;
      this.#move(event);
    } else if (this.derive) this.#derived(event);
  }

  /** @param {import("./order.js").Event} event */
  #derived(event) {
    const { request, t } = event;
    if (event.type === "prompt.written") {
      this.written.set(request, { slot: event.slot, incarnation: event.incarnation });
      this.#move({ t, request, slot: event.slot, incarnation: event.incarnation, before: "empty", after: "prefill_pending" });
    } else if (event.type === "request.served" || event.type === "request.abandoned") {
      const place = this.written.get(request);
      const slot = place && this.slots.get(place.slot);
      this.written.delete(request);
      if (slot && slot.incarnation === place.incarnation) this.#move({ t, request, ...place, before: slot.state, after: "empty" });
    }
  }

  /** @param {{t: number, request: number, slot: number, incarnation: number, before: string, after: string}} event */
  #move(event) {
    this.moves++;
    this.version++;
    this.highest = Math.max(this.highest, event.slot);
    this.slotOf.set(event.request, event.slot);
    const slot = this.slots.get(event.slot);
    if (!slot) {
      this.slots.set(event.slot, { state: event.after, incarnation: event.incarnation, request: event.request,
        moved: event.t, left: null, found: event.before, lost: 0 });
      this.#count(event.after, 1);
    } else if (!closes(slot, event)) {
      this.#count(slot.state, -1);
      moveOn(slot, event);
      this.#count(slot.state, 1);
    }
  }

  /** Slots whose moves do not join up. */
  gaps() {
    return [...this.slots].filter(([, slot]) => slot.lost || slot.left !== null).map(([number]) => number).sort((a, b) => a - b);
  }

  /** @param {string} state @param {number} by */
  #count(state, by) { this.counts.set(state, (this.counts.get(state) ?? 0) + by); }
}

/** True for a late move that belongs into the slot's open gap. @param {Slot} slot @param {any} move */
function closes(slot, move) {
  if (slot.found === null) return false;
  if (slot.left === null) {
    if (move.after !== slot.found || move.before === slot.state) return false;
    slot.found = null;
    return true;
  }
  if (move.before !== slot.left || (move.before === slot.state && move.after !== slot.found)) return false;
  slot.left = move.after;
  if (slot.left === slot.found) slot.left = slot.found = null;
  return true;
}

/** @param {Slot} slot @param {any} move */
function moveOn(slot, move) {
  if (move.before !== slot.state) {
    if (slot.left !== null) slot.lost++;
    slot.left = slot.state;
    slot.found = move.before;
  }
  slot.state = move.after;
  slot.incarnation = move.incarnation;
  slot.request = move.request;
  slot.moved = move.t;
}
