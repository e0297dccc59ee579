// @ts-check
// What the GPU and the links did: graph launches with their batch, window relaunches, batch figures, link readings.

/** `end` is null where the log does not say when the device was done. @typedef {{t: number, end: number | null, batch: number, kind: string}} Launch */
/** @typedef {{t: number[], rate: number[], setting: number, drops: number, sent: number, top: number}} Series */

const LAUNCHES = new Set(["graph.launched", "forward.finished", "window.relaunched", "batch.changed"]), READINGS = new Set(["link.measured"]);

export class LaunchFold {
  constructor() {
    this.takes = LAUNCHES;
    /** @type {Map<string, Launch[]>} */ this.byNode = new Map();
    /** @type {Map<string, {t: number, gap: number, launches: number}[]>} */ this.relaunches = new Map();
    /** @type {Map<string, {running: number, paused: number, pending: number, free: number, total: number}>} */ this.batches = new Map();
    this.count = 0;
    this.largest = 1;
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    if (event.type === "graph.launched") {
      this.#launch(event.node, { t: event.t, end: null, batch: event.batch, kind: event.kind });
    } else if (event.type === "forward.finished") {
      this.#launch(`${event.node}.${event.engine}`, { t: event.began, end: event.t, batch: event.turns.length, kind: event.kind });
    } else if (event.type === "window.relaunched") {
      push(this.relaunches, event.node, { t: event.t, gap: event.gap, launches: event.launches });
    } else if (event.type === "batch.changed") {
      this.batches.set(event.node, { running: event.running, paused: event.paused, pending: event.pending,
        free: event.kv_blocks_free, total: event.kv_blocks_total });
    }
  }

  /** By device: a GPU, or an engine of a node. @param {string} device @param {Launch} launch */
  #launch(device, launch) {
    push(this.byNode, device, launch);
    this.count++;
    this.largest = Math.max(this.largest, launch.batch);
  }

  /** Devices that have launched something, by name. */
  devices() { return [...this.byNode.keys()].sort(); }
}

export class LinkFold {
  constructor() {
    this.takes = READINGS;
    /** Readings by port, then by lane; -1 is the whole port. @type {Map<string, Map<number, Series>>} */ this.ports = new Map();
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    if (event.type !== "link.measured") return;
    let lanes = this.ports.get(event.port);
    if (!lanes) this.ports.set(event.port, (lanes = new Map()));
    let series = lanes.get(event.lane);
    if (!series) lanes.set(event.lane, (series = { t: [], rate: [], setting: 0, drops: 0, sent: 0, top: 0 }));
    series.t.push(event.t);
    series.rate.push(event.rate_bits_per_s);
    series.setting = event.setting_bits_per_s;
    series.drops += event.drops;
    series.sent += event.bytes;
  }

  /** Ports that have lane readings first, then by name. @returns {string[]} */
  names() {
    const lanes = (/** @type {string} */ port) => [...(this.ports.get(port)?.keys() ?? [])].filter((lane) => lane >= 0).length;
    return [...this.ports.keys()].sort((a, b) => lanes(b) - lanes(a) || (a < b ? -1 : 1));
  }

  /** The newest reading of a whole port; of the sum of its lanes where there is no whole one. @param {string} port */
  load(port) {
    const lanes = this.ports.get(port);
    if (!lanes) return null;
    const whole = lanes.get(-1);
    if (whole) return { rate: whole.rate.at(-1) ?? 0, setting: whole.setting };
    let rate = 0, setting = 0;
    for (const series of lanes.values()) { rate += series.rate.at(-1) ?? 0; setting = Math.max(setting, series.setting); }
    return { rate, setting };
  }
}

/** @template T @param {Map<string, T[]>} map @param {string} key @param {T} value */
function push(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value); else map.set(key, [value]);
}

/** Index of the first place in `sorted` that is not less than `t`. @param {ArrayLike<number>} sorted @param {number} t */
export function lowerBound(sorted, t) {
  let low = 0, high = sorted.length;
  while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] < t) low = middle + 1; else high = middle; }
  return low;
}

/** As lowerBound, over things with a time. @param {{t: number}[]} things @param {number} t */
export function lowerBoundBy(things, t) {
  let low = 0, high = things.length;
  while (low < high) { const middle = (low + high) >> 1; if (things[middle].t < t) low = middle + 1; else high = middle; }
  return low;
}
