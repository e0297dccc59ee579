// @ts-check
// The plan's network: fabrics as bars, nodes between them, links whose width and number are their load. Many nodes get the
// page's whole width and shorter numbers; beside the picture there is always a table with the same figures, which is what
// narrow screens show.

import { make, say } from "./dom.js";
import { rate } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const BAR = 26, NODE_H = 40, NODE_W = 104, LINK = 46;
/** Width that a node needs with all of its number beside it, and with the least of it. */
const PITCH = 148, LEAST_PITCH = 66;
const NARROW = 440;
/** More nodes than this in a row have the page's whole width. */
const WIDE_ROW = 4;
/** From 90 % a link is marked: by shape, weight and colour. */
const HOT = 0.9, RECENT = 100e6;
/** From the clients' side to the GPUs'; what is not named here comes last. */
const ORDER = ["client", "scheduler", "dpu", "gpu", "prefill", "decode", "storage", "host"];

/** @typedef {{name: string, role: string, ports: {interface: string, fabric: string, rate: number}[], attached?: string[]}} Node */
/** @typedef {{name: string, roce: boolean, mtu: number}} Fabric */
/** @typedef {{nodes: Node[], fabrics: Fabric[]}} Plan */

/** @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] */
function element(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  if (text !== undefined) node.textContent = text;
  return node;
}

export class Topology {
  /** @param {{box: HTMLElement, sub: HTMLElement, table: HTMLElement}} parts @param {Plan} plan @param {import("./model.js").Model} model */
  constructor(parts, plan, model) {
    this.parts = parts;
    this.plan = plan;
    this.model = model;
    /** Whether the run goes on: then loads are of the last moment, else of the whole run. */ this.live = true;
    /** Chosen by hand; null follows the width. @type {boolean | null} */ this.asTable = null;
    this.shape = "";
    /** @type {{ports: string[], line: Element | null, text: Element, rate: number, tight: boolean}[]} */ this.meters = [];
    this.longest = Math.max(1, ...this.#rows().map((row) => row.length));
    parts.box.closest(".panel")?.classList.toggle("whole", this.longest > WIDE_ROW);
    parts.table.addEventListener("click", () => { this.asTable = !this.#tabular; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(parts.box);
    this.draw();
  }

  get #tabular() {
    const width = this.parts.box.clientWidth;
    return this.asTable ?? (width > 0 && (width < NARROW || width / this.longest < LEAST_PITCH));
  }

  #make() {
    const { box, table } = this.parts, tabular = this.#tabular, width = Math.max(this.longest * LEAST_PITCH, box.clientWidth - 32);
    const shape = tabular ? "table" : `picture ${width}`;
    if (shape === this.shape || !box.clientWidth) return;
    this.shape = shape;
    this.meters = [];
    table.setAttribute("aria-pressed", String(tabular));
    if (tabular) { box.replaceChildren(this.#table()); return; }
    const svg = element("svg", { role: "img", "aria-label": describe(this.plan) }), height = this.#lay(svg, width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", String(width));
    svg.setAttribute("height", String(height));
    box.replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The network as a picture" }, svg));
  }

  /** Nodes by the fabrics they touch: those above the first, those between two, those below the last. @returns {Node[][]} */
  #rows() {
    const rank = (/** @type {Node} */ node) => (ORDER.indexOf(node.role) + ORDER.length + 1) % (ORDER.length + 1);
    const fabrics = this.plan.fabrics.map((fabric) => fabric.name);
    /** @type {Node[][]} */ const rows = [...fabrics.map(() => []), []];
    for (const node of [...this.plan.nodes].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, "en", { numeric: true }))) {
      const touched = node.ports.map((port) => fabrics.indexOf(port.fabric)).filter((place) => place >= 0);
      if (!touched.length) rows[rows.length - 1].push(node);
      else if (new Set(touched).size > 1) rows[Math.max(...touched)].push(node);
      else rows[touched[0] === 0 ? 0 : touched[0] + 1].push(node);
    }
    return rows;
  }

  /** @param {Element} svg @param {number} width @returns {number} The height. */
  #lay(svg, width) {
    const { plan } = this;
    let y = 2;
    /** @type {Map<string, number>} */ const barAt = new Map();
    /** @type {{node: Node, x: number, y: number, pitch: number}[]} */ const placed = [];
    this.#rows().forEach((row, place) => {
      if (row.length) {
        if (place > 0) y += LINK;
        const pitch = width / row.length;
        row.forEach((node, column) => placed.push({ node, x: pitch * (column + 0.5), y, pitch }));
        y += NODE_H;
      }
      if (place < plan.fabrics.length) {
        y += row.length || place === 0 ? LINK : LINK / 2;
        barAt.set(plan.fabrics[place].name, y);
        this.#bar(svg, plan.fabrics[place], y, width);
        y += BAR;
      }
    });
    for (const { node, x, y: top, pitch } of placed) {
      for (const fabric of plan.fabrics) {
        const ports = node.ports.filter((port) => port.fabric === fabric.name), bar = barAt.get(fabric.name);
        if (bar === undefined || !ports.length) continue;
        this.#link(svg, node, ports, x, bar < top ? bar + BAR : top + NODE_H, bar < top ? top : bar, pitch < PITCH);
      }
    }
    for (const one of placed) this.#node(svg, one.node, one.x, one.y, Math.min(NODE_W, one.pitch - 10));
    return y + 4;
  }

  /** @param {Element} svg @param {Fabric} fabric @param {number} y @param {number} width */
  #bar(svg, fabric, y, width) {
    svg.append(element("rect", { class: "fabric", x: 1, y, width: width - 2, height: BAR, rx: 4, ...(fabric.roce ? {} : { "stroke-dasharray": "2 3" }) }),
      element("text", { class: "b", x: 12, y: y + 17 }, fabric.name),
      element("text", { class: "d", x: width - 12, y: y + 17, "text-anchor": "end" }, `${fabric.roce ? "RoCEv2" : "TCP"}, MTU ${fabric.mtu}`));
  }

  /** @param {Element} svg @param {Node} node @param {number} x @param {number} y @param {number} width */
  #node(svg, node, x, y, width) {
    const words = node.ports.length ? node.role : `${node.role}, ${node.attached?.length ? "on PCIe" : "off the path"}`;
    svg.append(element("rect", { class: "node", x: x - width / 2, y, width, height: NODE_H, rx: 5, ...(node.ports.length || node.attached?.length ? {} : { "stroke-dasharray": "2 3" }) }),
      element("text", { class: "b", x, y: y + 17, "text-anchor": "middle" }, short(node.name, width)), element("text", { class: "d", x, y: y + 32, "text-anchor": "middle" }, words));
  }

  /** A node's ports on a fabric are one line with their mean; each by itself is in the table. @param {Element} svg @param {Node} node @param {Node["ports"]} ports @param {number} x @param {number} y0 @param {number} y1 @param {boolean} tight Whether there is room for the share alone. */
  #link(svg, node, ports, x, y0, y1, tight) {
    const line = element("line", { class: "link none", x1: x, x2: x, y1: y0, y2: y1, "stroke-width": 1.5 });
    const text = element("text", { class: "d", x: x + 9, y: (y0 + y1) / 2 + 4 }, tight ? "" : `${ports.length > 1 ? `${ports.length} × ` : ""}${rate(ports[0].rate)}`);
    svg.append(line, text);
    this.meters.push({ ports: ports.map((port) => `${node.name}.${port.interface}`), line, text, rate: ports[0].rate, tight });
  }

  /** The same as a table: a row for each port. */
  #table() {
    const rows = this.#rows().flat().flatMap((node) => (node.ports.length ? node.ports : [null]).map((port, place) => {
      const cell = make("td", { class: "num" }, port ? rate(port.rate) : "");
      if (port) this.meters.push({ ports: [`${node.name}.${port.interface}`], line: null, text: cell, rate: port.rate, tight: false });
      return make("tr", {}, make(place ? "td" : "th", place ? {} : { scope: "row" }, place ? "" : `${node.name}, ${node.role}`), make("td", {}, port ? `${port.fabric}, ${port.interface}` : "no fabric"), cell);
    }));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ports and their load" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Node"), make("th", { scope: "col" }, "Fabric, port"), make("th", { scope: "col", class: "num" }, "Load"))), make("tbody", {}, ...rows)));
  }

  /** What a port carries: as the kernel counted it, else by the transfers that have finished. @param {string} port @param {number} setting */
  #load(port, setting) {
    const { links, courses, now } = this.model, read = links.load(port);
    if (read) return { rate: read.rate, setting: read.setting || setting };
    const moved = courses.portRate(port, this.live ? Math.max(0, now - RECENT) : 0, now);
    return moved === null ? null : { rate: moved, setting };
  }

  #caption() {
    const { plan, model } = this, fabrics = plan.fabrics.length === 1 ? "1 fabric" : `${plan.fabrics.length} fabrics`;
    const how = model.links.ports.size ? "load of the emulated links, towards each node" : model.courses.kinds.has("port") ? `load by finished transfers, ${this.live ? "last 100 ms" : "mean of the run"}` : "settings of the links; this run logs no load";
    return `${plan.nodes.length} nodes, ${fabrics}; ${how}`;
  }

  /** Shows the newest readings. */
  draw() {
    this.#make();
    say(this.parts.sub, this.#caption());
    for (const meter of this.meters) {
      const loads = meter.ports.map((port) => this.#load(port, meter.rate)).filter((load) => load !== null);
      if (!loads.length) continue;
      const shares = loads.map((load) => (load.setting ? load.rate / load.setting : 0));
      const share = shares.reduce((a, b) => a + b, 0) / shares.length, hot = Math.max(...shares) >= HOT;
      if (meter.line) {
        meter.line.setAttribute("stroke-width", String(1.5 + 8 * Math.min(1, share)));
        meter.line.setAttribute("class", `link${hot ? " hot" : ""}`);
      }
      meter.text.setAttribute("class", meter.line ? (hot ? "hot" : "d") : `num${hot ? " hot" : ""}`);
      say(meter.text, `${share >= 0.095 ? Math.round(share * 100) : (share * 100).toFixed(1)} %${meter.tight ? "" : ` of ${loads.length > 1 ? `${loads.length} × ` : ""}${rate(loads[0].setting)}`}${hot ? " ▲" : ""}`);
    }
  }
}

/** @param {string} name @param {number} width */
const short = (name, width) => name.length * 7 > width ? `${name.slice(0, Math.max(3, Math.floor(width / 7) - 1))}…` : name;

/** @param {Plan} plan */
function describe(plan) {
  return plan.nodes.map((node) => {
    const places = [...new Set(node.ports.map((port) => port.fabric))];
    if (node.attached?.length) places.push(`PCIe to ${node.attached.join(" and ")}`);
    return `${node.name} on ${places.length ? places.join(" and ") : "no fabric"}`;
  }).join("; ");
}
