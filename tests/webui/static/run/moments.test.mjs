// The moment that a reason is about.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MomentFold, worstOf } from "../../../../webui/static/run/moments.js";

const fold = (...events) => {
  const moments = new MomentFold();
  events.forEach(([type, more, t = 1e6, node = "n0"], seq) => moments.take({ t, node, seq, type, ...more }));
  return moments;
};

test("the worst reading of a threshold, at its place or anywhere", () => {
  const late = (p99, t, node) => ["clock.measured", { wakes: 9, p50: 1, p99, worst: p99 }, t, node];
  const moments = fold(late(5, 10, "a"), late(9, 20, "b"), late(7, 30, "a"));
  assert.equal(moments.of("lateness p99", "a"), 30);
  assert.equal(moments.of("lateness p99", "nodes with few wakes"), 20);
  assert.equal(moments.of("drops", "a"), null);
});

test("a reading of nothing is no moment", () => {
  assert.equal(fold(["link.measured", { port: "p", lane: 1, drops: 0, rate_bits_per_s: 0, setting_bits_per_s: 1 }]).of("drops", "p VL1"), null);
});

test("stages of the bench and the nodes that have ended", () => {
  const moments = fold(["stage.entered", { stage: "nodes" }, 0, "bench"], ["stage.entered", { stage: "x" }, 0, "gpu0"], ["node.stopped", { code: 0 }, 5, "gpu0"]);
  assert.deepEqual(moments.stages.map(({ stage }) => stage), ["nodes"]);
  assert.equal(moments.stopped.get("gpu0"), 0);
});

test("what the bench says while it cleans up, and only then", () => {
  const says = (text, node = "bench", more = {}) => ["line.logged", { text, ...more }, 0, node];
  const before = [says("reaped a link"), ["stage.entered", { stage: "finalising" }, 0, "bench"]];
  assert.equal(fold(...before).cleaning, "");
  const moments = fold(...before, says("ending 4 nodes"), says("removing 10 interfaces"), says("it is deaf", "bench", { severity: "warning" }), says("bye", "gpu0"));
  assert.equal(moments.cleaning, "removing 10 interfaces");
});

test("the request behind a broken expectation", () => {
  const done = (sent, times, more = {}) => ({ sent, times, ended: times.at(-1) ?? sent + 1, error: "", ...more });
  const all = [done(0, [10, 20]), done(5, [40, 43, 90]), done(7, [], { error: "gone" })];
  assert.deepEqual(worstOf("systems.blink.ttft_ms.p99", all), { start: 5, end: 40 });
  assert.deepEqual(worstOf("systems.blink.itl_ms.p50", all), { start: 43, end: 90 });
  assert.deepEqual(worstOf("systems.blink.requests.failed", all), { start: 7, end: 8 });
  assert.equal(worstOf("systems.blink.energy.mj_per_token", all), null);
});
