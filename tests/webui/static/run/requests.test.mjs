// Lanes, steps and stories; whole runs are held against testbed.metrics.spans in test_parity.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ExchangeFold } from "../../../../webui/static/run/latency.js";
import { LaneBook } from "../../../../webui/static/run/lanes.js";
import { STEP_WORDS, TrackFold } from "../../../../webui/static/run/requests.js";
import { TurnFold } from "../../../../webui/static/run/turns.js";

const EVENTS = [
  { t: 0, type: "request.sent", name: "a", scheduled: 0, lag: 0, prompt_tokens: 6, max_tokens: 3 },
  { t: 10, type: "request.arrived", request: 1, name: "a", prompt_characters: 20, max_tokens: 3 },
  { t: 20, type: "slot.found", request: 1, slot: 5, probes: 1 },
  { t: 30, type: "slot.claimed", request: 1, slot: 5, incarnation: 1, scan: 1 },
  { t: 31, type: "graph.selected", launch: 4, kind: "prefill", graph: "g", requests: [1], tokens: 6, fallback: false },
  { t: 32, type: "graph.launched", launch: 4, kind: "prefill", graph: "g", mode: "tail", batch: 1, window: 0, in_window: 1, cost: 5 },
  { t: 40, type: "tokens.sampled", launch: 4, requests: [1], tokens: [9] },
  { t: 41, type: "tokens.published", launch: 4, requests: [1], counts: [1] },
  { t: 45, type: "slot.moved", slot: 5, incarnation: 1, before: "decode_processing", after: "decode_paused", request: 1 },
  { t: 55, type: "slot.moved", slot: 5, incarnation: 1, before: "decode_paused", after: "decode_processing", request: 1 },
  { t: 60, type: "tokens.published", launch: 5, requests: [1], counts: [3] },
  { t: 70, type: "tokens.detokenised", request: 1, first: 0, count: 1, text: "Al" },
  { t: 71, type: "tokens.detokenised", request: 1, first: 1, count: 2, text: "ice" },
  { t: 80, type: "request.finished", name: "a", tokens: 3, reason: "length" },
];
function fold(events, now = 100) {
  const tracks = new TrackFold(), exchanges = new ExchangeFold();
  events.forEach((event, seq) => { tracks.take({ node: "n", seq, ...event }); exchanges.take({ node: "n", seq, ...event }); });
  return new LaneBook(tracks, exchanges, new TurnFold()).at(now);
}

test("phases meet, and end where the request ends", () => {
  const [lane] = fold(EVENTS);
  assert.deepEqual(lane.phases.map((phase) => [phase.what, phase.start, phase.end]),
    [["sending", 0, 10], ["queued", 10, 30], ["prefill", 30, 41], ["decode", 41, 60], ["delivery", 60, 80]]);
  assert.deepEqual(lane.tokens, [41, 60, 60]);
  assert.deepEqual(lane.pauses, [[45, 55]]);
  assert.deepEqual([lane.state, lane.slot, lane.request, lane.name], ["done", 5, 1, "a"]);
});

test("a launch belongs to the requests of its selection", () => {
  const steps = fold(EVENTS)[0].track.steps;
  assert.deepEqual([...steps.keys()].sort((a, b) => a - b), [1, 4, 6, 7, 8, 9, 10, 12]);
  assert.deepEqual(steps.get(8), { first: 32, last: 32, count: 1 });
});

test("text keeps the place of its first token", () => assert.deepEqual(fold(EVENTS)[0].track.text, [[0, "Al"], [1, "ice"]]));

test("a request on its way reaches to now; a pause that goes on too", () => {
  const [lane] = fold(EVENTS.slice(0, 9), 99);
  assert.equal(lane.end, 99);
  assert.equal(lane.state, "running");
  assert.deepEqual(lane.pauses, [[45, 99]]);
});

test("a request that no server logged has its tokens from the client", () => {
  const [lane] = fold([EVENTS[0], { t: 8, type: "token.received", name: "a", index: 0, count: 2 }]);
  assert.deepEqual(lane.tokens, [8, 8]);
  assert.equal(lane.request, null);
});

test("a refused request is failed and says why", () => {
  const [lane] = fold([EVENTS[0], { t: 5, type: "request.refused", request: 1, name: "a", reason: "ring_full" },
    { t: 6, type: "request.failed", name: "a", error: "429 ring_full" }]);
  assert.deepEqual([lane.state, lane.reason], ["failed", "429 ring_full"]);
});

test("the thirteen steps are all there, in order", () => assert.deepEqual(STEP_WORDS.map(([step]) => step), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]));
