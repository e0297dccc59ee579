// @ts-check
// What goes up and down during a run beside requests and links: batches, queues, storage reads, memory, CPU, lateness,
// launch gaps, neighbours. Figures that are logged as readings; a run that logs none of a kind has no such course.

import { Course } from "./course.js";

/** Resources that are a port's own wire; the rest are memories and PCIe. */
const PORTS = new Set(["wire", "snic_rx"]);
const READ_SIDES = { snic_rx: "read", snic_tx: "write" };

export class CourseFold {
  constructor() {
    /** By what is measured, then by where. @type {Map<string, Map<string, Course>>} */ this.kinds = new Map();
    /** Units of the neighbours' work, by name. @type {Map<string, string>} */ this.units = new Map();
    this.dilation = 1;
    this.version = 0;
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    const { t, node } = event;
    switch (event.type) {
      case "run.started": this.dilation = event.dilation || 1; return;
      case "batch.changed":
        this.#gauge("running", node, t, event.running);
        this.#gauge("paused", node, t, event.paused);
        this.#gauge("pending", node, t, event.pending);
        if (event.kv_blocks_total) this.#gauge("kv", node, t, (100 * (event.kv_blocks_total - event.kv_blocks_free)) / event.kv_blocks_total);
        break;
      case "forward.finished": this.#gauge(event.kind === "decode" ? "decoding" : "prefilling", `${node}.${event.engine}`, t, event.turns.length); break;
      case "read_queue.measured": this.#gauge("read queue", node, t, event.tokens); break;
      case "buffer.measured":
        if (event.total) this.#gauge("memory", `${node} ${event.what}`, t, (100 * event.held) / event.total);
        break;
      case "transfer.finished": this.#transfer(event); break;
      case "cpu.measured":
        this.#gauge("cpu", "busy", t, event.busy_percent);
        if (event.some_percent >= 0) this.#gauge("cpu", "waits for a CPU", t, event.some_percent);
        break;
      case "clock.measured": if (event.wakes > 0) this.#gauge("late", node, t, event.p99 / this.dilation / 1e6); break;
      case "launch.gap": this.#gauge("gap", node, t, event.gap / 1e6); break;
      case "neighbour.measured":
        this.units.set(event.name, event.unit);
        if (event.interval > 0) this.#gauge("neighbour", event.name, t, (event.done * 1e9) / event.interval);
        break;
      default: return;
    }
    this.version++;
  }

  /** Bytes over a storage NIC, spread over the time that the transfer took. @param {import("./order.js").Event} event */
  #transfer(event) {
    for (const place of event.crossed ?? []) {
      const [node, port, kind] = place.split(".");
      if (PORTS.has(kind)) this.of("port", `${node}.${port}`, "total").spread(event.began, event.t, event.bytes * 8);
      const side = READ_SIDES[/** @type {keyof READ_SIDES} */ (kind)];
      if (side) this.of(`snic ${side}`, node, "total").spread(event.began, event.t, event.bytes * 8e-9);
    }
  }

  /** @param {string} kind @param {string} where @param {number} t @param {number} value */
  #gauge(kind, where, t, value) { this.of(kind, where, "gauge").add(t, value); }

  /** @param {string} kind @param {string} where @param {"total" | "gauge"} what */
  of(kind, where, what) {
    let places = this.kinds.get(kind);
    if (!places) this.kinds.set(kind, (places = new Map()));
    let course = places.get(where);
    if (!course) places.set(where, (course = new Course(what)));
    return course;
  }

  /** Bits a second over a port by what its finished transfers moved, mean of a stretch; null where none did. @param {string} port @param {number} start @param {number} end */
  portRate(port, start, end) {
    const course = this.kinds.get("port")?.get(port);
    if (!course || !(end > start)) return null;
    const { y } = course.read(start, end, course.width), told = y.filter((value) => value !== null);
    return told.length ? (told.reduce((sum, value) => sum + /** @type {number} */ (value), 0) * course.width) / (end - start) : 0;
  }

  /** Courses of a kind by place, in the order of their names. @param {string} kind @returns {[string, Course][]} */
  all(kind) {
    return [...(this.kinds.get(kind) ?? [])].filter(([, course]) => !course.empty).sort(([a], [b]) => (a < b ? -1 : 1));
  }
}
