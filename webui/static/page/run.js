// @ts-check
// The run page: brings the live stream to the folds, and the folds to the page.

import { make, part, say } from "../run/dom.js";
import { EVERY_MS, Figures } from "../run/figures.js";
import { several, span } from "../run/format.js";
import { takeHands } from "../run/hands.js";
import { LogView } from "../run/logview.js";
import { lowerBound } from "../run/machine.js";
import { Model } from "../run/model.js";
import { RingMap } from "../run/ringmap.js";
import { Stream } from "../run/socket.js";
import { tellBrief, tellWhole, tokenText } from "../run/story.js";
import { label, standing, Timeline } from "../run/timeline.js";
import { Topology } from "../run/topology.js";
import { Verdict } from "../run/verdict.js";

const page = JSON.parse(part("page-facts").textContent ?? "{}");
const address = new URL(location.href);
const model = new Model({ levels: page.levels, limits: page.limits });
let ended = false;
let open = false;
/** @type {string | null} */ let wanted = address.searchParams.get("request");

// --- parts of the page ---------------------------------------------------------------------------------------------

const timeline = new Timeline(/** @type {HTMLCanvasElement} */ (part("tl-canvas")), model, { select: chosen, moved });
const ring = new RingMap({ canvas: /** @type {HTMLCanvasElement} */ (part("ring")), legend: part("ring-key"), tip: part("ring-tip"), sub: part("ring-sub") },
  model, page.plan?.slots ?? null, { request: (request) => timeline.choose(`r${request}`) });
const figures = new Figures(part("figures"), model);
const verdict = new Verdict(model, page.run, page.expectations);
const log = new LogView({ list: part("log"), sub: part("log-sub"), level: /** @type {HTMLSelectElement} */ (part("log-level")),
  text: /** @type {HTMLInputElement} */ (part("log-text")), pause: part("log-pause") }, model.journal);
/** @type {Topology | null} */ let topology = null;
takeHands(timeline, { hover, leave: () => { part("tl-tip").hidden = true; ring.show(null); }, story: () => toggleStory() });

/** @param {any} plan */
function takePlan(plan) {
  if (!plan) {
    part("topo").replaceChildren(make("p", { class: "empty" }, make("b", {}, "No network yet"), "The plan is written when a worker takes the run."));
    return;
  }
  topology = new Topology(part("topo"), part("topo-sub"), plan, model.links);
  ring.slots = plan.slots ?? ring.slots;
  // A system without a ring of slots has no map of one.
  part("ring-panel").hidden = !ring.slots;
  ring.dirty = true;
  const scales = [];
  if (plan.clock === "wall" && plan.dilation !== 1) scales.push(`time × ${plan.dilation}`);
  if (plan.clock === "wall" && plan.byte_scale !== 1) scales.push(`links ÷ ${plan.byte_scale}`);
  say(part("scale"), scales.join(", "));
  part("scale").title = "Every figure on this page is in true units of the modelled hardware.";
  // A few seconds of wall time on screen, whatever the clock's stretch.
  if (timeline.view.follow && !model.events) timeline.view.setSpan(plan.clock === "wall" ? Math.max(0.25e9, 10e9 / plan.dilation) : 4e9);
}

// --- the request that is chosen ------------------------------------------------------------------------------------

/** @param {import("../run/requests.js").Lane | null} lane */
function chosen(lane) {
  tellBrief(part("sel"), lane, open && lane !== null, toggleStory);
  part("story").hidden = !open || lane === null;
  if (open && lane) tellWhole(part("story"), lane);
  ring.selected = lane ? (model.ring.slotOf.get(lane.request ?? -1) ?? lane.slot) : null;
  ring.dirty = true;
  remember();
}

function current() { return timeline.lanes().find((lane) => lane.key === timeline.selected) ?? null; }

function toggleStory() {
  if (!current()) return;
  open = !open;
  chosen(current());
  if (!open) part("tl-canvas").focus();
}

/** @param {number} x @param {number} y */
function hover(x, y) {
  const tip = part("tl-tip"), { lane, t, inside } = timeline.hit(x, y);
  ring.show(inside && t < model.now ? t : null);
  if (!lane || !inside) { tip.hidden = true; return; }
  const so = lowerBound(lane.tokens, t + 1);
  const paused = lane.pauses.some(([start, end]) => start <= t && t < end);
  const phase = paused ? "paused" : (lane.phases.find((one) => one.start <= t && t < one.end)?.what ?? (t < lane.start ? "not sent yet" : "done"));
  const text = so ? tokenText(lane, so - 1) : "";
  tip.replaceChildren(make("b", {}, `${label(lane)} at ${(t / 1e9).toFixed(3)} s`), `${phase}; ${standing(lane)}`);
  if (so) tip.append(make("br"), `token ${so}${text ? ` “${text.replaceAll("\n", "⏎")}”` : ""}`);
  tip.hidden = false;
  tip.style.left = `${Math.max(0, Math.min(x + 28, timeline.width - 230))}px`;
  tip.style.top = `${y + 14}px`;
}

// --- the view, and its place in the address ----------------------------------------------------------------------------

/** @type {ReturnType<typeof setTimeout> | undefined} */ let remembering;

function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const { view } = timeline;
    const put = (/** @type {string} */ name, /** @type {string | null} */ value) => value === null ? address.searchParams.delete(name) : address.searchParams.set(name, value);
    put("request", timeline.selected);
    const given = view.follow || view.whole ? null : view;
    put("from", given && String(Math.round(given.start / 1e3)));
    put("to", given && String(Math.round(given.end / 1e3)));
    history.replaceState(null, "", address);
  }, 300);
}

function moved() {
  part("follow").setAttribute("aria-pressed", String(timeline.view.follow));
  remember();
}

/** @param {string} id @param {() => void} act */
const onClick = (id, act) => part(id).addEventListener("click", () => { act(); moved(); timeline.refresh(); });
/** @param {string} id @param {() => void} act */
const inTime = (id, act) => onClick(id, () => { act(); timeline.bring(); });
onClick("follow", () => timeline.view.follow ? timeline.view.set(timeline.view.start, timeline.view.end) : timeline.view.resume());
inTime("zoom-in", () => timeline.view.zoom(1 / 1.5));
inTime("zoom-out", () => timeline.view.zoom(1.5));
onClick("rows-up", () => timeline.scroll(-Math.ceil(timeline.rows / 2)));
onClick("rows-down", () => timeline.scroll(Math.ceil(timeline.rows / 2)));
inTime("fit", () => timeline.view.fit());
part("share").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(address.href);
    say(part("share"), "Link copied");
  } catch { say(part("share"), "Copy it from the address bar"); }
  setTimeout(() => say(part("share"), "Copy link"), 2000);
});
document.getElementById("trial")?.addEventListener("change", (event) => {
  address.search = `?trial=${encodeURIComponent(/** @type {HTMLSelectElement} */ (event.target).value)}`;
  location.assign(address);
});
part("port").addEventListener("change", (event) => { timeline.port = /** @type {HTMLSelectElement} */ (event.target).value; timeline.refresh(); });

/** The ports that have readings, the one with most lanes and most traffic first. */
function offerPorts() {
  const select = /** @type {HTMLSelectElement} */ (part("port")), names = model.links.names();
  if (names.length === select.options.length) return;
  select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  if (!names.includes(timeline.port)) timeline.port = names[0] ?? "";
  select.value = timeline.port;
  part("port-label").hidden = !names.length;
}

// --- drawing ---------------------------------------------------------------------------------------------------------

/** Folds what is complete and shows it; figures at most twice a second. */
let figuresAt = 0;
function advance() {
  const news = model.advance(performance.now(), ended);
  if (news) {
    timeline.advance();
    ring.dirty = true;
    offerPorts();
    if (wanted && timeline.lanes().some((lane) => lane.key === wanted)) { const key = wanted; wanted = null; timeline.choose(key); }
  }
  const now = performance.now();
  if (now - figuresAt < EVERY_MS && !ended) return;
  figuresAt = now;
  figures.update(ended);
  verdict.draw();
  topology?.draw();
  log.draw();
  if (news) { const lane = current(); if (lane) chosen(lane); }
  captions();
}

function captions() {
  const lanes = timeline.lanes(), rows = Math.min(timeline.rows, lanes.length), first = timeline.first(lanes.length);
  say(part("tl-sub"), lanes.length > rows ? `requests ${first + 1} to ${first + rows} of ${lanes.length}, on one axis with the GPU${timeline.port ? " and a port's lanes" : ""}` : lanes.length ? `${several(lanes.length, "request")}, on one axis with the GPU${timeline.port ? " and a port's lanes" : ""}` : "");
  /** @type {HTMLButtonElement} */ (part("rows-up")).disabled = first === 0;
  /** @type {HTMLButtonElement} */ (part("rows-down")).disabled = first + rows >= lanes.length;
  const empty = part("tl-empty"), state = verdict.run.state;
  empty.hidden = lanes.length > 0;
  if (!empty.hidden) {
    const [head, words] = state === "queued" ? ["Waiting for its turn", "The first marks appear when the first request is sent."]
      : state === "finished" ? ["No request was sent", verdict.run.outcome === "passed" ? "The workload is empty." : "The log below says how far it came."]
        : ["No request yet", "Nodes wait at the barrier; the first request follows."];
    say(/** @type {Element} */ (empty.querySelector("b")), head);
    say(/** @type {Element} */ (empty.querySelector("span")), words);
  }
}

async function finish() {
  ended = true;
  timeline.live = figures.live = ring.live = false;
  const wasFollowing = timeline.view.follow;
  advance();
  if (wasFollowing) {
    // Nothing follows any more: the whole run, from its first request on.
    timeline.view.fit();
    timeline.top = 0;
    part("follow").setAttribute("aria-pressed", "false");
  }
  /** @type {HTMLButtonElement} */ (part("follow")).disabled = true;
  document.getElementById("cancel")?.remove();
  if (given && !timeline.selected) timeline.bring();
  timeline.refresh();
  captions();
  // The report is written last, a moment after the outcome.
  for (const wait of [0, 2000, 8000]) setTimeout(() => document.body.dispatchEvent(new CustomEvent("run-ended")), wait);
  try {
    const answer = await fetch(page.api, { headers: { Accept: "application/json" } });
    if (answer.ok) verdict.update(await answer.json());
  } catch { /* the strip keeps what the stream said */ }
}

// --- the stream ---------------------------------------------------------------------------------------------------

const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const stream = new Stream(`${scheme}//${location.host}${page.stream}`, {
  events: (events) => model.add(events, performance.now()),
  run: takeRun,
  end: () => void finish(),
  state: (state, words) => { verdict.stream = { state, words }; if (!ended) verdict.draw(); },
});

/** @param {any} facts */
function takeRun(facts) {
  verdict.update(facts);
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
    else if (!topology && verdict.run.state !== "finished") setTimeout(askForPlan, 1000);
  } catch { setTimeout(askForPlan, 3000); }
}

takePlan(page.plan);
const from = Number(address.searchParams.get("from") ?? NaN), to = Number(address.searchParams.get("to") ?? NaN);
const given = to > from;
if (given) { timeline.view.set(from * 1e3, to * 1e3); moved(); }
chosen(null);
verdict.draw();
figures.update(true);
captions();
log.draw(true);
stream.connect();
setInterval(advance, 100);
addEventListener("pagehide", () => stream.close());
/** For the browser tests: what the page knows, to hold against the log. */
Object.assign(window, { looplane: { model, timeline, stream, verdict, span } });
