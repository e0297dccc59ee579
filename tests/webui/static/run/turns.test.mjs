// An agent's turn: its place, its path, its stages, and how they cut its lane.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ExchangeFold } from "../../../../webui/static/run/latency.js";
import { LaneBook } from "../../../../webui/static/run/lanes.js";
import { TrackFold } from "../../../../webui/static/run/requests.js";
import { TurnFold } from "../../../../webui/static/run/turns.js";

const stage = (t, stage, node = "sched0") => ({ t, node, type: "turn.stage", turn: "a0000.t001", stage, detail: "" });
const EVENTS = [
  { t: 0, node: "client0", type: "request.sent", name: "a0000.t001", scheduled: 0, lag: 0, prompt_tokens: 700, max_tokens: 2 },
  stage(5, "queued"),
  { t: 6, node: "sched0", type: "turn.placed", turn: "a0000.t001", prefill_node: "pe0", prefill_engine: 1, decode_node: "de0",
    decode_engine: 0, hit_tokens: 640, prompt_tokens: 700, waited: 1 },
  { t: 6, node: "sched0", type: "path.chosen", turn: "a0000.t001", path: "decode", prefill_blocks: 0, decode_blocks: 10, prefill_queue: 2, decode_queue: 1 },
  stage(7, "placed"), stage(8, "allocated", "de0"), stage(20, "ready", "de0"), stage(30, "prefilled", "pe0"),
  { t: 33, node: "client0", type: "token.received", name: "a0000.t001", index: 0, count: 1 },
  { t: 40, node: "client0", type: "token.received", name: "a0000.t001", index: 1, count: 1 },
  { t: 40, node: "client0", type: "request.finished", name: "a0000.t001", tokens: 2, reason: "length" },
];
function fold(events) {
  const turns = new TurnFold(), exchanges = new ExchangeFold();
  events.forEach((event, seq) => { turns.take({ seq, ...event }); exchanges.take({ seq, ...event }); });
  return { turns, lanes: new LaneBook(new TrackFold(), exchanges, turns).at(100) };
}

test("a turn knows its place, its path and its stages in order", () => {
  const turn = fold(EVENTS).turns.byName.get("a0000.t001");
  assert.deepEqual([turn.placed, turn.path, turn.hitTokens, turn.promptTokens], ["pe0.1 and de0.0", "decode", 640, 700]);
  assert.deepEqual(turn.stages.map((one) => one.stage), ["queued", "placed", "allocated", "ready", "prefilled"]);
  assert.equal(turn.stages[2].node, "de0");
});

test("its lane is queued until its KV is there", () => {
  const [lane] = fold(EVENTS).lanes;
  assert.deepEqual(lane.phases.map((phase) => [phase.what, phase.start, phase.end]),
    [["sending", 0, 5], ["queued", 5, 20], ["prefill", 20, 33], ["decode", 33, 40], ["delivery", 40, 40]]);
  assert.equal(lane.turn.path, "decode");
});

test("of a turn that was placed again the last stages count", () => {
  const [lane] = fold([...EVENTS.slice(0, 8), stage(31, "queued"), stage(50, "ready", "de1"), ...EVENTS.slice(8).map((event) => ({ ...event, t: event.t + 50 }))]).lanes;
  assert.deepEqual(lane.phases.find((phase) => phase.what === "prefill"), { what: "prefill", start: 50, end: 83 });
});

test("events of anything else change nothing", () => {
  const { turns } = fold([EVENTS[0], { t: 1, node: "n", type: "slot.moved", slot: 1, request: 1, before: "a", after: "b" }]);
  assert.equal(turns.version, 0);
});
