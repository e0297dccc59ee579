// @ts-check
// The rows on screen as a table, for those who do not see the canvas. Renewed calmly: a moment after the picture has come
// to rest, and while a run goes on at most every few seconds.

import { make } from "./dom.js";
import { span } from "./format.js";
import { label, standing } from "./lanes.js";

const EVERY_MS = 3000;

export class RowTable {
  /** @param {HTMLElement} after what the table stands behind @param {import("./timeline.js").Timeline} timeline */
  constructor(after, timeline) {
    this.timeline = timeline;
    this.seen = "";
    this.body = make("tbody");
    const head = ["Request", "How far", "Sent after", "Lasted", "Phases"].map((words) => make("th", { scope: "col" }, words));
    after.after(make("div", { class: "out-of-sight" }, make("table", { id: "tl-rows" }, make("caption", {}, "Requests on the timeline, those in view"), make("thead", {}, make("tr", {}, ...head)), this.body)));
    setInterval(() => this.draw(), EVERY_MS);
  }

  draw() {
    const lanes = this.timeline.seen(), seen = lanes.map((lane) => `${lane.key} ${lane.end} ${lane.tokens.length}`).join();
    if (seen === this.seen) return;
    this.seen = seen;
    this.body.replaceChildren(...lanes.map((lane) => {
      const phases = lane.phases.map((phase) => `${phase.what} ${span(phase.end - phase.start)}`);
      if (lane.pauses.length) phases.push(`paused ${lane.pauses.length} times`);
      return make("tr", {}, make("th", { scope: "row" }, label(lane)), make("td", {}, standing(lane)), make("td", {}, span(lane.start)),
        make("td", {}, span(lane.end - lane.start)), make("td", {}, phases.join(", ")));
    }));
  }
}
