// @ts-check
// The slots on the maps that hold a request as a table, for those who do not see the canvas. Renewed calmly: at most every
// few seconds, and only if something has changed.

import { make } from "./dom.js";
import { count, span } from "./format.js";

const EVERY_MS = 3000, MOST = 200;

/** @typedef {{ring: string, slot: number, state: string, request: number, moved: number}} Taken */

/** The slots of all maps that hold a request, by ring and number. @param {{name: string, shown: Map<number, {state: string, request: number, moved: number}>}[]} panes @returns {Taken[]} */
export function taken(panes) {
  return panes.flatMap(({ name, shown }) => [...shown].filter(([, { state }]) => state !== "empty").sort((a, b) => a[0] - b[0])
    .map(([slot, { state, request, moved }]) => ({ ring: name, slot, state, request, moved })));
}

export class SlotTable {
  /** @param {HTMLElement} box What the table stands in. @param {{panes: import("./ringpane.js").RingPane[], called: (request: number) => string}} map */
  constructor(box, map) {
    this.map = map;
    this.seen = "";
    this.caption = make("caption");
    this.body = make("tbody");
    const head = ["GPU", "Slot", "State", "Request", "Since"].map((words) => make("th", { scope: "col" }, words));
    box.append(make("div", { class: "out-of-sight" }, make("table", { id: "ring-slots" }, this.caption, make("thead", {}, make("tr", {}, ...head)), this.body)));
    setInterval(() => this.draw(), EVERY_MS);
    this.draw();
  }

  draw() {
    const rows = taken(this.map.panes), shown = rows.slice(0, MOST);
    const seen = rows.map((row) => `${row.ring} ${row.slot} ${row.state} ${row.request}`).join();
    if (seen === this.seen && this.caption.textContent) return;
    this.seen = seen;
    this.caption.textContent = `Slots on the map that hold a request: ${count(rows.length)}${shown.length < rows.length ? `, the first ${MOST} of them` : ""}`;
    this.body.replaceChildren(...shown.map(({ ring, slot, state, request, moved }) => make("tr", {}, make("td", {}, ring), make("th", { scope: "row" }, `${slot}`),
      make("td", {}, state), make("td", {}, this.map.called(request)), make("td", {}, span(moved)))));
  }
}
