// @ts-check
// Each request on the server's side: its tokens, its pauses, its text and the thirteen steps. What lanes.js makes of
// it is the same cut as testbed.metrics.spans: sending, queued (until the scheduler claims it, or without a ring until a graph is chosen for it; for an agent's turn, until its KV is there),
// prefill (until its first token is published), decode (until its last), delivery (until the client has it all).

import { growing } from "./pack.js";

/** Which event is which numbered circle of Blink's architecture figure, and what to call it. @type {Record<string, [number, string]>} */
export const STEPS = {
  "request.arrived": [1, "request arrives at the DPU"],
  "request.tokenised": [2, "prompt is tokenised"],
  "slot.sought": [3, "slot tracker is asked"],
  "slot.found": [4, "an empty slot is found"],
  "prompt.written": [5, "prompt lies in GPU memory"],
  "slot.claimed": [6, "resident scheduler claims it"],
  "graph.selected": [7, "graph is selected"],
  "graph.launched": [8, "graph is launched"],
  "tokens.sampled": [9, "token is sampled"],
  "tokens.published": [10, "token is in the ring"],
  "tokens.read": [11, "token is read by RDMA"],
  "tokens.detokenised": [12, "token becomes text"],
  "tokens.streamed": [13, "text goes to the client"],
};
export const STEP_WORDS = Object.values(STEPS).sort((a, b) => a[0] - b[0]);
/** Those that a server without a ring in GPU memory has too, as testbed.metrics.timeline has them. @type {[number, string][]} */
export const RINGLESS_STEP_WORDS = [
  [1, "request arrives at the server"], [2, "prompt is tokenised"], [7, "graph is selected"], [8, "graph is launched"],
  [9, "token is sampled"], [10, "token is counted by the control loop"], [12, "token becomes text"], [13, "text goes to the client"],
];
const PAUSED = "decode_paused";

/** @typedef {{first: number, last: number, count: number}} StepTimes */
/** @typedef {{request: number, name: string, slot: number | null, ring: string, steps: Map<number, StepTimes>, published: number[] | Float64Array,
 *   pauses: [number, number | null][], ended: number | null, reason: string, text: [number, string][], told: boolean,
 *   promptTokens: number, maxTokens: number}} Track `ring` is the GPU's node, empty while that is not known; `told` is false while its text is not here but on the server. */

export class TrackFold {
  constructor() {
    /** @type {Map<number, Track>} */ this.tracks = new Map();
    /** @type {Map<string, Track>} */ this.byName = new Map();
    /** What something was heard of since somebody last looked. @type {Set<Track>} */ this.touched = new Set();
    /** Requests of each launch that is not done, by "node launch". @type {Map<string, number[]>} */ this.open = new Map();
    this.version = 0;
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    const step = STEPS[event.type];
    if (step) this.#step(event, step[0]);
    else if (event.type === "slot.moved") this.#pause(event);
    else if (event.type === "request.served") this.#close(event, event.reason);
    else if (event.type === "request.abandoned") this.#close(event, "abandoned");
    else if (event.type === "request.refused") {
      this.#name(this.#track(event.request), event.name);
      this.#close(event, event.reason);
    } else return;
    this.version++;
  }

  /** @param {import("./order.js").Event} event @param {number} step */
  #step(event, step) {
    const track = event.request === undefined ? null : this.#track(event.request);
    if (step === 1 && track) { this.#name(track, event.name); track.maxTokens = event.max_tokens; }
    if (step === 2 && track) track.promptTokens = event.tokens;
    if (step === 4 && track) { track.slot = event.slot; track.ring = event.ring ?? ""; }
    if (step === 12 && track && event.text) track.text.push([event.first, event.text]);
    if (step === 10) this.#publish(event);
    for (const request of this.#requests(event, step)) {
      const { steps } = this.#track(request);
      const times = steps.get(step);
      if (times) { times.last = event.t; times.count++; } else steps.set(step, { first: event.t, last: event.t, count: 1 });
    }
  }

  /** The requests that a step is about; a launch names none, its selection did. @param {import("./order.js").Event} event @param {number} step @returns {number[]} */
  #requests(event, step) {
    const launch = step === 7 ? `${event.node} ${event.launch}` : this.#launch(event);
    if (step === 7) this.open.set(launch, event.requests);
    if (step === 8) return this.open.get(launch) ?? [];
    if (step === 9) this.open.delete(launch);
    return event.requests ?? [event.request];
  }

  /** The key of an open launch: the node's own, else the only one of that number. Where the control loop is not on the
   * GPU, one node chooses a graph, another launches it and a third runs it. @param {import("./order.js").Event} event */
  #launch(event) {
    const own = `${event.node} ${event.launch}`;
    if (event.launch === undefined || this.open.has(own)) return own;
    const others = [...this.open.keys()].filter((key) => key.endsWith(` ${event.launch}`));
    return others.length === 1 ? others[0] : own;
  }

  /** @param {import("./order.js").Event} event */
  #publish(event) {
    event.requests.forEach((/** @type {number} */ request, /** @type {number} */ place) => {
      const track = this.#track(request), count = event.counts[place] ?? 0;
      if (track.published.length >= count) return;
      const published = track.published = growing(track.published);
      while (published.length < count) published.push(event.t);
    });
  }

  /** The steps of each token of a pack; its other events have been taken. Texts stay with the server (story.js).
   * @param {import("./pack.js").Pack} pack */
  load(pack) {
    const requests = pack.column("requests"), published = pack.times("published");
    published.forEach((times, place) => { this.#track(requests[place]).published = times; });
    const [row, step, first, last, count] = ["row", "step", "first", "last", "count"].map((name) => pack.column(`steps.${name}`));
    for (let place = 0; place < row.length; place++) {
      this.#track(requests[row[place]]).steps.set(step[place], { first: first[place], last: last[place], count: count[place] });
    }
    for (const [launch, open] of Object.entries(pack.head.open)) this.open.set(launch, open);
    for (const track of this.tracks.values()) track.told = false;
    this.version++;
  }

  /** @param {import("./order.js").Event} event */
  #pause(event) {
    const track = this.#track(event.request);
    if (track.slot === null) track.slot = event.slot;
    track.ring ||= event.node;
    const last = track.pauses.at(-1);
    if (event.after === PAUSED) track.pauses.push([event.t, null]);
    else if (event.before === PAUSED && last && last[1] === null) last[1] = event.t;
  }

  /** @param {import("./order.js").Event} event @param {string} reason */
  #close(event, reason) {
    const track = this.#track(event.request);
    if (track.ended === null) { track.ended = event.t; track.reason = reason; }
  }

  /** @param {number} request */
  #track(request) {
    let track = this.tracks.get(request);
    if (track) this.touched.add(track);
    else {
      track = { request, name: "", slot: null, ring: "", steps: new Map(), published: [], pauses: [], ended: null, reason: "",
        text: [], told: true, promptTokens: 0, maxTokens: 0 };
      this.tracks.set(request, track);
      this.touched.add(track);
    }
    return track;
  }

  /** @param {Track} track @param {string} name */
  #name(track, name) {
    track.name ||= name;
    if (name) this.byName.set(name, track);
  }
}

/** @typedef {import("./lanes.js").Lane} Lane */
