// @ts-check
// The events of one request, fetched from the server (webui/runs/stories.py): for its whole story, and for the text of
// a run whose pack has none.

import { decodeLines } from "./chunk.js";

/** Address of a request's events. @param {string} page path of the run's page @param {string} trial @param {{request: number | null, name: string}} lane */
export function storyAddress(page, trial, lane) {
  const words = new URLSearchParams();
  if (trial) words.set("trial", trial);
  if (lane.request !== null) words.set("request", String(lane.request));
  if (lane.name) words.set("name", lane.name);
  return `${page}/story?${words}`;
}

export class Told {
  /** @param {string} page path of the run's page @param {string} trial @param {typeof fetch} [get] */
  constructor(page, trial, get = (where, how) => fetch(where, how)) {
    this.page = page;
    this.trial = trial;
    this.get = get;
    /** Texts that have been asked for, by the lane's key. @type {Set<string>} */ this.asked = new Set();
  }

  /** All events of a request, in order. Throws where the server does not answer.
   * @param {{request: number | null, name: string}} lane @returns {Promise<import("./order.js").Event[]>} */
  async events(lane) {
    const answer = await this.get(storyAddress(this.page, this.trial, lane), {});
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return decodeLines((await answer.text()).trimEnd()).events;
  }

  /** Brings the text of a request whose pack left it with the server; true if there is news to show.
   * @param {import("./requests.js").Lane} lane */
  async text(lane) {
    const { track } = lane;
    if (!track || track.told || this.asked.has(lane.key)) return false;
    this.asked.add(lane.key);
    try {
      const events = await this.events(lane);
      track.text = events.filter((event) => event.type === "tokens.detokenised" && event.text).map((event) => [event.first, event.text]);
      track.told = true;
      return true;
    } catch {
      this.asked.delete(lane.key);
      return false;
    }
  }
}
