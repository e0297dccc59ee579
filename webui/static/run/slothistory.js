// @ts-check
// Every change of every slot, as columns: half a million of them are nothing as numbers and much as objects. Now and
// then it is noted where each slot stands, so that no moment of the run is far from one that is known.

const KNOWN_EVERY = 8192;

/** @typedef {{state: string, incarnation: number, request: number, moved: number}} Held */

export class SlotHistory {
  constructor() {
    this.length = 0;
    this.#make(1024);
    /** Slots that held a request after each change, and of these the paused ones. */ this.now = { taken: 0, paused: 0 };
    /** @type {string[]} */ this.states = [];
    /** Newest change of each slot before every `KNOWN_EVERY`th one, by slot. @type {Map<number, number>[]} */ this.known = [];
    /** @type {Map<number, number>} */ this.newest = new Map();
  }

  /** @param {number} room */
  #make(room) {
    const grown = (/** @type {any} */ Kind, /** @type {any} */ old) => { const list = new Kind(room); if (old) list.set(old); return list; };
    /** @type {Float64Array} */ this.moved = grown(Float64Array, this.moved);
    /** @type {Int32Array} */ this.slot = grown(Int32Array, this.slot);
    /** @type {Int32Array} */ this.request = grown(Int32Array, this.request);
    /** @type {Int32Array} */ this.incarnation = grown(Int32Array, this.incarnation);
    /** @type {Uint8Array} */ this.state = grown(Uint8Array, this.state);
    /** @type {Uint16Array} */ this.taken = grown(Uint16Array, this.taken);
    /** @type {Uint16Array} */ this.paused = grown(Uint16Array, this.paused);
  }

  /** A change, not before the last one. @param {number} number @param {Held} slot */
  push(number, slot) {
    const at = this.length;
    if (at === this.moved.length) this.#make(2 * at);
    if (at % KNOWN_EVERY === 0) this.known.push(new Map(this.newest));
    let state = this.states.indexOf(slot.state);
    if (state < 0) state = this.states.push(slot.state) - 1;
    const before = this.newest.get(number), { now } = this;
    if (before !== undefined) count(now, this.states[this.state[before]], -1);
    count(now, slot.state, 1);
    this.taken[at] = now.taken;
    this.paused[at] = now.paused;
    this.moved[at] = slot.moved;
    this.slot[at] = number;
    this.request[at] = slot.request;
    this.incarnation[at] = slot.incarnation;
    this.state[at] = state;
    this.newest.set(number, at);
    this.length++;
  }

  /** @param {number} t @returns {Map<number, Held>} */
  at(t) {
    let low = 0, high = this.length;
    while (low < high) { const middle = (low + high) >> 1; if (this.moved[middle] <= t) low = middle + 1; else high = middle; }
    const place = Math.floor(low / KNOWN_EVERY), newest = new Map(this.known[place] ?? []);
    if (place < this.known.length) for (let at = place * KNOWN_EVERY; at < low; at++) newest.set(this.slot[at], at);
    else for (const [number, at] of this.newest) newest.set(number, at);
    return new Map([...newest].map(([number, at]) => [number, { state: this.states[this.state[at]], incarnation: this.incarnation[at],
      request: this.request[at], moved: this.moved[at] }]));
  }
}

/** @param {{taken: number, paused: number}} now @param {string} state @param {number} by */
function count(now, state, by) {
  if (state !== "empty") now.taken += by;
  if (state === "decode_paused") now.paused += by;
}
