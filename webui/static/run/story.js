// @ts-check
// One request's story: in a line below the timeline, and whole, with its text and the thirteen steps.

import { make } from "./dom.js";
import { count, millis, several, span } from "./format.js";
import { RINGLESS_STEP_WORDS, STEP_WORDS } from "./requests.js";
import { label } from "./timeline.js";

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

/** @param {HTMLElement} box @param {import("./requests.js").Lane | null} lane @param {boolean} open @param {() => void} toggle */
export function tellBrief(box, lane, open, toggle) {
  if (!lane) {
    box.replaceChildren(make("span", { class: "dim" }, "Choose a request: click its row, or press j and k on the timeline."));
    return;
  }
  const id = make("span", {}, make("span", { class: "id" }, label(lane)), make("span", { class: "mut" }, lane.slot === null ? "" : ` in slot ${lane.slot}`));
  const text = textOf(lane).replaceAll("\n", " ");
  const sample = text ? make("span", { class: "dim" }, ` “${text.length > SAMPLE ? "… " + text.slice(-SAMPLE).trimStart() : text}”`) : "";
  const button = make("button", { class: "linkish", type: "button", "aria-expanded": String(open), "aria-controls": "story" }, open ? "Close" : "Whole story");
  button.addEventListener("click", toggle);
  box.replaceChildren(id, make("span", { class: "txt" }, inBrief(lane), sample), button);
}

/** @param {HTMLElement} box @param {import("./requests.js").Lane} lane */
export function tellWhole(box, lane) {
  if (lane.turn) return tellTurn(box, lane, lane.turn);
  const said = textOf(lane);
  const facts = [lane.name && `client's name ${lane.name}`, lane.promptTokens && `${several(lane.promptTokens, "prompt token")}`,
    lane.maxTokens && `at most ${count(lane.maxTokens)} out`, `sent at ${(lane.start / 1e9).toFixed(3)} s`].filter(Boolean).join(", ");
  const ringless = lane.slot === null && Boolean(lane.track?.steps.has(7));
  const rows = (ringless ? RINGLESS_STEP_WORDS : STEP_WORDS).map(([step, words]) => {
    const times = lane.track?.steps.get(step);
    return make("tr", {}, make("td", { class: "num" }, String(step)), make("td", {}, words),
      make("td", { class: "num" }, times ? `+${millis((times.first - lane.start) / 1e6)}` : "–"),
      make("td", { class: "num" }, times && times.count > 1 ? `+${millis((times.last - lane.start) / 1e6)}` : ""),
      make("td", { class: "num" }, times ? `${count(times.count)} ×` : ""));
  });
  const head = ["Step", "What happened", "First, ms", "Last, ms", "Times"].map((words, place) => make("th", place === 1 ? {} : { class: "num" }, words));
  const scroll = said ? make("div", { class: "said", tabindex: "0", "aria-label": "Text of the answer" }, said) : make("p", { class: "mut" }, "No text yet.");
  box.replaceChildren(
    make("div", {}, make("h3", {}, "What it said"), scroll, make("p", { class: "sm mut" }, facts + ". The text is drawn from a Markov model: synthetic, not a language model's.")),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The steps of the request" }, make("h3", {}, ringless ? "Its steps, as numbered in Blink's figure" : "The thirteen steps of Blink's figure"), make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))));
}

/** An agent's turn has no text; it has a place, a read path and stages. @param {HTMLElement} box @param {import("./requests.js").Lane} lane @param {import("./turns.js").Turn} turn */
function tellTurn(box, lane, turn) {
  const facts = [turn.placed && `placed on ${turn.placed}`, `${count(turn.hitTokens)} of ${several(turn.promptTokens || lane.promptTokens, "prompt token")} hit`,
    turn.path && (turn.path === "none" ? "nothing to read" : `read path ${turn.path}`), `sent at ${(lane.start / 1e9).toFixed(3)} s`].filter(Boolean).join(", ");
  const rows = turn.stages.map(({ stage, t, node }, place) => {
    const after = turn.stages[place + 1]?.t;
    return make("tr", {}, make("td", {}, stage), make("td", { class: "mono" }, node), make("td", { class: "num" }, `+${millis((t - lane.start) / 1e6)}`),
      make("td", { class: "num" }, after === undefined ? "" : millis((after - t) / 1e6)));
  });
  const head = ["Stage", "Node", "Since sending, ms", "Lasted, ms"].map((words, place) => make("th", place < 2 ? {} : { class: "num" }, words));
  box.replaceChildren(
    make("div", {}, make("h3", {}, "Where it went"), make("p", { class: "mut" }, `${facts}.`)),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Stages of the turn" }, make("h3", {}, "Stages of the turn"), make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))));
}
