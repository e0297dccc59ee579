// @ts-check
// The run page: brings what the server sends to the folds, and the folds to the parts of the page.

import { Charts } from "../run/charts.js";
import { Chosen } from "../run/chosen.js";
import { Ports, takeControls } from "../run/controls.js";
import { make, part, say } from "../run/dom.js";
import { Feed } from "../run/feed.js";
import { EVERY_MS, Figures } from "../run/figures.js";
import { several, span } from "../run/format.js";
import { takeHands } from "../run/hands.js";
import { LogView } from "../run/logview.js";
import { Model } from "../run/model.js";
import { Remember } from "../run/remember.js";
import { RingMap } from "../run/ringmap.js";
import { Rows } from "../run/rows.js";
import { RowTable } from "../run/rowtable.js";
import { Standing } from "../run/standing.js";
import { Timeline } from "../run/timeline.js";
import { Topology } from "../run/topology.js";

const page = JSON.parse(part("page-facts").textContent ?? "{}");
const remember = new Remember(new URL(location.href)), given = remember.stretch();
const model = new Model({ levels: page.levels, limits: page.limits });
let ended = false;

// --- parts of the page ---------------------------------------------------------------------------------------------

const timeline = new Timeline(/** @type {HTMLCanvasElement} */ (part("tl-canvas")), model, { select: (lane) => chosen.tell(lane), moved });
const ring = new RingMap({ canvas: /** @type {HTMLCanvasElement} */ (part("ring")), legend: part("ring-key"), tip: part("ring-tip"), title: part("ring-title"), sub: part("ring-sub"), said: part("ring-said") },
  model, { request: (request) => timeline.choose(`r${request}`) });
const figures = new Figures(part("figures"), model);
const standing = new Standing(model, page, { show: (start, end) => { timeline.show(start, end); part("tl").scrollIntoView({ block: "nearest" }); } });
const log = new LogView({ list: part("log"), sub: part("log-sub"), level: /** @type {HTMLSelectElement} */ (part("log-level")),
  node: /** @type {HTMLSelectElement} */ (part("log-node")), text: /** @type {HTMLInputElement} */ (part("log-text")), pause: part("log-pause"),
  older: part("log-older"), download: /** @type {HTMLAnchorElement} */ (part("log-download")) }, model.journal, { address: page.log, trial: page.trial, remember, show: (t) => timeline.show(t, t) });
const charts = new Charts({ panel: part("charts"), plots: part("plots"), menu: part("charts-menu"), empty: part("plots-empty") }, model, timeline,
  { wanted: remember.get("charts")?.split(",") ?? null, changed: (ids) => remember.set({ charts: ids && (ids.join(",") || "none") }) });
const chosen = new Chosen({ brief: part("sel"), story: part("story"), tip: part("tl-tip"), canvas: part("tl-canvas") }, { timeline, model, ring, remember }, page.story);
const ports = new Ports(timeline, model.links, remember, () => charts.draw(true));
const rows = new Rows(/** @type {HTMLElement} */ (part("tl").querySelector(".seg")), timeline, remember);
new RowTable(/** @type {HTMLElement} */ (part("tl").querySelector(".tlw")), timeline);
/** @type {Topology | null} */ let topology = null;
takeHands(timeline, { hover: (x, y) => chosen.hover(x, y), leave: () => chosen.leave(), story: () => chosen.toggle() });
takeControls(timeline, remember, moved);

/** @param {any} plan */
function takePlan(plan) {
  if (!plan) {
    part("topo").replaceChildren(make("p", { class: "empty" }, make("b", {}, "No network yet"), "The plan is written when a worker takes the run."));
    return;
  }
  topology = new Topology({ box: part("topo"), sub: part("topo-sub"), table: part("topo-table") }, plan, model);
  ring.plan(plan.slots ?? 0, plan.rings);
  // A system without a ring of slots has no map of one.
  part("ring-panel").hidden = !ring.slots;
  const scales = [];
  if (plan.clock === "wall" && plan.dilation !== 1) scales.push(`time × ${plan.dilation}`);
  if (plan.clock === "wall" && plan.byte_scale !== 1) scales.push(`links ÷ ${plan.byte_scale}`);
  say(part("scale"), scales.join(", "));
  part("scale").title = "Every figure on this page is in true units of the modelled hardware.";
  // A few seconds of wall time on screen, whatever the clock's stretch.
  if (timeline.view.follow && !model.events) timeline.view.setSpan(plan.clock === "wall" ? Math.max(0.25e9, 10e9 / plan.dilation) : 4e9);
}

function moved() {
  part("follow").setAttribute("aria-pressed", String(timeline.view.follow));
  remember.keepView(timeline.view);
}

// --- drawing ---------------------------------------------------------------------------------------------------------

/** Events are folded in the frame after they came. */
let folding = false;
function soon() {
  if (folding) return;
  folding = true;
  requestAnimationFrame(() => { folding = false; advance(); });
}

/** Folds what is complete and shows it; figures at most twice a second, and never for more than a tenth of the time,
 * since they take longer the more there is to sort. @param {boolean} [whole] At the end: all of it, now. */
let figuresAt = 0, unshown = false;
function advance(whole = false) {
  if (model.advance(performance.now(), ended) || whole) {
    unshown = true;
    timeline.advance();
    ring.dirty = true;
    ports.offer();
    rows.offer();
  }
  const now = performance.now();
  if (now < figuresAt && !whole) return;
  figures.update(whole);
  standing.draw();
  topology?.draw();
  log.draw();
  if (unshown) chosen.advance();
  unshown = false;
  charts.draw();
  captions();
  figuresAt = now + Math.max(EVERY_MS, 10 * (performance.now() - now));
}

function captions() {
  const lanes = timeline.lanes(), shown = Math.min(timeline.rows, lanes.length), first = timeline.first(lanes.length);
  const beside = `on one axis with the GPU${model.ring.rings.size > 1 ? "s" : ""}${timeline.port ? " and a port's lanes" : ""}`;
  say(part("tl-sub"), lanes.length > shown ? `requests ${first + 1} to ${first + shown} of ${lanes.length}, ${beside}` : lanes.length ? `${several(lanes.length, "request")}, ${beside}` : "");
  /** @type {HTMLButtonElement} */ (part("rows-up")).disabled = first === 0;
  /** @type {HTMLButtonElement} */ (part("rows-down")).disabled = first + shown >= lanes.length;
  part("key-pe").hidden = part("key-de").hidden = model.turns.byName.size === 0;
  const empty = part("tl-empty"), { state, outcome } = standing.run;
  empty.hidden = lanes.length > 0;
  if (!empty.hidden) {
    const [head, words] = state === "queued" ? ["Waiting for its turn", "The first marks appear when the first request is sent."]
      : state === "finished" ? ["No request was sent", outcome === "passed" || outcome === "failed" ? "Its systems made traffic of their own: the figures are in the tables below." : "The log below says how far it came."]
        : ["No request yet", "Nodes wait at the barrier; the first request follows."];
    say(/** @type {Element} */ (empty.querySelector("b")), head);
    say(/** @type {Element} */ (empty.querySelector("span")), words);
  }
}

async function finish() {
  ended = true;
  timeline.live = figures.live = ring.live = log.live = false;
  const wasFollowing = timeline.view.follow;
  advance(true);
  if (wasFollowing || (chosen.restored && !given)) {
    // Nothing follows any more: the whole run, from its first request on, or around the one that the address names.
    timeline.view.fit();
    if (wasFollowing) timeline.top = 0;
    part("follow").setAttribute("aria-pressed", "false");
  }
  /** @type {HTMLButtonElement} */ (part("follow")).disabled = true;
  document.getElementById("cancel")?.remove();
  if (given && !timeline.selected) timeline.bring();
  timeline.refresh();
  if (topology) { topology.live = false; topology.draw(); }
  charts.draw(true);
  captions();
  // The report is written last, a moment after the outcome.
  for (const wait of [0, 2000, 8000]) setTimeout(() => document.body.dispatchEvent(new CustomEvent("run-ended")), wait);
  try {
    const answer = await fetch(page.api, { headers: { Accept: "application/json" } });
    if (answer.ok) standing.update(await answer.json());
  } catch { /* the strip keeps what the stream said */ }
}

// --- what the server sends ---------------------------------------------------------------------------------------------

const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const feed = new Feed({ stream: `${scheme}//${location.host}${page.stream}`, pack: page.pack }, {
  events: (events) => { model.add(events, performance.now()); soon(); },
  packed: (pack) => { model.load(pack); timeline.advance(); ports.offer(); rows.offer(); },
  progress: (share) => standing.reading(share),
  run: takeRun,
  end: () => void finish(),
  state: (state, words) => standing.heard(state, words),
});

/** @param {any} facts */
function takeRun(facts) {
  standing.update(facts);
  // The plan, and for several trials their labels, are written when the run starts: the page asks once more.
  if (!topology && facts.state !== "queued") void askForPlan();
}

async function askForPlan() {
  try {
    const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const facts = JSON.parse(fresh.getElementById("page-facts")?.textContent ?? "{}");
    if (facts.trial !== page.trial) { location.reload(); return; }
    if (facts.plan && !topology) takePlan(facts.plan);
    else if (!topology && standing.run.state !== "finished") setTimeout(askForPlan, 1000);
  } catch { setTimeout(askForPlan, 3000); }
}

takePlan(page.plan);
if (given) { timeline.view.set(...given); moved(); }
chosen.tell(null);
standing.draw();
figures.update(true);
captions();
log.draw(true);
charts.draw(true);
feed.start(page.run.state === "finished");
// Also without news: what waits for a silent node is let go after a while.
setInterval(() => advance(), 100);
addEventListener("pagehide", () => feed.close());
/** For the browser tests: what the page knows, to hold against the log. */
Object.assign(window, { looplane: { model, timeline, feed, stream: feed.stream, verdict: standing, charts, span } });
