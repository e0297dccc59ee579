// @ts-check
// Outcome and fidelity in the strip on top: expectations with what was measured, thresholds, reasons, and for each the
// moment to jump to.

import { icon, make, mark, part, say } from "./dom.js";
import { count, sentence, several } from "./format.js";
import { worstOf } from "./moments.js";

/** Tone, icon and word. @type {Record<string, [string, string, string]>} */
const OUTCOMES = { passed: ["ok", "ok", "Passed"], failed: ["bad", "bad", "Failed"], errored: ["bad", "bad", "Errored"],
  cancelled: ["idle", "idle", "Cancelled"], lost: ["warn", "warn", "Lost"] };
/** @type {Record<string, [string, string]>} */
const FIDELITIES = { faithful: ["ok", "ok"], degraded: ["warn", "warn"], invalid: ["bad", "bad"] };
const SHOWN = 4;
/** Units as the strip writes them. @type {Record<string, string>} */
const UNITS = { "packets per million": "ppm", "ms wall ÷ dilation": "ms", "% of time": "%", packets: "", records: "" };

/** Whole where it is whole, else two digits. @param {number} value */
const figure = (value) => value < 0 ? `−${positive(-value)}` : positive(value);
/** @param {number} value */
const positive = (value) => Math.abs(value) >= 100 ? count(value) : Number.isInteger(value) ? String(value) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);

export class Judgement {
  /** @param {import("./model.js").Model} model @param {any} page @param {{show: (start: number, end: number) => void}} on */
  constructor(model, page, on) {
    this.model = model;
    this.page = page;
    this.on = on;
  }

  /** @param {any} run */
  draw(run) {
    this.#outcome(run);
    this.#fidelity(run);
  }

  /** @param {any} run */
  #outcome(run) {
    const told = OUTCOMES[run.outcome], expected = this.page.expectations;
    if (told) mark("outcome", ...told); else mark("outcome", "idle", "idle", "Not judged yet");
    /** @type {any[]} */ const rows = run.summary?.expectations ?? [];
    const held = rows.filter((row) => row.held).length;
    let words = run.outcome ? run.detail ? `${sentence(run.detail)}.` : run.outcome === "passed" && !expected ? "It has no expectations, and it ended well." : "" : expected ? `${several(expected, "expectation is", "expectations are")} checked when it ends.` : "It has no expectations, so it passes when it ends well.";
    if (rows.length) words = `${held} of ${several(rows.length, "expectation")} held.${run.outcome !== "passed" && run.outcome !== "failed" && run.detail ? ` ${sentence(run.detail)}.` : ""}`;
    say(part("outcome-words"), words.length > 400 ? `${words.slice(0, 400)} …` : words);
    const sorted = [...rows].sort((a, b) => Number(a.held) - Number(b.held)), list = part("expectations");
    const told2 = `${sorted.map((row) => row.text + row.measured)} ${this.model.exchanges.completed}`;
    if (list.dataset.told === told2) return;
    list.dataset.told = told2;
    const items = sorted.slice(0, SHOWN).map((row) => this.#expectation(row));
    if (sorted.length > SHOWN) items.push(make("li", { class: "dim" }, make("span"), make("a", { href: "#evidence" }, `all ${sorted.length} below`)));
    list.replaceChildren(...items);
  }

  /** @param {any} row */
  #expectation(row) {
    const value = row.measured === null ? row.reason || "not measured" : typeof row.measured === "number" ? figure(row.measured) : row.measured;
    const words = make("span", {}, `${row.text.replaceAll("systems.", "")}${row.point ? ` (${row.point})` : ""}: `, make("b", {}, String(value)));
    const place = row.held || !this.#isHere(row.metric ?? "") ? null : worstOf(row.metric, this.model.exchanges.exchanges);
    if (place) words.append(" ", this.#jump("Jump to the worst", place.start, place.end));
    return make("li", { class: row.held ? "held" : "broken" }, icon(row.held ? "ok" : "bad"), words);
  }

  /** Whether the trial on the page is one of the system that a metric is about. @param {string} metric */
  #isHere(metric) {
    const system = metric.split(".")[1] ?? "";
    return !this.page.trial || this.page.trial === system || this.page.trial.startsWith(`${system}-`);
  }

  /** @param {string} words @param {number} start @param {number} end */
  #jump(words, start, end) {
    const button = make("button", { class: "linkish", type: "button", title: `${(start / 1e9).toFixed(3)} s` }, words);
    button.addEventListener("click", () => this.on.show(start, end));
    return button;
  }

  /** @param {any} run */
  #fidelity(run) {
    const { model } = this, unstarted = !model.started && (run.outcome === "cancelled" || !run.summary?.fidelity);
    const final = unstarted ? null : run.summary?.fidelity;
    say(part("fidelity-title"), final || run.state === "finished" ? "Fidelity" : "Fidelity so far");
    if (!final && !model.started) return this.#unjudged(run);
    const now = model.fidelity.result();
    const verdict = final?.verdict ?? now.verdict;
    /** @type {any[]} */ const thresholds = thresholdsOf(final) ?? now.thresholds;
    const [tone, name] = FIDELITIES[verdict] ?? ["idle", "idle"];
    const crossed = thresholds.filter((one) => one.held === false).length;
    mark("fidelity", tone, name, `${sentence(verdict)}${crossed ? `: ${crossed} of ${several(thresholds.length, "threshold")} crossed` : now.simulated || run.on === "sim" ? ": time is modelled" : ""}`);
    this.#list("thresholds", thresholds, (one) => this.#threshold(one));
    /** @type {string[]} */ const reasons = final ? final.reasons ?? [] : [...now.missing, ...thresholds.filter((one) => one.held === false).map((one) => reasonOf(one))];
    this.#list("reasons", reasons.slice(0, 2 * SHOWN), (reason) => this.#reason(reason, run));
    const note = final?.note ?? "";
    say(part("fidelity-words"), verdict === "invalid" && crossed ? "Its figures say nothing about the system." : verdict !== "faithful" && crossed ? "Latencies are upper bounds." : note ? `${sentence(note)}.` : "");
  }

  /** It has not come to its start line. @param {any} run */
  #unjudged(run) {
    const over = run.state === "finished", simulated = run.on === "sim";
    mark("fidelity", "idle", "idle", over ? "Not judged" : simulated ? "Simulated clock" : "Not judged yet");
    part("thresholds").replaceChildren();
    part("reasons").replaceChildren();
    say(part("fidelity-words"), over ? "It never reached the start line, so there is nothing to judge." : simulated ? "Time is modelled, so there is no lateness to measure." : "Lateness, links, drops and waits for a CPU are measured while it runs.");
  }

  /** Makes a list anew only where it differs, so that a focus in it stays. @template T @param {string} id @param {T[]} items @param {(item: T) => Node} write */
  #list(id, items, write) {
    const list = part(id), told = `${JSON.stringify(items)} ${Math.floor(this.model.now / 1e9)} ${this.model.moments.worst.size}`;
    if (list.dataset.told === told) return;
    list.dataset.told = told;
    list.replaceChildren(...items.map(write));
  }

  /** @param {any} one */
  #threshold(one) {
    const far = one.measured !== null && one.invalid !== undefined && one.measured > one.invalid;
    const kind = one.held === null ? "no" : one.held ? "" : far ? "far" : "x", unit = UNITS[one.unit] ?? one.unit;
    const value = one.measured === null ? "no reading" : `${figure(one.measured)}${unit ? ` ${unit}` : ""}`;
    return make("li", { class: kind, title: `${one.name}, ${one.unit}${one.where ? `, worst at ${one.where}` : ""}` }, icon(one.held === null ? "idle" : one.held ? "ok" : far ? "bad" : "warn"),
      make("span", {}, `${sentence(one.name)} `, make("b", {}, value), `, limit ${figure(one.limit)}`));
  }

  /** A reason, with the moment or the trial that it is about. @param {string} reason @param {any} run */
  #reason(reason, run) {
    const item = make("li", {}, `${sentence(reason)}.`), trial = /^([\w.=+-]+): /.exec(reason)?.[1] ?? "";
    if (trial && trial !== this.page.trial && run.trials?.includes(trial)) {
      item.append(" ", make("a", { href: `?trial=${encodeURIComponent(trial)}` }, `Look at ${trial}`));
      return item;
    }
    const name = [...this.model.moments.worst.keys()].find((known) => reason.includes(known));
    const t = name ? this.model.moments.of(name, new RegExp(`${name} of (.+?) [−\\d]`).exec(reason)?.[1] ?? "") : null;
    if (t !== null) item.append(" ", this.#jump("Jump to it", t, t));
    return item;
  }
}

/** @param {any} one */
const reasonOf = (one) => `${one.name}${one.where ? ` of ${one.where}` : ""} ${figure(one.measured)}, limit ${figure(one.limit)}`;

/** The thresholds in a summary, where it has them as we know them. @param {any} final */
function thresholdsOf(final) {
  const told = final?.thresholds;
  return Array.isArray(told) && told.every((one) => typeof one?.name === "string" && "held" in one) ? told.map((one) => ({ ...one, invalid: one.invalid_limit ?? one.invalid })) : null;
}
