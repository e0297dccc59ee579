// @ts-check
// The charts under the timeline: same gutter, same axis, one cursor and one stretch of time for all, both ways. Which of
// them are shown is the person's choice and stands in the address. Drawn by uPlot (static/vendor).

import { make, say } from "./dom.js";
import { palette } from "./paint.js";
import { chartsOf } from "./series.js";
import { publishedOf } from "./served.js";
import { TokenCourse } from "./tokencourse.js";
import { axisLabel, ticks } from "./view.js";

const HEIGHT = 96, AXIS = 24, FIRST_SHOWN = 4;
/** Live charts are drawn anew once a second: nobody reads faster, and the timeline needs the frames. */
export const EVERY_MS = 1000;
const COLOURS = ["vl0", "vl2", "vl1", "vl3", "completed-edge", "ink-2"];
const DASHES = [[], [6, 3], [2, 3], [10, 3, 2, 3], [], [6, 3]];

/** @typedef {{chart: import("./series.js").Chart, box: HTMLElement, legend: HTMLElement, plot: any, picture: import("./series.js").Picture, top: number, shape: string}} Shown */

export class Charts {
  /**
   * @param {{panel: HTMLElement, plots: HTMLElement, menu: HTMLElement, empty: HTMLElement}} parts
   * @param {import("./model.js").Model} model @param {import("./timeline.js").Timeline} timeline
   * @param {{wanted: string[] | null, changed: (ids: string[] | null) => void}} choice
   */
  constructor(parts, model, timeline, choice) {
    this.parts = parts;
    this.model = model;
    this.timeline = timeline;
    this.wanted = choice.wanted;
    this.changed = choice.changed;
    this.tokens = new TokenCourse();
    /** @type {Map<string, Shown>} */ this.shown = new Map();
    this.offered = "";
    this.drawnAt = -Infinity;
    this.pointing = false;
    timeline.onView(() => this.#move());
    timeline.onCursor((t) => this.#point(t));
    document.addEventListener("theme", () => { for (const one of this.shown.values()) one.shape = ""; this.draw(true); });
    new ResizeObserver(() => this.draw(true)).observe(parts.plots);
  }

  /** Takes what is new and shows it. @param {boolean} [force] */
  draw(force = false) {
    const now = performance.now();
    if (!force && now - this.drawnAt < EVERY_MS) return;
    this.drawnAt = now;
    const { exchanges, tracks } = this.model;
    this.tokens.look(exchanges.exchanges.length || !tracks.tracks.size ? exchanges.exchanges : publishedOf(tracks));
    const charts = chartsOf(this.model, this.tokens, () => this.timeline.port);
    const ids = charts.map((chart) => chart.id), shown = this.#chosen(ids);
    this.#offer(charts, shown);
    for (const [id, one] of this.shown) if (!shown.includes(id)) { one.plot?.destroy(); one.box.remove(); this.shown.delete(id); }
    for (const chart of charts) if (shown.includes(chart.id)) this.#show(chart);
    for (const id of shown) this.parts.plots.append(/** @type {Shown} */ (this.shown.get(id)).box);
    this.parts.empty.hidden = shown.length > 0;
    say(this.parts.empty, ids.length ? "No chart is chosen." : this.timeline.live ? "Charts appear with the first readings." : "This run has logged nothing that a chart shows.");
  }

  /** @param {string[]} ids */
  #chosen(ids) {
    return this.wanted ? ids.filter((id) => /** @type {string[]} */ (this.wanted).includes(id)) : ids.slice(0, FIRST_SHOWN);
  }

  /** The menu of charts. @param {import("./series.js").Chart[]} charts @param {string[]} shown */
  #offer(charts, shown) {
    const offered = `${charts.map((chart) => chart.id)} / ${shown}`;
    if (offered === this.offered) return;
    this.offered = offered;
    this.parts.menu.replaceChildren(...charts.map((chart) => {
      const box = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox", value: chart.id }));
      box.checked = shown.includes(chart.id);
      box.addEventListener("change", () => {
        const now = new Set(shown);
        if (box.checked) now.add(chart.id); else now.delete(chart.id);
        this.wanted = charts.map((one) => one.id).filter((id) => now.has(id));
        this.changed(this.wanted);
        this.draw(true);
        /** @type {HTMLElement | null} */ (this.parts.menu.querySelector(`[value="${chart.id}"]`))?.focus();
      });
      return make("label", {}, box, make("span", {}, `${chart.title}, ${chart.unit}`));
    }));
  }

  /** @param {import("./series.js").Chart} chart */
  #show(chart) {
    let one = this.shown.get(chart.id);
    if (!one) {
      const legend = make("span", { class: "lines" });
      const head = make("figcaption", {}, make("b", {}, chart.title), make("span", { class: "dim" }, chart.unit), legend);
      head.title = chart.words;
      const box = make("figure", { class: "plot", "data-chart": chart.id }, head);
      this.shown.set(chart.id, (one = { chart, box, legend, plot: null, picture: { x: [], lines: [] }, top: 0, shape: "" }));
    }
    one.chart = chart;
    this.#read(one);
  }

  /** @param {Shown} one */
  #read(one) {
    const { start, end } = this.timeline.view;
    const picture = one.picture = one.chart.read(start, end);
    for (const line of picture.lines) for (const value of line.y) if (value !== null && value > one.top) one.top = value;
    const width = Math.max(240, this.parts.plots.clientWidth), shape = `${picture.lines.map((line) => line.name)} ${this.timeline.left} ${width}`;
    const data = [picture.x, ...picture.lines.map((line) => line.y)];
    if (shape !== one.shape) {
      one.shape = shape;
      one.plot?.destroy();
      one.plot = this.#make(one, width, data);
    } else one.plot.setData(data);
    this.#legend(one, null);
    one.box.lastElementChild?.setAttribute("aria-label", summary(one));
  }

  /** @param {Shown} one @param {number} width @param {any[]} data */
  #make(one, width, data) {
    const colours = palette(), font = `11px ${colours.sans}`, view = this.timeline.view;
    const plot = new /** @type {any} */ (window).uPlot({
      width, height: HEIGHT + AXIS, padding: [8, 8, 0, 0], legend: { show: false },
      cursor: { y: false, points: { size: 5 }, drag: { x: true, y: false, setScale: false } },
      select: { show: true },
      scales: { x: { time: false, range: () => [view.start, view.end] }, y: { range: () => [0, niceTop(one.top)] } },
      axes: [
        { stroke: colours["ink-3"], font, size: AXIS, gap: 2, grid: { stroke: colours.line, width: 1 }, ticks: { show: false },
          splits: () => ticks(Math.max(0, view.start), view.end, width - this.timeline.left).at,
          values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((t) => axisLabel(t, at.length > 1 ? at[1] - at[0] : 1e9)) },
        { stroke: colours["ink-3"], font, size: this.timeline.left, gap: 6, grid: { stroke: colours.line, width: 1 }, ticks: { show: false },
          splits: () => [0, niceTop(one.top) / 2, niceTop(one.top)], values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(figure) },
      ],
      series: [{}, ...one.picture.lines.map((line, place) => ({
        label: line.name, stroke: colours[COLOURS[place % COLOURS.length]], width: 1.6, spanGaps: one.chart.id === "lanes",
        dash: line.style === "dash" ? [6, 3] : line.style ? undefined : DASHES[place % DASHES.length],
        points: line.style === "dots" ? { show: true, size: 4, width: 1.2 } : { show: (/** @type {any} */ u, /** @type {number} */ index) => u.data[index].filter((/** @type {any} */ v) => v !== null).length < 3, size: 4 },
        ...(line.style === "dots" ? { paths: () => null } : {}),
      }))],
      hooks: {
        setCursor: [(/** @type {any} */ u) => this.#pointed(one, u)],
        setSelect: [(/** @type {any} */ u) => this.#selected(u)],
      },
    }, data, undefined);
    plot.root.setAttribute("role", "img");
    one.box.querySelector(".uplot")?.remove();
    one.box.append(plot.root);
    plot.over.addEventListener("pointerleave", () => { this.timeline.setCursor(null); this.#point(null); });
    return plot;
  }

  /** The pointer is on a chart. @param {Shown} one @param {any} plot */
  #pointed(one, plot) {
    if (this.pointing) return;
    const left = plot.cursor.left;
    if (left === undefined || left < 0) return;
    const t = plot.posToVal(left, "x");
    this.timeline.setCursor(t);
    this.#point(t, one);
  }

  /** A stretch was drawn on a chart. @param {any} plot */
  #selected(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const start = plot.posToVal(left, "x"), end = plot.posToVal(left + width, "x");
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.timeline.view.set(start, end);
    this.timeline.bring();
    this.timeline.on.moved();
  }

  /** Shows a moment on every chart but the one it came from. @param {number | null} t @param {Shown} [from] */
  #point(t, from) {
    this.pointing = true;
    for (const one of this.shown.values()) {
      if (one !== from && one.plot) one.plot.setCursor(t === null ? { left: -10, top: -10 } : { left: one.plot.valToPos(t, "x"), top: 10 }, false);
      this.#legend(one, t);
    }
    this.pointing = false;
  }

  /** Names and values of the lines: at the moment, else the newest. @param {Shown} one @param {number | null} t */
  #legend(one, t) {
    const { x, lines } = one.picture, colours = palette();
    let place = x.length - 1;
    if (t !== null) { place = 0; while (place + 1 < x.length && Math.abs(x[place + 1] - t) <= Math.abs(x[place] - t)) place++; }
    if (one.legend.childElementCount !== lines.length) {
      one.legend.replaceChildren(...lines.map(() => make("span", {}, make("i"), make("span"), make("b"))));
    }
    lines.forEach((line, at) => {
      const item = one.legend.children[at], value = line.y[place];
      const swatch = /** @type {HTMLElement} */ (item.children[0]);
      swatch.className = line.style ?? (DASHES[at % DASHES.length].length ? "dash" : "line");
      swatch.style.color = colours[COLOURS[at % COLOURS.length]];
      say(item.children[1], line.name);
      say(item.children[2], value === null || value === undefined ? "–" : figure(value));
    });
  }

  /** The timeline shows another stretch. */
  #move() { for (const one of this.shown.values()) if (one.plot) this.#read(one); }
}

/** A round top for an axis. @param {number} most */
export function niceTop(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return ([1, 2, 4, 5, 10].find((k) => k * power >= most * 1.02) ?? 20) * power;
}

/** @param {number} value */
export function figure(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(size >= 1e7 ? 0 : 1)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(0)} k`;
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/** What the picture shows, for those who do not see it. @param {Shown} one */
function summary(one) {
  const parts = one.picture.lines.map((line) => {
    const values = /** @type {number[]} */ (line.y.filter((value) => value !== null));
    return values.length ? `${line.name} ${figure(Math.min(...values))} to ${figure(Math.max(...values))}, last ${figure(values[values.length - 1])}` : `${line.name} has no value here`;
  });
  return `${one.chart.title}, ${one.chart.unit}: ${parts.join("; ")}`;
}
