// @ts-check
// The plan's network: fabrics as bars, nodes between them, links whose width and number are their load. Nodes of one row
// stand in as many lines as they need, so that sixteen of them stay readable; beside the picture there is always a table
// with the same figures, which is what narrow screens show.

import { make, say } from "./dom.js";
import { rate } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const NARROW = 440, BAR = 26, NODE_H = 40, NODE_W = 104, LINK = 46, SHORT_LINK = 34;
/** A node and the number beside its link take this much. */
const PITCH = 148;
/** From 90 % a link is marked: by shape, weight and colour. */
const HOT = 0.9;
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
  /** @param {{box: HTMLElement, sub: HTMLElement, table: HTMLElement}} parts @param {Plan} plan @param {import("./machine.js").LinkFold} links */
  constructor(parts, plan, links) {
    this.parts = parts;
    this.plan = plan;
    this.links = links;
    /** Chosen by hand; null follows the width. @type {boolean | null} */ this.asTable = null;
    this.shape = "";
    /** @type {{ports: string[], line: Element | null, text: Element, rate: number}[]} */ this.meters = [];
    parts.table.addEventListener("click", () => { this.asTable = !this.#tabular; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(parts.box);
    const fabrics = plan.fabrics.length === 1 ? "1 fabric" : `${plan.fabrics.length} fabrics`;
    say(parts.sub, `${plan.nodes.length} nodes, ${fabrics}; load of the emulated links, towards each node`);
    this.draw();
  }

  get #tabular() { return this.asTable ?? (this.parts.box.clientWidth > 0 && this.parts.box.clientWidth < NARROW); }

  #make() {
    const { box, table } = this.parts, tabular = this.#tabular, width = Math.max(NARROW - 32, box.clientWidth - 32);
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
    box.replaceChildren(svg);
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
    const { plan } = this, rows = this.#rows(), aLine = Math.max(2, Math.floor(width / PITCH));
    let y = 2;
    /** @type {Map<string, number>} */ const barAt = new Map();
    /** @type {{node: Node, x: number, y: number}[]} */ const placed = [];
    rows.forEach((row, place) => {
      const lines = Math.ceil(row.length / aLine), each = Math.ceil(row.length / Math.max(1, lines));
      for (let line = 0; line < lines; line++) {
        const here = row.slice(line * each, (line + 1) * each), pitch = width / here.length;
        if (place > 0 || line > 0) y += line > 0 ? SHORT_LINK : LINK;
        here.forEach((node, column) => placed.push({ node, x: pitch * (column + 0.5) + (line % 2 ? PITCH / 6 : 0), y }));
        y += NODE_H;
      }
      if (place < plan.fabrics.length) {
        y += row.length || place === 0 ? LINK : LINK / 2;
        barAt.set(plan.fabrics[place].name, y);
        this.#bar(svg, plan.fabrics[place], y, width);
        y += BAR;
      }
    });
    for (const { node, x, y: top } of placed) {
      for (const fabric of plan.fabrics) {
        const ports = node.ports.filter((port) => port.fabric === fabric.name), bar = barAt.get(fabric.name);
        if (bar === undefined || !ports.length) continue;
        this.#link(svg, node, ports, x, bar < top ? bar + BAR : top + NODE_H, bar < top ? top : bar, bar < top);
      }
    }
    for (const one of placed) this.#node(svg, one.node, one.x, one.y);
    return y + 4;
  }

  /** @param {Element} svg @param {Fabric} fabric @param {number} y @param {number} width */
  #bar(svg, fabric, y, width) {
    svg.append(element("rect", { class: "fabric", x: 1, y, width: width - 2, height: BAR, rx: 4, ...(fabric.roce ? {} : { "stroke-dasharray": "2 3" }) }),
      element("text", { class: "b", x: 12, y: y + 17 }, fabric.name),
      element("text", { class: "d", x: width - 12, y: y + 17, "text-anchor": "end" }, `${fabric.roce ? "RoCEv2" : "TCP"}, MTU ${fabric.mtu}`));
  }

  /** @param {Element} svg @param {Node} node @param {number} x @param {number} y */
  #node(svg, node, x, y) {
    const words = node.ports.length ? node.role : `${node.role}, ${node.attached?.length ? "on PCIe" : "off the path"}`;
    svg.append(element("rect", { class: "node", x: x - NODE_W / 2, y, width: NODE_W, height: NODE_H, rx: 5, ...(node.ports.length || node.attached?.length ? {} : { "stroke-dasharray": "2 3" }) }),
      element("text", { class: "b", x, y: y + 17, "text-anchor": "middle" }, short(node.name)), element("text", { class: "d", x, y: y + 32, "text-anchor": "middle" }, words));
  }

  /** A node's ports on a fabric are one line with their mean; each by itself is in the table. @param {Element} svg @param {Node} node @param {Node["ports"]} ports @param {number} x @param {number} y0 @param {number} y1 @param {boolean} below Whether the node is below the fabric. */
  #link(svg, node, ports, x, y0, y1, below) {
    const line = element("line", { class: "link none", x1: x, x2: x, y1: y0, y2: y1, "stroke-width": 1.5 });
    const text = element("text", { class: "d", x: x + 10, y: below ? y1 - 8 : y0 + 16 }, `${ports.length > 1 ? `${ports.length} × ` : ""}${rate(ports[0].rate)}`);
    svg.append(line, text);
    this.meters.push({ ports: ports.map((port) => `${node.name}.${port.interface}`), line, text, rate: ports[0].rate });
  }

  /** The same as a table: a row for each port. */
  #table() {
    const rows = this.#rows().flat().flatMap((node) => (node.ports.length ? node.ports : [null]).map((port, place) => {
      const cell = make("td", { class: "num" }, port ? rate(port.rate) : "");
      if (port) this.meters.push({ ports: [`${node.name}.${port.interface}`], line: null, text: cell, rate: port.rate });
      return make("tr", {}, make(place ? "td" : "th", place ? {} : { scope: "row" }, place ? "" : `${node.name}, ${node.role}`), make("td", {}, port ? `${port.fabric}, ${port.interface}` : "no fabric"), cell);
    }));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ports and their load" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Node"), make("th", { scope: "col" }, "Fabric, port"), make("th", { scope: "col", class: "num" }, "Load"))), make("tbody", {}, ...rows)));
  }

  /** Shows the newest readings. */
  draw() {
    this.#make();
    for (const meter of this.meters) {
      const loads = meter.ports.map((port) => this.links.load(port)).filter((load) => load !== null);
      if (!loads.length) continue;
      const shares = loads.map((load) => (load.setting || meter.rate ? load.rate / (load.setting || meter.rate) : 0));
      const share = shares.reduce((a, b) => a + b, 0) / shares.length, hot = Math.max(...shares) >= HOT;
      if (meter.line) {
        meter.line.setAttribute("stroke-width", String(1.5 + 8 * Math.min(1, share)));
        meter.line.setAttribute("class", `link${hot ? " hot" : ""}`);
      }
      meter.text.setAttribute("class", meter.line ? (hot ? "hot" : "d") : `num${hot ? " hot" : ""}`);
      say(meter.text, `${share >= 0.095 ? Math.round(share * 100) : (share * 100).toFixed(1)} % of ${loads.length > 1 ? `${loads.length} × ` : ""}${rate(loads[0].setting || meter.rate)}${hot ? " ▲" : ""}`);
    }
  }
}

/** @param {string} name */
const short = (name) => name.length > 14 ? `${name.slice(0, 13)}…` : name;

/** @param {Plan} plan */
function describe(plan) {
  return plan.nodes.map((node) => {
    const places = [...new Set(node.ports.map((port) => port.fabric))];
    if (node.attached?.length) places.push(`PCIe to ${node.attached.join(" and ")}`);
    return `${node.name} on ${places.length ? places.join(" and ") : "no fabric"}`;
  }).join("; ");
}
