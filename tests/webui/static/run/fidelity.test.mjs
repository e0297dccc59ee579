// The verdict so far; whole runs are held against testbed.metrics.fidelity in test_parity.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import { FidelityFold, lateEstimate } from "../../../../webui/static/run/fidelity.js";

const LIMITS = [
  { name: "lateness p99", unit: "ms", faithful: 0.5, invalid: 5, needed: true },
  { name: "drops", unit: "ppm", faithful: 0, invalid: 10000, needed: false },
  { name: "log gaps", unit: "records", faithful: 0, invalid: 0, needed: true },
];
const START = { type: "run.started", clock: "wall", dilation: 4 };
const READY = { type: "node.ready", role: "gpu", pid: 1 };
function fold(events) {
  const one = new FidelityFold(LIMITS);
  events.forEach((event, seq) => one.take({ t: 1, node: "gpu0", seq, ...event }));
  return one.result();
}
const late = (p99) => ({ type: "clock.measured", wakes: 1000, p50: 1e4, p99, worst: p99 });

test("held, crossed, crossed far", () => {
  assert.equal(fold([START, READY, late(1e6)]).verdict, "faithful"); // 1 ms wall at dilation 4 is 0.25
  assert.equal(fold([START, READY, late(8e6)]).verdict, "degraded");
  assert.equal(fold([START, READY, late(80e6)]).verdict, "invalid");
});

test("a missing reading is named and degrades", () => {
  const found = fold([START, READY]);
  assert.equal(found.verdict, "degraded");
  assert.deepEqual(found.missing, ["no lateness reading of gpu0"]);
});

test("a simulated run is judged by its log alone", () => {
  const found = fold([{ ...START, clock: "simulated" }, READY]);
  assert.equal(found.verdict, "faithful");
  assert.deepEqual(found.thresholds.map((one) => one.name), ["log gaps"]);
});

test("a gap in the log is invalid", () => assert.equal(fold([START, READY, { ...late(1), seq: 9 }]).verdict, "invalid"));

test("what was measured before the start does not count", () => assert.equal(fold([START, READY, { ...late(80e6), t: -5 }]).missing.length, 1));

test("the estimate is the one of testbed.metrics.fidelity", () => assert.equal(lateEstimate([[1000, 100, 7000, 9000]]), 5262));
