// @ts-check
// Every slot's state as the log tells it: the same fold as testbed.metrics.ring_state. The DPU fills a slot
// (prompt.written) and frees it (request.served, request.abandoned), the GPU does the rest (slot.moved). A move may
// stand late in the log; moves that do not join leave a gap, and late ones walk through it until it is closed.

import { SlotHistory } from "./slothistory.js";

/** @typedef {{state: string, incarnation: number, request: number, moved: number, left: string | null,
 *   found: string | null, lost: number}} Slot */

/** State names in the order in which a slot lives through them, as the legend shows them. */
export const STATES = ["empty", "prefill_pending", "prefill_processing", "decode_processing", "decode_paused", "decode_completed"];
const [EMPTY, FILLED] = STATES;

const TAKES = new Set(["slot.moved", "prompt.written", "request.served", "request.abandoned"]);

export class RingFold {
  constructor() {
    this.takes = TAKES;
    /** @type {Map<number, Slot>} */ this.slots = new Map();
    /** Slot by request, of those that hold one. @type {Map<number, number>} */ this.places = new Map();
    /** Newest slot of each request, also when it has left it. @type {Map<number, number>} */ this.slotOf = new Map();
    /** @type {Map<string, number>} */ this.counts = new Map();
    this.moves = 0;
    this.highest = -1;
    /** Every change of a slot's state, so that the map can show another moment. */ this.history = new SlotHistory();
    /** When most slots were taken, and how many. */ this.fullest = { t: 0, taken: 0 };
  }

  /** The slots at a moment; what was put in order late stands where it was logged. @param {number} t @returns {Map<number, {state: string, incarnation: number, request: number, moved: number}>} */
  at(t) { return this.history.at(t); }

  /** @param {import("./order.js").Event} event */
  take(event) {
    switch (event.type) {
      case "slot.moved": this.#move(event); break;
      case "prompt.written": this.#fill(event); break;
      case "request.served": case "request.abandoned": this.#free(event); break;
    }
  }

  /** Slots whose moves do not join up. */
  gaps() {
    return [...this.slots].filter(([, slot]) => slot.lost || slot.left !== null).map(([number]) => number).sort((a, b) => a - b);
  }

  /** @param {import("./order.js").Event} move */
  #move(move) {
    this.moves++;
    this.#note(move.request, move.slot);
    if (move.after === EMPTY) this.places.delete(move.request); else this.places.set(move.request, move.slot);
    const slot = this.slots.get(move.slot);
    if (!slot) {
      this.#put(move.slot, { state: move.after, incarnation: move.incarnation, request: move.request, moved: move.t,
        left: null, found: move.before, lost: 0 });
    } else if (!closes(slot, move) && !isKnown(slot, move)) {
      if (move.before !== slot.state) {
        if (slot.left !== null) slot.lost++;
        slot.left = slot.state;
        slot.found = move.before;
      }
      this.#put(move.slot, { state: move.after, incarnation: move.incarnation, request: move.request, moved: move.t,
        left: slot.left, found: slot.found, lost: slot.lost });
    }
  }

  /** @param {import("./order.js").Event} event */
  #fill({ t, slot: number, incarnation, request }) {
    this.#note(request, number);
    this.places.set(request, number);
    const slot = this.slots.get(number);
    if (slot && slot.request === request) {
      if (slot.found === FILLED) slot.left = slot.found = null;
      return;
    }
    // Whatever was known of the slot before: it can only have been written to while it was empty.
    const lost = slot ? slot.lost + (slot.left !== null ? 1 : 0) : 0;
    this.#put(number, { state: FILLED, incarnation, request, moved: t, left: null, found: null, lost });
  }

  /** @param {import("./order.js").Event} event */
  #free({ t, request }) {
    const number = this.places.get(request);
    this.places.delete(request);
    const slot = number === undefined ? undefined : this.slots.get(number);
    if (number === undefined || !slot || slot.request !== request || slot.state === EMPTY) return;
    this.#put(number, { ...slot, state: EMPTY, moved: t });
  }

  /** @param {number} request @param {number} slot */
  #note(request, slot) {
    this.highest = Math.max(this.highest, slot);
    this.slotOf.set(request, slot);
  }

  /** @param {number} number @param {Slot} slot */
  #put(number, slot) {
    const old = this.slots.get(number);
    if (old) this.counts.set(old.state, (this.counts.get(old.state) ?? 0) - 1);
    this.counts.set(slot.state, (this.counts.get(slot.state) ?? 0) + 1);
    this.slots.set(number, slot);
    this.history.push(number, slot);
    const taken = this.slots.size - (this.counts.get(EMPTY) ?? 0);
    if (taken > this.fullest.taken) this.fullest = { t: slot.moved, taken };
  }
}

/** True if the front end has said so already: a request fills its slot once, and leaves it once. @param {Slot} slot @param {any} move */
function isKnown(slot, move) {
  if (slot.request !== move.request) return false;
  return slot.state === move.after || (move.after === FILLED && slot.state !== EMPTY);
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
