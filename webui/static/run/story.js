// @ts-check
// One request's story: in a line below the timeline, and whole: where its time went, its text, its steps or stages, its
// hops, its gaps (tale.js has them as data).

import { decodeLines } from "./chunk.js";
import { make } from "./dom.js";
import { count, millis, several, span } from "./format.js";
import { label } from "./lanes.js";
import { RINGLESS_STEP_WORDS, STEP_WORDS } from "./requests.js";
import { taleOf } from "./tale.js";

const SAMPLE = 90;

/** @param {import("./requests.js").Lane} lane */
export function inBrief(lane) {
  const parts = [];
  const lasted = (/** @type {string} */ what) => lane.phases.filter((phase) => phase.what === what).reduce((sum, phase) => sum + phase.end - phase.start, 0);
  const queued = lasted("queued") + lasted("sending"), prefill = lasted("prefill");
  if (queued) parts.push(`queued ${span(queued)}`);
  if (prefill) parts.push(`prefill ${span(prefill)}`);
  const n = lane.tokens.length;
  if (n) {
    const gap = n > 1 ? ` at ${millis((lane.tokens[n - 1] - lane.tokens[0]) / (n - 1) / 1e6)} ms each` : "";
    parts.push(`${lane.state === "running" && lane.maxTokens ? `${count(n)} of at most ${count(lane.maxTokens)}` : several(n, "token")}${n > 1 ? gap : ""}`);
  }
  const paused = lane.pauses.reduce((sum, [start, end]) => sum + end - start, 0);
  if (paused) parts.push(`paused ${span(paused)}`);
  if (lane.state === "failed") parts.push(lane.reason);
  else if (lane.reason) parts.push(`ended by ${lane.reason}`);
  return `${parts.join(", ")}.`;
}

/** @param {import("./requests.js").Lane} lane */
export const textOf = (lane) => lane.track ? lane.track.text.map(([, text]) => text).join("") : "";

/** The text at a token's place, where the front end logged it. @param {import("./requests.js").Lane} lane @param {number} place */
export function tokenText(lane, place) {
  const told = lane.track?.text ?? [];
  let low = 0, high = told.length;
  while (low < high) { const middle = (low + high) >> 1; if (told[middle][0] <= place) low = middle + 1; else high = middle; }
  return low ? told[low - 1][1] : "";
}

/** @param {HTMLElement} box @param {import("./requests.js").Lane | null} lane @param {boolean} several There are several rings.
 * @param {boolean} open @param {() => void} toggle */
export function tellBrief(box, lane, several, open, toggle) {
  if (!lane) {
    box.replaceChildren(make("span", { class: "dim" }, "Choose a request: click its row, or press j and k on the timeline."));
    return;
  }
  const where = lane.slot === null ? "" : ` in slot ${lane.slot}${several && lane.ring ? ` of ${lane.ring}` : ""}`;
  const id = make("span", {}, make("span", { class: "id" }, label(lane)), make("span", { class: "mut" }, where));
  const text = textOf(lane).replaceAll("\n", " ");
  const sample = text ? make("span", { class: "dim" }, ` “${text.length > SAMPLE ? "… " + text.slice(-SAMPLE).trimStart() : text}”`) : "";
  const button = make("button", { class: "linkish", type: "button", "aria-expanded": String(open), "aria-controls": "story" }, open ? "Close" : "Whole story");
  button.addEventListener("click", toggle);
  box.replaceChildren(id, make("span", { class: "txt" }, inBrief(lane), sample), button);
}

const AGAIN_MS = 2000;

export class Story {
  /** @param {HTMLElement} box @param {string} address Where the events of one request are; empty where the server has no such place.
   * @param {{step: (by: number) => void, show: (t: number) => void, close: () => void}} on */
  constructor(box, address, on) {
    this.box = box;
    this.address = address;
    this.on = on;
    /** Whose events these are. */ this.key = "";
    /** @type {import("./order.js").Event[]} */ this.events = [];
    this.told = "";
    this.askedAt = -Infinity;
    this.asked = "";
  }

  /** Shows the request; its own events are asked for once it has ended, or now and then while it runs. @param {import("./requests.js").Lane} lane */
  tell(lane) {
    if (lane.key !== this.key) { this.key = lane.key; this.events = []; this.askedAt = -Infinity; this.asked = ""; this.told = ""; }
    const version = `${lane.key} ${lane.state} ${lane.tokens.length} ${this.events.length} ${lane.turn?.stages.length ?? 0} ${Math.floor(lane.end / 1e9)}`;
    if (version !== this.told) { this.told = version; this.#show(lane); }
    const asked = `${lane.key} ${lane.state}`;
    if (!this.address || asked === this.asked && lane.state !== "running" || performance.now() - this.askedAt < AGAIN_MS && asked === this.asked) return;
    this.asked = asked;
    this.askedAt = performance.now();
    void this.#ask(lane);
  }

  /** @param {import("./requests.js").Lane} lane */
  async #ask(lane) {
    const address = new URL(this.address, location.href);
    if (lane.request !== null) address.searchParams.set("request", String(lane.request));
    if (lane.name) address.searchParams.set("name", lane.name);
    try {
      const answer = await fetch(address);
      if (!answer.ok || lane.key !== this.key) return;
      this.events = decodeLines((await answer.text()).trimEnd()).events;
      this.tell(lane);
    } catch { /* what the page knows by itself stays */ }
  }

  /** @param {import("./requests.js").Lane} lane */
  #show(lane) {
    const tale = taleOf(lane, this.events), focus = this.box.contains(document.activeElement) ? document.activeElement?.textContent : null;
    const scrolled = this.box.querySelector(".said")?.scrollTop ?? 0;
    this.box.replaceChildren(this.#bar(lane, tale), make("div", {}, ...spent(tale), ...said(tale), ...this.#gaps(tale)),
      make("div", {}, ...(lane.turn ? where(tale) : steps(lane)), ...hops(tale, lane)));
    const text = this.box.querySelector(".said");
    if (text) text.scrollTop = scrolled;
    if (focus) /** @type {HTMLElement | undefined} */ ([...this.box.querySelectorAll("button")].find((one) => one.textContent === focus))?.focus();
  }

  /** @param {import("./requests.js").Lane} lane @param {import("./tale.js").Tale} tale */
  #bar(lane, tale) {
    const button = (/** @type {string} */ words, /** @type {() => void} */ act) => {
      const made = make("button", { class: "btn", type: "button" }, words);
      made.addEventListener("click", act);
      return made;
    };
    const copy = button("Copy as JSON", async () => {
      try { await navigator.clipboard.writeText(JSON.stringify(tale, null, 1)); copy.textContent = "Copied"; } catch { copy.textContent = "The browser does not allow it"; }
      setTimeout(() => { copy.textContent = "Copy as JSON"; }, 2000);
    });
    return make("div", { class: "storybar" }, make("h3", {}, lane.name && lane.request !== null ? `${lane.name}, request ${lane.request} at the front end` : label(lane)), make("span", { class: "sp" }),
      button("Previous", () => this.on.step(-1)), button("Next", () => this.on.step(1)), copy, button("Close", () => this.on.close()));
  }

  /** @param {import("./tale.js").Tale} tale */
  #gaps(tale) {
    if (!tale.gaps.length) return [];
    const items = tale.gaps.map((gap) => {
      const jump = make("button", { class: "linkish", type: "button" }, `${(gap.at_ms / 1e3).toFixed(3)} s`);
      jump.addEventListener("click", () => this.on.show(gap.at_ms * 1e6));
      return make("li", {}, `${millis(gap.ms)} ms before token ${gap.token}, from `, jump);
    });
    return [make("h3", {}, "Longest gaps"), make("ul", { class: "gaps" }, ...items)];
  }
}

/** Where its time went, as a bar and in words. @param {import("./tale.js").Tale} tale */
function spent(tale) {
  const bar = make("div", { class: "stagebar", "aria-hidden": "true" }), items = tale.shares.map((share, place) => {
    const part = make("i", { class: `k${place % 10}` });
    part.style.flexGrow = String(share.percent);
    bar.append(part);
    return make("li", {}, make("i", { class: `k${place % 10}`, "aria-hidden": "true" }), `${share.stage} `, make("b", {}, `${share.percent.toFixed(share.percent < 10 ? 1 : 0)} %`), ` ${millis(share.ms)} ms`);
  });
  const whole = `${millis(tale.took_ms)} ms${tale.state === "running" ? " so far" : ""}, sent at ${(tale.sent_ms / 1e3).toFixed(3)} s${tale.ttft_ms === null ? "" : `, first token after ${millis(tale.ttft_ms)} ms`}${tale.pauses ? `, paused ${tale.pauses === 1 ? "once" : `${tale.pauses} times`}` : ""}`;
  return [make("h3", {}, "Where its time went"), make("p", { class: "mut" }, `${whole}.`), bar, make("ul", { class: "shares" }, ...items),
    ...(tale.notes.length ? [make("p", { class: "mut" }, `${tale.notes.join("; ")}.`)] : [])];
}

/** @param {import("./tale.js").Tale} tale */
function said(tale) {
  const facts = [tale.prompt_tokens && several(tale.prompt_tokens, "prompt token"), tale.max_tokens && `at most ${count(tale.max_tokens)} out`, tale.state === "failed" ? tale.reason : tale.reason && `ended by ${tale.reason}`].filter(Boolean).join(", ");
  if (!tale.text.length) return tale.path || tale.placed ? [] : [make("h3", {}, "What it said"), make("p", { class: "mut" }, `No text yet. ${facts}.`)];
  const pieces = tale.text.map(({ first, text, ms }, place) => {
    const before = place ? tale.text[place - 1].ms : null;
    return make("span", { title: `token ${first + 1}${ms === null ? "" : `, ${millis(ms)} ms after sending${before === null ? "" : `, ${millis(ms - before)} ms after the last`}`}` }, text);
  });
  return [make("h3", {}, "What it said"), make("div", { class: "said", tabindex: "0", role: "region", "aria-label": "Text of the answer" }, ...pieces),
    make("p", { class: "sm mut" }, `${facts}. Point at a word for its time. The text is drawn from a Markov model: synthetic, not a language model's.`)];
}

/** The numbered steps of Blink's figure. @param {import("./requests.js").Lane} lane */
function steps(lane) {
  const ringless = lane.slot === null && Boolean(lane.track?.steps.has(7));
  const rows = (ringless ? RINGLESS_STEP_WORDS : STEP_WORDS).map(([step, words]) => {
    const times = lane.track?.steps.get(step);
    return [String(step), words, times ? `+${millis((times.first - lane.start) / 1e6)}` : "–", times && times.count > 1 ? `+${millis((times.last - lane.start) / 1e6)}` : "", times ? `${count(times.count)} ×` : ""];
  });
  return table(ringless ? "Its steps, as numbered in Blink's figure" : "The thirteen steps of Blink's figure", ["#Step", "What happened", "#First, ms", "#Last, ms", "#Times"], rows);
}

/** Where a turn went, and which side read its KV, and why. @param {import("./tale.js").Tale} tale */
function where(tale) {
  const path = tale.path === "none" ? "Nothing to read" : tale.path ? `Its KV was read by the ${tale.path} path` : "Its read path is not chosen yet";
  const words = [tale.placed && `Placed on ${tale.placed}.`, `${count(tale.hit_tokens)} of ${several(tale.prompt_tokens, "prompt token")} hit.`,
    `${path}${tale.why ? `: ${tale.why}` : ""}.`, tale.blocks && `${tale.blocks}.`].filter(Boolean).join(" ");
  return [make("h3", {}, "Where it went"), make("p", { class: "mut" }, words)];
}

/** Stages and hops of a turn. @param {import("./tale.js").Tale} tale @param {import("./requests.js").Lane} lane */
function hops(tale, lane) {
  const stages = (lane.turn?.stages ?? []).map(({ stage, t, node }, place, all) => [stage, node, `+${millis((t - lane.start) / 1e6)}`, all[place + 1] ? millis((all[place + 1].t - t) / 1e6) : ""]);
  const rows = tale.hops.map((hop) => [hop.hop, hop.ends.length > 2 ? `${hop.ends[0]} and ${hop.ends.length - 1} more` : hop.ends.join(", "), count(hop.transfers), count(hop.blocks), `${(hop.bytes / 1e6).toFixed(1)}`,
    `+${millis((hop.first - lane.start) / 1e6)}`, `+${millis((hop.last - lane.start) / 1e6)}`]);
  return [...(stages.length ? table("Stages of the turn", ["Stage", "Node", "#Since sending, ms", "#Lasted, ms"], stages) : []),
    ...(rows.length ? table("Hops of its KV", ["Hop", "From and to", "#Transfers", "#Blocks", "#MB", "#Began, ms", "#Ended, ms"], rows) : [])];
}

/** @param {string} title @param {string[]} heads One that starts with # holds figures. @param {string[][]} rows */
function table(title, heads, rows) {
  const kind = (/** @type {number} */ place) => heads[place].startsWith("#") ? { class: "num" } : {};
  const head = heads.map((words, place) => make("th", { scope: "col", ...kind(place) }, words.replace("#", "")));
  const body = rows.map((row) => make("tr", {}, ...row.map((words, place) => make("td", kind(place), words))));
  return [make("h3", {}, title), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)))];
}
