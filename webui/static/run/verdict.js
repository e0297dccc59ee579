// @ts-check
// The strip on top: state, outcome and fidelity, which are three things and stay apart.

import { icon, make, part, say } from "./dom.js";
import { clock, count, several, span } from "./format.js";

/** Tone and icon. @type {Record<string, [string, string, string]>} */
const STATES = { queued: ["idle", "wait", "Queued"], preparing: ["run", "run", "Preparing"], running: ["run", "run", "Running"],
  finalising: ["run", "run", "Finalising"], finished: ["idle", "ok", "Finished"] };
/** @type {Record<string, [string, string, string]>} */
const OUTCOMES = { passed: ["ok", "ok", "Passed"], failed: ["bad", "bad", "Failed"], errored: ["bad", "bad", "Errored"],
  cancelled: ["idle", "idle", "Cancelled"], lost: ["warn", "warn", "Lost"] };
/** @type {Record<string, [string, string]>} */
const FIDELITIES = { faithful: ["ok", "ok"], degraded: ["warn", "warn"], invalid: ["bad", "bad"] };
const SHOWN = 3;

/** Whole where it is whole, else two digits. @param {number} value */
const figure = (value) => value < 0 ? `−${positive(-value)}` : positive(value);
/** @param {number} value */
const positive = (value) => Math.abs(value) >= 100 ? count(value) : Number.isInteger(value) ? String(value) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);

export class Verdict {
  /** @param {import("./model.js").Model} model @param {any} run @param {number} expected How many expectations the experiment has. */
  constructor(model, run, expected) {
    this.model = model;
    this.run = run;
    this.expected = expected;
    this.stream = { state: "connecting", words: "" };
    this.fidelityVersion = -1;
  }

  /** @param {any} run */
  update(run) { this.run = { ...this.run, ...run }; this.draw(); }

  draw() {
    this.#state();
    this.#outcome();
    this.#fidelity();
  }

  #state() {
    const { run, model } = this;
    const [tone, name, words] = run.cancelling ? ["warn", "run", "Cancelling"] : STATES[run.state] ?? ["idle", "wait", run.state];
    mark("state", tone, name, words);
    say(part("state-words"), this.#stateWords());
    const all = Math.max(model.expected, model.exchanges.exchanges.length), ended = model.exchanges.completed + model.exchanges.failed;
    const percent = run.state === "finished" && !all ? 100 : all ? Math.round((100 * ended) / all) : 0;
    const bar = part("progress");
    bar.setAttribute("aria-valuenow", String(percent));
    /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${percent}%`;
    bar.hidden = run.state === "queued";
  }

  #stateWords() {
    const { run, model, stream } = this;
    if (stream.state === "refused") return `${stream.words} Log in again, or go back to the list of runs.`;
    if (stream.state === "stale" && run.state !== "finished") return `${stream.words} The stream stopped at ${span(model.now)}; reconnecting. What is drawn stays.`;
    const since = run.started_at ?? run.created_at, until = run.finished_at ? Date.parse(run.finished_at) : Date.now();
    const wall = clock((until - Date.parse(since)) / 1000);
    switch (run.state) {
      case "queued": return run.cancelling ? "Asked to end before it starts." : run.detail ? `Waiting: ${run.detail}.` : "A worker takes it in a moment.";
      case "preparing": return model.stage ? `${sentence(model.stage)}. ${wall} so far.` : `Network and nodes are being made. ${wall} so far.`;
      case "finalising": return run.cancelling ? `${sentence(model.stage || "nodes end")}. What the run made here is being removed.` : "Nodes end, the network is removed, the log is folded.";
      case "finished": return `${span(model.now)} of model time in ${wall}.`;
      default:
        if (!model.started || model.stage.startsWith("finalising")) return `${sentence(model.stage || "nodes are being made")}. ${wall} so far.`;
        return run.cancelling ? "Nodes are told to end; cleanup follows."
        : `${span(model.now)} of model time${model.dilation !== 1 ? `, stretched ${model.dilation} ×` : ""}. ${wall} so far${this.#left()}.`;
    }
  }

  #left() {
    const { model, run } = this;
    const ended = model.exchanges.completed + model.exchanges.failed;
    if (!model.expected || ended < 4 || !run.started_at) return "";
    const wall = (Date.now() - Date.parse(run.started_at)) / 1000;
    return `, about ${clock((wall / ended) * (model.expected - ended))} left`;
  }

  #outcome() {
    const { run } = this;
    const told = OUTCOMES[run.outcome];
    if (told) mark("outcome", ...told); else mark("outcome", "idle", "idle", "Not judged yet");
    /** @type {any[]} */ const rows = run.summary?.expectations ?? [];
    const held = rows.filter((row) => row.held).length;
    let words = run.outcome ? run.detail ? sentence(run.detail) + "." : "" : this.expected ? `${several(this.expected, "expectation is", "expectations are")} checked when it ends.` : "It has no expectations, so it passes when it ends well.";
    if (rows.length) words = `${held} of ${several(rows.length, "expectation")} held.${run.outcome !== "passed" && run.outcome !== "failed" && run.detail ? ` ${sentence(run.detail)}.` : ""}`;
    say(part("outcome-words"), words);
    const sorted = [...rows].sort((a, b) => Number(a.held) - Number(b.held));
    const items = sorted.slice(0, SHOWN).map((row) => make("li", { class: row.held ? "held" : "broken" }, icon(row.held ? "ok" : "bad"),
      make("span", {}, `${row.text.replaceAll("systems.", "")}${row.point ? ` (${row.point})` : ""}: ${row.measured === null ? row.reason || "not measured" : typeof row.measured === "number" ? figure(row.measured) : row.measured}`)));
    if (sorted.length > SHOWN) items.push(make("li", { class: "dim" }, make("span"), make("span", {}, `${sorted.length - SHOWN} more in the report`)));
    part("expectations").replaceChildren(...items);
  }

  #fidelity() {
    const { run, model } = this;
    const final = run.summary?.fidelity;
    say(part("fidelity-title"), final ? "Fidelity" : "Fidelity so far");
    if (!final && !model.started) {
      mark("fidelity", "idle", "idle", run.on === "sim" ? "Simulated clock" : "Not judged yet");
      part("thresholds").replaceChildren();
      say(part("fidelity-words"), run.on === "sim" ? "Time is modelled, so there is no lateness to measure." : run.state === "finished" ? "It never reached the start line." : "Lateness, links, drops and waits for a CPU are measured while it runs.");
      return;
    }
    const now = model.fidelity.result();
    const verdict = final?.verdict ?? now.verdict;
    /** @type {any[]} */ const thresholds = thresholdsOf(final) ?? now.thresholds;
    const [tone, name] = FIDELITIES[verdict] ?? ["idle", "idle"];
    const crossed = thresholds.filter((one) => one.held === false).length;
    const words = `${sentence(verdict)}${crossed ? `: ${crossed} of ${several(thresholds.length, "threshold")} crossed` : now.simulated || run.on === "sim" ? ": time is modelled" : ""}`;
    mark("fidelity", tone, name, words);
    part("thresholds").replaceChildren(...thresholds.map(threshold));
    const reasons = final ? final.reasons ?? [] : now.missing;
    const note = final?.note ?? "";
    const missing = reasons.filter((/** @type {string} */ reason) => reason.startsWith("no "));
    say(part("fidelity-words"), missing.length && !run.outcome ? `Still missing: ${missing.join("; ")}.` : missing.length ? `${sentence(missing.join("; "))}.` : verdict === "invalid" && crossed ? "Its figures say nothing about the system." : verdict !== "faithful" && crossed ? "Latencies are upper bounds." : note ? `${sentence(note)}.` : "");
  }
}

/** The thresholds in a summary, where it has them as we know them. @param {any} final */
function thresholdsOf(final) {
  const told = final?.thresholds;
  return Array.isArray(told) && told.every((one) => typeof one?.name === "string" && "held" in one) ? told.map((one) => ({ ...one, invalid: one.invalid_limit ?? one.invalid })) : null;
}

/** @param {any} one */
function threshold(one) {
  const far = one.measured !== null && one.invalid !== undefined && one.measured > one.invalid;
  const kind = one.held === null ? "no" : one.held ? "" : far ? "far" : "x";
  const value = one.measured === null ? "no reading" : figure(one.measured);
  const unit = one.unit === "packets per million" ? "ppm" : one.unit === "ms wall ÷ dilation" ? "ms" : one.unit === "% of time" ? "%" : ["packets", "records"].includes(one.unit) ? "" : one.unit;
  const item = make("li", { class: kind, title: `${one.name}, ${one.unit}${one.where ? `, worst at ${one.where}` : ""}` }, icon(one.held === null ? "idle" : one.held ? "ok" : far ? "bad" : "warn"),
    make("span", {}, `${sentence(one.name)} `, make("b", {}, `${value}${one.measured === null || !unit ? "" : ` ${unit}`}`), `, limit ${figure(one.limit)}`));
  return item;
}

/** @param {string} id @param {string} tone @param {string} name @param {string} words */
function mark(id, tone, name, words) {
  const node = part(id);
  if (node.dataset.told === `${tone} ${words}`) return;
  node.dataset.told = `${tone} ${words}`;
  node.className = `st ${tone}`;
  node.replaceChildren(icon(name), words);
}

/** @param {string} words */
const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1);
