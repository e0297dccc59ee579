// @ts-check
// What the timeline's canvas shows, from top to bottom: the axis, a row for each request, a row for each device that
// launches, the slots of each ring, a strip for each virtual lane of the chosen ports. Only rows that have something.

import { count, rate, span } from "./format.js";
import { label, standing } from "./lanes.js";
import { fit, paintLane, paintLaunches, paintRelaunches, paintSeries, paintSlots } from "./paint.js";
import { axisLabel, ticks } from "./view.js";

export const AXIS = 24, ROW = 14, GAP = 2, ROW_PITCH = ROW + GAP;
const DEVICE = 34, SLOTS = 34, LANE = 46, RIGHT = 8;
/** Devices, and rings, that are shown while nobody has chosen. */
export const DEVICES_FIRST = 4;
const GUTTER = { least: 156, most: 340, share: 0.35 }, GUTTER_SMALL = { least: 58, most: 140, share: 0.36 };
/** Room for how far a request is, right of its name. */
const STANDING = 96;

export class Picture {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** @type {any} */ this.pen = null;
    /** @type {any} */ this.axis = null;
    /** @type {any} */ this.colours = null;
    this.gutter = 0;
  }

  /** Devices that have a row. @returns {string[]} */
  devices() {
    const { timeline } = this, all = timeline.model.launches.devices();
    return timeline.devices ? all.filter((one) => timeline.devices?.includes(one)) : all.slice(0, DEVICES_FIRST);
  }

  /** Rings that have a row: of several those of the devices that are chosen. @returns {string[]} */
  rings() {
    const { timeline } = this, all = timeline.model.ring.names();
    if (all.length < 2) return all;
    return timeline.devices ? all.filter((one) => timeline.devices?.includes(one)) : all.slice(0, DEVICES_FIRST);
  }

  /** Ports and lanes that have a strip. @returns {{port: string, lane: number, first: boolean}[]} */
  strips() {
    const { timeline } = this, { ports } = timeline.model.links, strips = [];
    for (const port of [timeline.port, ...timeline.more.filter((one) => one !== timeline.port)]) {
      const lanes = [...(ports.get(port)?.keys() ?? [])].sort((a, b) => a - b), virtual = lanes.filter((lane) => lane >= 0);
      (virtual.length ? virtual : lanes).forEach((lane, place) => strips.push({ port, lane, first: place === 0 }));
    }
    return strips;
  }

  /** @param {any} colours */
  draw(colours) {
    const { timeline } = this, { model, view, rows } = timeline;
    const devices = this.devices(), rings = this.rings(), strips = this.strips();
    const rowsEnd = AXIS + rows * ROW_PITCH + 8;
    const height = rowsEnd + devices.length * DEVICE + rings.length * SLOTS + strips.length * LANE + 14;
    const { pen, width } = fit(timeline.canvas, height);
    timeline.width = width;
    this.pen = pen;
    this.colours = colours;
    const lanes = timeline.seen();
    timeline.left = this.#gutter(lanes);
    const right = width - RIGHT, scale = (right - timeline.left) / (view.end - view.start);
    this.axis = { left: timeline.left, right, x: (/** @type {number} */ t) => timeline.left + (t - view.start) * scale };
    pen.textBaseline = "middle";
    this.#grid(height);
    this.#stretches(height);
    lanes.forEach((lane, row) => this.#request(lane, AXIS + 2 + row * ROW_PITCH));
    let y = rowsEnd + 2;
    for (const device of devices) { this.#device(device, y, devices.length > 1); y += DEVICE; }
    for (const ring of rings) { this.#slots(ring, y, model.ring.rings.size > 1); y += SLOTS; }
    for (const strip of strips) { this.#strip(strip, y - 2, timeline.more.length > 0); y += LANE; }
    this.#cursors(height);
    const shown = `${span(Math.max(0, view.start))} to ${span(Math.max(0, view.end))}`;
    timeline.canvas.setAttribute("aria-label", `Token timeline: ${count(timeline.lanes().length)} requests, ${count(model.exchanges.tokens)} tokens, ${shown}`);
  }

  /** Wide enough for the longest name that was on screen; it only grows, so that the axis stays. @param {import("./lanes.js").Lane[]} lanes */
  #gutter(lanes) {
    const { pen, timeline } = this, { least, most, share } = timeline.small ? GUTTER_SMALL : GUTTER;
    this.#font(11, "bold", true);
    for (const lane of lanes) this.gutter = Math.max(this.gutter, pen.measureText(label(lane)).width);
    return Math.round(Math.max(least, Math.min(most, share * timeline.width, this.gutter + (timeline.small ? 14 : STANDING + 22))));
  }

  /** @param {number} size @param {string} [weight] @param {boolean} [mono] */
  #font(size, weight = "", mono = false) { this.pen.font = `${weight} ${size}px ${mono ? this.colours.mono : this.colours.sans}`.trim(); }

  /** @param {string} words @param {number} x @param {number} y @param {string} ink @param {number} [size] @param {string} [weight] */
  #write(words, x, y, ink, size = 11, weight = "") {
    this.#font(size, weight);
    this.pen.fillStyle = this.colours[ink];
    this.pen.fillText(words, x, y);
  }

  /** @param {number} y @param {string} ink */
  #rule(y, ink) {
    const { pen } = this;
    pen.strokeStyle = this.colours[ink];
    pen.lineWidth = 1;
    pen.beginPath(); pen.moveTo(0, y); pen.lineTo(this.timeline.width, y); pen.stroke();
  }

  /** @param {number} height */
  #grid(height) {
    const { pen, axis, colours, timeline } = this, { model, view } = timeline;
    const { at, step } = ticks(Math.max(0, view.start), view.end, axis.right - axis.left), now = axis.x(model.now);
    pen.textAlign = "center";
    for (const t of at) {
      const x = Math.round(axis.x(t)) + 0.5;
      if (x < axis.left - 1 || x > axis.right) continue;
      pen.strokeStyle = colours.line;
      pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(x, 20); pen.lineTo(x, height - 8); pen.stroke();
      const clear = !timeline.live || Math.abs(x - now) > 70;
      if (x > axis.left + 14 && x < axis.right - 20 && clear) this.#write(axisLabel(t, step), x, 9, "ink-3", 12);
    }
    pen.textAlign = "left";
  }

  /** Late wakes, outages of a scheduler, faults on purpose, the stretch that is being chosen. @param {number} height */
  #stretches(height) {
    const { pen, axis, colours, timeline } = this, { model } = timeline;
    pen.fillStyle = colours.warn;
    for (const late of model.late) {
      const x = axis.x(late);
      if (x < axis.left || x > axis.right) continue;
      pen.globalAlpha = 0.05; pen.fillRect(x - 3, 20, 6, height - 28);
      pen.globalAlpha = 1; pen.fillRect(x - 2, 20, 4, 2);
    }
    for (const { start, end, ring, words } of model.outages.outages) {
      this.#shade(start, end ?? model.now, height, "bad", ring && model.ring.rings.size > 1 ? `${words} on ${ring}` : words);
    }
    for (const fault of model.outages.faults) {
      const x = axis.x(fault.t);
      if (x < axis.left || x > axis.right) continue;
      pen.strokeStyle = colours.bad;
      pen.setLineDash([5, 3]);
      pen.beginPath(); pen.moveTo(x, 18); pen.lineTo(x, height - 8); pen.stroke();
      pen.setLineDash([]);
      pen.textAlign = x > axis.right - 160 ? "right" : "left";
      this.#write(fault.words, pen.textAlign === "right" ? x - 4 : x + 4, height - 9, "bad");
      pen.textAlign = "left";
    }
    if (timeline.chosen) this.#shade(Math.min(...timeline.chosen), Math.max(...timeline.chosen), height, "accent", span(Math.abs(timeline.chosen[1] - timeline.chosen[0])));
  }

  /** @param {number} start @param {number} end @param {number} height @param {string} ink @param {string} words */
  #shade(start, end, height, ink, words) {
    const { pen, axis, colours } = this, a = Math.max(axis.left, axis.x(start)), b = Math.min(axis.right, axis.x(end));
    if (b < a) return;
    pen.fillStyle = colours[ink];
    pen.globalAlpha = 0.12; pen.fillRect(a, 20, Math.max(2, b - a), height - 28);
    pen.globalAlpha = 1; pen.fillRect(a, 18, Math.max(2, b - a), 3);
    if (b - a > 50) this.#write(words, a + 4, 27, ink);
  }

  /** @param {import("./lanes.js").Lane} lane @param {number} y */
  #request(lane, y) {
    const { pen, axis, colours, timeline } = this, chosen = lane.key === timeline.selected, over = timeline.pointer && timeline.pointer.y;
    if (chosen || (over !== null && over >= y - 1 && over < y + ROW + 1)) {
      pen.fillStyle = chosen ? colours["accent-soft"] : colours.sunken;
      pen.fillRect(0, y - 1, timeline.width, ROW_PITCH);
    }
    this.#font(11, chosen ? "bold" : "", true);
    pen.fillStyle = chosen ? colours.accent : colours["ink-2"];
    const room = axis.left - (timeline.small ? 8 : STANDING + 16);
    pen.save();
    pen.beginPath(); pen.rect(0, y - 1, room, ROW + 2); pen.clip();
    pen.fillText(label(lane), 4, y + ROW / 2 + 0.5);
    pen.restore();
    if (!timeline.small) {
      pen.textAlign = "right";
      this.#write(standing(lane), axis.left - 12, y + ROW / 2 + 0.5, "ink-3");
      pen.textAlign = "left";
    }
    pen.save();
    pen.beginPath(); pen.rect(axis.left, y - 1, axis.right - axis.left, ROW + 2); pen.clip();
    paintLane(pen, lane, axis, y + 1, ROW - 2, colours);
    pen.restore();
  }

  /** @param {string} device @param {number} y @param {boolean} several */
  #device(device, y, several) {
    const { pen, axis, colours, timeline } = this, { launches, now } = timeline.model;
    this.#rule(y - 4.5, "line-2");
    const what = device.includes(".") ? "batches" : "launches";
    this.#write(timeline.small ? device : several ? `${device} ${what}` : what === "batches" ? `${device} batches` : "GPU launches", 4, y + 8, "ink", 12);
    const relaunches = launches.relaunches.get(device) ?? [];
    if (!timeline.small) this.#write(relaunches.length ? "height is batch, ◆ relaunch" : "height is batch", 4, y + 22, "ink-3");
    paintLaunches(pen, launches.byNode.get(device) ?? [], axis, y + 25, 20, launches.largest, now, colours);
    paintRelaunches(pen, relaunches, axis, y, colours);
  }

  /** Rings stand on one scale: the most that any of them has held. @param {string} name @param {number} y @param {boolean} several */
  #slots(name, y, several) {
    const { pen, axis, colours, timeline } = this, { rings } = timeline.model.ring, ring = rings.get(name);
    if (!ring) return;
    const most = Math.max(...[...rings.values()].map((one) => one.most)), { small } = timeline;
    this.#rule(y - 4.5, "line-2");
    this.#write(several ? `${name} slots${small ? "" : " taken"}` : small ? "Slots" : "Slots taken", 4, y + 8, "ink", 12);
    if (!small) this.#write(`top ${count(most)}, dark below: paused`, 4, y + 22, "ink-3");
    paintSlots(pen, ring.history, axis, y + 26, 24, Math.max(1, most), colours);
  }

  /** @param {{port: string, lane: number, first: boolean}} strip @param {number} top @param {boolean} several */
  #strip({ port, lane, first }, top, several) {
    const { axis, colours, timeline } = this, series = timeline.model.links.ports.get(port)?.get(lane);
    if (!series) return;
    this.#rule(top + 0.5, first ? "line-2" : "line");
    const { small } = timeline, latest = series.rate.at(-1) ?? 0, most = niceTop(series, series.setting), silent = series.sent === 0;
    const name = lane < 0 ? "Port" : `VL${lane}`;
    this.#write(name, 4, top + 14, "ink", 12, "600");
    const words = silent ? "nothing sent" : `${rate(latest)} ${timeline.live ? "now" : "at the end"}`;
    this.#write(small ? silent ? "none" : rate(latest).replace("bit/s", "") : words, small ? 4 : 40, top + (small ? 29 : 14), "ink-3");
    if (small) { if (several && first) this.#write(port, axis.left + 4, top + 10, "ink-3"); } else {
      if (series.drops) this.#write(`▲ ${count(series.drops)} dropped`, 40, top + 30, "bad");
      else if (!silent) this.#write(`top ${rate(most)}`, 40, top + 30, "ink-3");
      if (several && first) this.#write(port, 40, top + 42, "ink-2");
    }
    paintSeries(this.pen, series, axis, top + 44, 36, most, colours[`vl${Math.max(0, lane) % 4}`]);
  }

  /** @param {number} height */
  #cursors(height) {
    const { pen, axis, colours, timeline } = this, { model } = timeline, now = axis.x(model.now);
    if (timeline.live && model.events && now <= axis.right && now > axis.left) {
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 1.5;
      pen.beginPath(); pen.moveTo(now, 18); pen.lineTo(now, height - 8); pen.stroke();
      pen.textAlign = now > axis.right - 60 ? "right" : "center";
      this.#write(`now ${(model.now / 1e9).toFixed(2)}`, Math.min(now, axis.right), 9, "accent", 11, "600");
      pen.textAlign = "left";
    }
    const x = timeline.pointer ? timeline.pointer.x : timeline.cursor === null ? NaN : Math.round(axis.x(timeline.cursor));
    if (!(x > axis.left && x <= axis.right)) return;
    pen.strokeStyle = colours["ink-3"];
    pen.lineWidth = 1;
    pen.setLineDash([2, 3]);
    pen.beginPath(); pen.moveTo(x + 0.5, 18); pen.lineTo(x + 0.5, height - 8); pen.stroke();
    pen.setLineDash([]);
  }
}

/** The top of a lane's scale: its setting, or a round figure near what it carried where that is far below. It grows only. @param {import("./machine.js").Series} series @param {number} setting */
function niceTop(series, setting) {
  let most = 0;
  for (let place = Math.max(0, series.rate.length - 600); place < series.rate.length; place++) most = Math.max(most, series.rate[place]);
  const power = 10 ** Math.floor(Math.log10(Math.max(most * 1.25, 1)));
  const round = ([1, 2, 4, 10].find((k) => k * power >= most * 1.25) ?? 10) * power;
  series.top = Math.max(series.top, Math.min(round, setting || round));
  return series.top;
}
