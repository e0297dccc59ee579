// @ts-check
// Every slot's state as the log tells it: the same fold as testbed.metrics.ring_state. A slot is a number in a ring, and
// a ring is known by the name of the GPU's node that has it. The DPU fills a slot (prompt.written) and frees it
// (request.served, request.abandoned), the GPU does the rest (slot.moved). A move may stand late in the log; moves that
// do not join leave a gap, and late ones walk through it until it is closed. Logs of before prompt.written named the ring
// are read too: it is that of the only GPU that was ready, or else of the GPU that moves the request first.

import { SlotHistory } from "./slothistory.js";

/** @typedef {{state: string, incarnation: number, request: number, moved: number, left: string | null,
 *   found: string | null, lost: number}} Slot */
/** @typedef {{ring: string, slot: number}} Place */

/** State names in the order in which a slot lives through them, as the legend shows them. */
export const STATES = ["empty", "prefill_pending", "prefill_processing", "decode_processing", "decode_paused", "decode_completed"];
const [EMPTY, FILLED] = STATES;

const TAKES = new Set(["node.ready", "slot.moved", "prompt.written", "request.served", "request.abandoned"]);

/** One GPU's. */
export class Ring {
  constructor() {
    /** @type {Map<number, Slot>} */ this.slots = new Map();
    /** @type {Map<string, number>} */ this.counts = new Map();
    this.highest = -1;
    /** Most slots that were taken at once. */ this.most = 0;
    /** Every change of a slot's state, so that the map can show another moment. */ this.history = new SlotHistory();
  }

  get taken() { return this.slots.size - (this.counts.get(EMPTY) ?? 0); }

  /** @param {number} number @param {Slot} slot */
  put(number, slot) {
    const old = this.slots.get(number);
    if (old) this.counts.set(old.state, (this.counts.get(old.state) ?? 0) - 1);
    this.counts.set(slot.state, (this.counts.get(slot.state) ?? 0) + 1);
    this.slots.set(number, slot);
    this.history.push(number, slot);
    this.most = Math.max(this.most, this.taken);
  }
}

export class RingFold {
  constructor() {
    this.takes = TAKES;
    /** By the name of the GPU's node. @type {Map<string, Ring>} */ this.rings = new Map();
    /** Of those that hold a slot, by request. @type {Map<number, Place>} */ this.places = new Map();
    /** Newest slot of each request, also when it has left it. @type {Map<number, Place>} */ this.slotOf = new Map();
    /** Nodes that have a ring, as far as they have said that they are ready. @type {Set<string>} */ this.gpus = new Set();
    /** Requests that have been written into a ring that nothing has named yet. @type {Set<number>} */ this.unplaced = new Set();
    this.moves = 0;
    /** When most slots of all rings together were taken, and how many. */ this.fullest = { t: 0, taken: 0 };
  }

  /** Names of the rings in which something has moved, in order. */
  names() { return [...this.rings.keys()].sort(); }

  /** The slots of a ring at a moment, or now (null); what was put in order late stands where it was logged.
   * @param {string} ring @param {number | null} t @returns {Map<number, {state: string, incarnation: number, request: number, moved: number}>} */
  at(ring, t) {
    const found = this.rings.get(ring);
    return !found ? new Map() : t === null ? found.slots : found.history.at(t);
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    switch (event.type) {
      case "node.ready": if (event.role === "gpu") this.gpus.add(event.node); break;
      case "slot.moved": this.#move(event); break;
      case "prompt.written": this.#write(event); break;
      case "request.served": case "request.abandoned": this.#free(event); break;
    }
  }

  /** Slots whose moves do not join up. @returns {Place[]} */
  gaps() {
    return this.names().flatMap((ring) => [...this.rings.get(ring)?.slots ?? []].filter(([, slot]) => slot.lost || slot.left !== null)
      .map(([slot]) => ({ ring, slot })).sort((a, b) => a.slot - b.slot));
  }

  /** @param {import("./order.js").Event} move */
  #move(move) {
    const ring = move.node;
    this.moves++;
    if (this.unplaced.delete(move.request)) this.#fill(ring, move);
    this.#note(move.request, ring, move.slot);
    if (move.after === EMPTY) this.places.delete(move.request); else this.places.set(move.request, { ring, slot: move.slot });
    const slot = this.rings.get(ring)?.slots.get(move.slot);
    if (!slot) {
      this.#put(ring, move.slot, { state: move.after, incarnation: move.incarnation, request: move.request, moved: move.t,
        left: null, found: move.before, lost: 0 });
    } else if (!closes(slot, move) && !isKnown(slot, move)) {
      if (move.before !== slot.state) {
        if (slot.left !== null) slot.lost++;
        slot.left = slot.state;
        slot.found = move.before;
      }
      this.#put(ring, move.slot, { state: move.after, incarnation: move.incarnation, request: move.request, moved: move.t,
        left: slot.left, found: slot.found, lost: slot.lost });
    }
  }

  /** @param {import("./order.js").Event} event */
  #write(event) {
    const ring = event.ring || (this.places.get(event.request)?.ring ?? (this.gpus.size === 1 ? [...this.gpus][0] : ""));
    if (ring) this.#fill(ring, event); else this.unplaced.add(event.request);
  }

  /** @param {string} ring @param {import("./order.js").Event} event */
  #fill(ring, { t, slot: number, incarnation, request }) {
    this.#note(request, ring, number);
    this.places.set(request, { ring, slot: number });
    const slot = this.rings.get(ring)?.slots.get(number);
    if (slot && slot.request === request) {
      if (slot.found === FILLED) slot.left = slot.found = null;
      return;
    }
    // Whatever was known of the slot before: it can only have been written to while it was empty.
    const lost = slot ? slot.lost + (slot.left !== null ? 1 : 0) : 0;
    this.#put(ring, number, { state: FILLED, incarnation, request, moved: t, left: null, found: null, lost });
  }

  /** @param {import("./order.js").Event} event */
  #free({ t, request }) {
    this.unplaced.delete(request);
    const place = this.places.get(request);
    this.places.delete(request);
    const slot = place && this.rings.get(place.ring)?.slots.get(place.slot);
    if (!place || !slot || slot.request !== request || slot.state === EMPTY) return;
    this.#put(place.ring, place.slot, { ...slot, state: EMPTY, moved: t });
  }

  /** @param {number} request @param {string} ring @param {number} slot */
  #note(request, ring, slot) {
    let found = this.rings.get(ring);
    if (!found) this.rings.set(ring, (found = new Ring()));
    found.highest = Math.max(found.highest, slot);
    this.slotOf.set(request, { ring, slot });
  }

  /** @param {string} name @param {number} number @param {Slot} slot */
  #put(name, number, slot) {
    /** @type {Ring} */ (this.rings.get(name)).put(number, slot);
    let taken = 0;
    for (const ring of this.rings.values()) taken += ring.taken;
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
