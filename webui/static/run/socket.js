// @ts-check
// The live stream: opens, acknowledges, and reconnects by itself from the last cursor, so nothing is missed or doubled.

import { decodeChunk } from "./chunk.js";

const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 10_000;
/** The server says something at least every five seconds: a line that is silent for longer than this is dead, as after
 * sleep, and the browser may not notice for minutes. */
export const SILENCE_MS = 15_000;
/** Codes with which the server says that coming back is of no use. */
const FINAL = new Map([[4401, "You are signed out."], [4404, "This run is gone."], [4400, "This address is not good."]]);

export class Stream {
  /**
   * @param {string} path
   * @param {{events: (events: import("./order.js").Event[]) => void, run: (facts: any) => void, end: () => void,
   *   state: (state: "connecting" | "live" | "stale" | "ended" | "refused", words: string) => void}} on
   * @param {{open?: (url: string) => WebSocket, later?: (f: () => void, ms: number) => any, now?: () => number}} [world]
   */
  constructor(path, on, world = {}) {
    this.path = path;
    this.on = on;
    this.open = world.open ?? ((url) => new WebSocket(url));
    this.later = world.later ?? ((f, ms) => setTimeout(f, ms));
    this.now = world.now ?? (() => Date.now());
    this.heard = 0;
    this.waits = 0;
    this.cursor = "";
    this.wait = FIRST_WAIT_MS;
    this.frames = 0;
    this.bad = 0;
    this.closed = false;
    /** @type {WebSocket | null} */ this.socket = null;
  }

  connect() {
    if (this.closed) return;
    this.waits++;
    this.heard = this.now();
    const joint = this.path.includes("?") ? "&" : "?";
    const socket = this.socket = this.open(`${this.path}${joint}cursor=${encodeURIComponent(this.cursor)}`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { this.wait = FIRST_WAIT_MS; this.on.state("live", ""); };
    socket.onmessage = (message) => this.#take(socket, message.data);
    socket.onclose = (close) => this.#lost(socket, close.code, close.reason ?? "");
  }

  close() {
    this.closed = true;
    this.socket?.close();
  }

  /** To be called now and then, and when the page wakes or the network is back: gives a dead line up, and waits no
   * longer before it is opened again. @param {boolean} [soon] */
  look(soon = false) {
    if (this.closed) return;
    if (this.socket && this.now() - this.heard > SILENCE_MS) {
      const dead = this.socket;
      this.#lost(dead, 1006, "");
      dead.close();
    }
    if (soon && !this.socket) this.connect();
  }

  /** @param {WebSocket} socket @param {ArrayBuffer | string} data */
  #take(socket, data) {
    if (socket !== this.socket) return;
    this.heard = this.now();
    if (typeof data === "string") {
      const word = JSON.parse(data);
      if (word.run) this.on.run(word.run);
      if (word.end) { this.closed = true; this.on.end(); this.on.state("ended", ""); }
      return;
    }
    const chunk = decodeChunk(data);
    this.frames++;
    this.bad += chunk.bad;
    this.cursor = chunk.cursor;
    this.on.events(chunk.events);
    socket.send("a");
  }

  /** @param {WebSocket} socket @param {number} code @param {string} reason the server's words, if it had time for any */
  #lost(socket, code, reason) {
    if (this.closed || socket !== this.socket) return;
    const words = FINAL.get(code);
    if (words) { this.closed = true; this.on.state("refused", words); return; }
    this.socket = null;
    this.on.state("stale", reason || "The console does not answer.");
    const turn = this.waits;
    this.later(() => { if (turn === this.waits) this.connect(); }, this.wait);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
  }
}
