// @ts-check
// The text of a request whose pack left it with the server: fetched for the one request that is chosen.

import { decodeLines } from "./chunk.js";

/** Address of a request's events. @param {string} address as the page was given it, with its trial @param {{request: number | null, name: string}} lane */
export function storyAddress(address, lane) {
  const [path, query = ""] = address.split("?"), words = new URLSearchParams(query);
  if (lane.request !== null) words.set("request", String(lane.request));
  if (lane.name) words.set("name", lane.name);
  return `${path}?${words}`;
}

export class Told {
  /** @param {string} address where the events of one request are; empty where the server has no such place @param {typeof fetch} [get] */
  constructor(address, get = (where, how) => fetch(where, how)) {
    this.address = address;
    this.get = get;
    /** What has been asked for, by the lane's key. @type {Set<string>} */ this.asked = new Set();
  }

  /** Brings the text of a lane, if it has one that is not here; true if there is news to show. @param {import("./lanes.js").Lane} lane */
  async text(lane) {
    const { track } = lane;
    if (!track || track.told || !this.address || this.asked.has(lane.key)) return false;
    this.asked.add(lane.key);
    try {
      const answer = await this.get(storyAddress(this.address, lane), {});
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const { events } = decodeLines((await answer.text()).trimEnd());
      track.text = events.filter((event) => event.type === "tokens.detokenised" && event.text).map((event) => [event.first, event.text]);
      track.told = true;
      return true;
    } catch {
      this.asked.delete(lane.key);
      return false;
    }
  }
}
