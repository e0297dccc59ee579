// @ts-check
// The plan's network as a picture: fabrics as bars, nodes between them, links whose width and number are their load.

import { rate } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
/** Room for the ports that a node has on one fabric. */
const PORTS_WIDE = 48;
const WIDE = 520, NARROW = 340, BAR = 26, NODE_H = 40, LINK = 46;
/** From 90 % a link is marked: by shape, weight and colour. */
const HOT = 0.9;
/** From the clients' side to the GPUs'; what is not named here comes last. */
const ORDER = ["client", "scheduler", "dpu", "gpu", "prefill", "decode", "storage", "host"];

/** @typedef {{name: string, role: string, ports: {interface: string, fabric: string, rate: number}[], attached?: string[]}} Node */

/** @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] */
function element(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  if (text !== undefined) node.textContent = text;
  return node;
}

export class Topology {
  /** @param {HTMLElement} box @param {HTMLElement} sub @param {{nodes: Node[], fabrics: {name: string, roce: boolean, mtu: number}[]}} plan @param {import("./machine.js").LinkFold} links */
  constructor(box, sub, plan, links) {
    this.links = links;
    /** @type {{port: string, line: Element, text: Element | null, rate: number}[]} */ this.meters = [];
    this.width = box.clientWidth && box.clientWidth < 440 ? NARROW : WIDE;
    const svg = element("svg", { role: "img", "aria-label": describe(plan) });
    const height = this.#lay(svg, plan);
    svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    box.replaceChildren(svg);
    const fabrics = plan.fabrics.length === 1 ? "1 fabric" : `${plan.fabrics.length} fabrics`;
    sub.textContent = `${plan.nodes.length} nodes, ${fabrics}; load of the emulated links, towards each node`;
  }

  /** Rows: nodes that touch only the fabric below, the fabric, nodes between two fabrics, and so on. @param {Element} svg @param {{nodes: Node[], fabrics: {name: string, roce: boolean, mtu: number}[]}} plan */
  #lay(svg, plan) {
    const rank = (/** @type {Node} */ node) => (ORDER.indexOf(node.role) + ORDER.length + 1) % (ORDER.length + 1);
    const fabrics = plan.fabrics.map((fabric) => fabric.name);
    /** @type {Node[][]} */ const rows = fabrics.map(() => []);
    rows.push([]);
    for (const node of [...plan.nodes].sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1))) {
      const touched = node.ports.map((port) => fabrics.indexOf(port.fabric)).filter((place) => place >= 0);
      if (!touched.length) rows[rows.length - 1].push(node);
      else if (touched.length > 1) rows[Math.max(...touched)].push(node);
      else rows[touched[0] === 0 ? 0 : touched[0] + 1].push(node);
    }
    let y = 2;
    /** @type {Map<string, number>} */ const barAt = new Map();
    /** @type {{node: Node, x: number, y: number}[]} */ const placed = [];
    rows.forEach((row, place) => {
      if (row.length) {
        if (place > 0) y += LINK;
        const pitch = this.width / row.length;
        row.forEach((node, column) => placed.push({ node, x: pitch * (column + 0.5), y }));
        y += NODE_H;
      }
      if (place < fabrics.length) {
        y += row.length || place === 0 ? LINK : LINK / 2;
        barAt.set(fabrics[place], y);
        this.#bar(svg, plan.fabrics[place], y);
        y += BAR;
      }
    });
    for (const { node, x, y: top } of placed) {
      for (const fabric of fabrics) {
        const ports = node.ports.filter((port) => port.fabric === fabric), bar = barAt.get(fabric);
        if (bar === undefined) continue;
        // Several ports on one fabric stand side by side; there is room for one number, that of the first.
        ports.forEach((port, place) => this.#link(svg, `${node.name}.${port.interface}`, port.rate,
          x + (place - (ports.length - 1) / 2) * Math.min(10, PORTS_WIDE / ports.length), bar < top ? bar + BAR : top + NODE_H, bar < top ? top : bar,
          place === 0 ? x + Math.min(PORTS_WIDE, 10 * ports.length) / 2 + 4 : null));
      }
    }
    for (const one of placed) this.#node(svg, one.node, one.x, one.y);
    return y + 4;
  }

  /** @param {Element} svg @param {{name: string, roce: boolean, mtu: number}} fabric @param {number} y */
  #bar(svg, fabric, y) {
    svg.append(element("rect", { class: "fabric", x: 1, y, width: this.width - 2, height: BAR, rx: 4, ...(fabric.roce ? {} : { "stroke-dasharray": "2 3" }) }),
      element("text", { class: "b", x: 12, y: y + 17 }, fabric.name),
      element("text", { class: "d", x: this.width - 12, y: y + 17, "text-anchor": "end" }, `${fabric.roce ? "RoCEv2" : "TCP"}, MTU ${fabric.mtu}`));
  }

  /** @param {Element} svg @param {Node} node @param {number} x @param {number} y */
  #node(svg, node, x, y) {
    const width = 104;
    svg.append(element("rect", { class: "node", x: x - width / 2, y, width, height: NODE_H, rx: 5, ...(node.ports.length || attached(node) ? {} : { "stroke-dasharray": "2 3" }) }),
      element("text", { class: "b", x, y: y + 17, "text-anchor": "middle" }, node.name),
      element("text", { class: "d", x, y: y + 32, "text-anchor": "middle" }, node.ports.length ? node.role : `${node.role}, ${attached(node) ? "on PCIe" : "off the path"}`));
  }

  /** @param {Element} svg @param {string} port @param {number} setting @param {number} x @param {number} y0 @param {number} y1 @param {number | null} words where its number stands, if anywhere */
  #link(svg, port, setting, x, y0, y1, words) {
    const line = element("line", { class: "link none", x1: x, x2: x, y1: y0, y2: y1, "stroke-width": 1.5 });
    const text = words === null ? null : element("text", { class: "d", x: words, y: (y0 + y1) / 2 + 4 }, rate(setting));
    svg.append(line, ...(text ? [text] : []));
    this.meters.push({ port, line, text, rate: setting });
  }

  /** Shows the newest readings. */
  draw() {
    for (const meter of this.meters) {
      const load = this.links.load(meter.port);
      if (!load) continue;
      const setting = load.setting || meter.rate, share = setting ? load.rate / setting : 0, hot = share >= HOT;
      meter.line.setAttribute("stroke-width", String(1.5 + 8 * Math.min(1, share)));
      meter.line.setAttribute("class", `link${hot ? " hot" : ""}`);
      if (!meter.text) continue;
      meter.text.setAttribute("class", hot ? "hot" : "d");
      meter.text.textContent = `${share >= 0.095 ? Math.round(share * 100) : (share * 100).toFixed(1)} % of ${rate(setting)}${hot ? " ▲" : ""}`;
    }
  }
}

/** Whether it has a PCIe link to another node; that its ports do not show. @param {Node} node */
function attached(node) {
  return Boolean(node.attached?.length);
}

/** @param {{nodes: Node[], fabrics: {name: string}[]}} plan */
function describe(plan) {
  return plan.nodes.map((node) => {
    const places = node.ports.map((port) => port.fabric);
    if (attached(node)) places.push(`PCIe to ${node.attached?.join(" and ")}`);
    return `${node.name} on ${places.length ? places.join(" and ") : "no fabric"}`;
  }).join("; ");
}
