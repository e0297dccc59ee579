// @ts-check
// Where the page's events come from: the live stream, or for a long run that has ended its packed timeline. The server
// says which (webui/runs/pack_views.py): 200 is the pack, 202 says how far its making is, 204 means: read the stream.

import { openPack } from "./pack.js";
import { Stream } from "./socket.js";

const ASK_AGAIN_MS = 400, LOOK_EVERY_MS = 5000;

/** @typedef {{events: (events: import("./order.js").Event[]) => void, packed: (pack: import("./pack.js").Pack) => void,
 *   run: (facts: any) => void, end: () => void, progress: (share: number) => void,
 *   state: (state: "connecting" | "live" | "stale" | "ended" | "refused", words: string) => void}} Ears */

export class Feed {
  /** @param {{stream: string, pack: string}} addresses @param {Ears} on @param {{fetch?: typeof fetch, later?: (f: () => void, ms: number) => any}} [world] */
  constructor(addresses, on, world = {}) {
    this.addresses = addresses;
    this.on = on;
    this.fetch = world.fetch ?? ((where, how) => fetch(where, how));
    this.later = world.later ?? ((f, ms) => setTimeout(f, ms));
    this.stream = new Stream(addresses.stream, on);
    this.closed = false;
  }

  /** `ended` is how the page was told the run stands. @param {boolean} ended */
  start(ended) {
    if (typeof document !== "undefined") this.keep();
    if (ended && this.addresses.pack) void this.#ask(); else this.stream.connect();
  }

  /** Watches over the line: asks now and then whether it stands, and again as soon as page or network come back. */
  keep() {
    setInterval(() => this.stream.look(), LOOK_EVERY_MS);
    addEventListener("online", () => this.stream.look(true));
    document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") this.stream.look(true); });
  }

  close() {
    this.closed = true;
    this.stream.close();
  }

  async #ask() {
    try {
      const answer = await this.fetch(this.addresses.pack, {});
      if (this.closed) return;
      if (answer.status === 200) {
        this.on.packed(openPack(await answer.arrayBuffer()));
        this.on.end();
        this.on.state("ended", "");
        return;
      }
      if (answer.status === 202) {
        this.on.progress((await answer.json()).share);
        this.later(() => void this.#ask(), ASK_AGAIN_MS);
        return;
      }
    } catch { /* a pack that cannot be had or read is no reason to show nothing: the log is still there */ }
    if (!this.closed) this.stream.connect();
  }
}
