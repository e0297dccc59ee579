// @ts-check
// How the run stands: its state, in words that follow what is really happening, its place in the queue, its time left,
// and the clean-up step by step. State, outcome and fidelity are three things; the other two are in judgement.js.

import { icon, make, mark, part, say } from "./dom.js";
import { clock, sentence, several, span } from "./format.js";
import { Excerpt } from "./excerpt.js";
import { Judgement } from "./judgement.js";

const ASK_QUEUE_MS = 5000;
/** Tone, icon and word. @type {Record<string, [string, string, string]>} */
const STATES = { queued: ["idle", "wait", "Queued"], preparing: ["run", "run", "Preparing"], running: ["run", "run", "Running"],
  finalising: ["run", "run", "Finalising"], finished: ["idle", "ok", "Finished"] };
/** What the bench does in each stage. @type {Record<string, string>} */
const STAGES = { preparing: "getting ready", network: "making the network", nodes: "starting the nodes", running: "running",
  finalising: "ending the nodes", cleaned: "everything it made here is removed" };

export class Standing {
  /** @param {import("./model.js").Model} model @param {any} page Facts of the page. @param {{show: (start: number, end: number) => void}} on */
  constructor(model, page, on) {
    this.model = model;
    this.run = page.run;
    this.page = page;
    this.stream = { state: "connecting", words: "" };
    this.share = -1;
    this.askedAt = -Infinity;
    this.judgement = new Judgement(model, page, on);
    this.excerpt = new Excerpt(page);
  }

  /** News of the row. What the stream says is said to everybody, so it brings nothing of the queue. @param {any} run */
  update(run) {
    const { queue, ...told } = run;
    if (!told.detail && this.run.state === "queued" && told.state === "queued") delete told.detail;
    this.run = { ...this.run, ...told, ...(queue ? { queue } : {}) };
    this.draw();
  }

  /** @param {string} state @param {string} words */
  heard(state, words) {
    this.stream = { state, words };
    this.draw();
  }

  /** A long run's timeline is being packed. @param {number} share */
  reading(share) {
    this.share = share;
    this.draw();
  }

  draw() {
    const { run, model } = this;
    const [tone, name, words] = this.#state();
    mark("state", tone, name, words);
    say(part("state-words"), this.#words());
    const all = Math.max(model.expected, model.exchanges.exchanges.length), ended = model.exchanges.completed + model.exchanges.failed;
    const percent = run.state === "finished" && !all ? 100 : all ? Math.round((100 * ended) / all) : 0;
    const bar = part("progress");
    bar.setAttribute("aria-valuenow", String(percent));
    /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${percent}%`;
    bar.hidden = run.state === "queued";
    const extend = document.getElementById("extend");
    if (extend) extend.hidden = !run.ends_by || run.state === "finished" || run.cancelling;
    this.#steps();
    this.#askQueue();
    this.judgement.draw(run);
    this.excerpt.draw(run);
  }

  /** What is happening, which the row may be late to say: a run is not running before its start line. @returns {[string, string, string]} */
  #state() {
    const { run, model } = this;
    if (run.cancelling && run.state !== "finished") return ["warn", "run", "Cancelling"];
    if (run.state === "running" && !model.started && !(run.trials_begun > 1)) return STATES.preparing;
    return STATES[run.state] ?? ["idle", "wait", run.state];
  }

  #words() {
    const { run, model, stream } = this;
    if (stream.state === "refused") return `${stream.words} Log in again, or go back to the list of runs.`;
    if (stream.state === "stale" && run.state !== "finished") return `${stream.words} The stream stopped at ${span(model.now)}; reconnecting. What is drawn stays.`.trim();
    if (run.state === "finished" && this.share >= 0 && !model.events) return `The timeline of this long run is being packed: ${Math.round(100 * this.share)} %.`;
    const since = run.started_at ?? run.created_at, until = run.finished_at ? Date.parse(run.finished_at) : Date.now();
    const wall = clock((until - Date.parse(since)) / 1000), trials = this.#trials(), warning = run.detail ? ` ${sentence(run.detail)}.` : "";
    if (run.state === "queued") return this.#queued();
    if (run.state === "finished") return model.started ? `${span(model.now)} of model time in ${wall}${run.trials?.length ? ", this trial" : ""}.` : run.started_at ? `It ended after ${wall}.` : "It ended before it started.";
    if (run.state === "finalising") return run.cancelling ? `What the run made here is being removed.${warning}` : `Nodes end, the network is removed, the log is folded.${warning}`;
    if (run.cancelling) return `Nodes are told to end; clean-up follows.${warning}`;
    if (!model.started) return `${trials}${sentence(this.#stage() || "network and nodes are being made")}. ${wall} so far.${this.#limit()}${warning}`;
    return `${trials}${span(model.now)} of model time${model.dilation !== 1 ? `, stretched ${model.dilation} ×` : ""}. ${wall} so far${this.#left()}.${this.#limit()}${warning}`;
  }

  #stage() {
    const last = this.model.moments.stages.at(-1);
    return last ? `${STAGES[last.stage] ?? last.stage}${last.detail ? `, ${last.detail}` : ""}` : "";
  }

  #queued() {
    const { run } = this, queue = run.queue;
    if (run.cancelling) return "Asked to end before it starts.";
    if (!queue?.position) return run.detail ? `Waiting: ${run.detail}.` : "A worker takes it in a moment.";
    const about = queue.starts_at ? (Date.parse(queue.starts_at) - Date.now()) / 1000 : null;
    return `${queue.position === 1 ? "Next" : `Number ${queue.position}`} in the queue: ${queue.reason}.${about === null ? " Nobody can say when it starts." : about < 5 ? " It starts in a moment." : ` It starts in about ${clock(about)}.`}`;
  }

  #trials() {
    const { run } = this, all = run.trials?.length ?? 0;
    return all > 1 && run.trials_begun ? `Trial ${run.trials_begun} of ${all}. ` : "";
  }

  #left() {
    const { model, run } = this;
    const ended = model.exchanges.completed + model.exchanges.failed;
    if (!model.expected || ended < 4 || !run.started_at || run.trials?.length) return "";
    const wall = (Date.now() - Date.parse(run.started_at)) / 1000;
    return `, about ${clock((wall / ended) * (model.expected - ended))} left`;
  }

  /** When it is asked to end, whatever it has done by then. */
  #limit() {
    const { run } = this;
    if (!run.ends_by) return "";
    const left = (Date.parse(run.ends_by) - Date.now()) / 1000;
    return left > 0 ? ` At most ${clock(left)} more.` : " Its time has run out.";
  }

  /** The clean-up, step by step; of a run that is being cancelled or finalised. */
  #steps() {
    const { run, model } = this, list = part("steps"), { stages, stopped, planned, cleaning } = model.moments;
    const from = stages.findIndex((one) => one.stage === "finalising");
    list.hidden = run.state === "queued" || run.state === "finished" || !(run.cancelling || run.state === "finalising");
    if (list.hidden) return;
    const ended = [...stopped.keys()].filter((node) => !node.endsWith("-nic")).length;
    const cleaned = stages.some((one) => one.stage === "cleaned");
    const steps = [["asked to end", Boolean(run.cancelling) || from >= 0], [planned ? `${Math.min(ended, planned)} of ${several(planned, "node")} ended` : "nodes end", planned > 0 && ended >= planned],
      [cleaning || "network and processes removed", cleaned], ["log folded", false]];
    const told = steps.map(([words, done]) => `${done ? "✓" : "…"} ${words}`).join("|");
    if (list.dataset.told === told) return;
    list.dataset.told = told;
    list.replaceChildren(...steps.map(([words, done]) => make("li", { class: done ? "done" : "" }, icon(done ? "ok" : "idle"), make("span", {}, String(words)))));
  }

  /** The place in the queue is asked for by the page itself: it is said in words that only this person may read. */
  #askQueue() {
    if (this.run.state !== "queued" || performance.now() - this.askedAt < ASK_QUEUE_MS) return;
    this.askedAt = performance.now();
    void fetch(this.page.queue, { headers: { Accept: "application/json" } }).then(async (answer) => {
      if (answer.ok) this.run = { ...this.run, queue: await answer.json() };
    }).catch(() => { /* asked again in a moment */ });
  }
}
