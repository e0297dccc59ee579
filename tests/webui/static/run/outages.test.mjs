// Outages of a scheduler, from its last sign of life on.
import assert from "node:assert/strict";
import { test } from "node:test";
import { OutageFold } from "../../../../webui/static/run/outages.js";

function fold(...events) {
  const outages = new OutageFold();
  for (const event of events) outages.take({ node: "dpu0", seq: 0, ...event });
  return outages;
}

test("it begins with the last sign of life and ends with the next", () => {
  const { outages } = fold({ t: 100, type: "watchdog.fired", life: 0, silent: 30, restarts: 1 }, { t: 140, type: "watchdog.fired", life: 0, silent: 70, restarts: 2 });
  assert.deepEqual(outages.map(({ start, end }) => [start, end]), [[70, null]]);
  const closed = fold({ t: 100, type: "watchdog.fired", life: 0, silent: 30, restarts: 1 }, { t: 150, type: "watchdog.calmed", life: 1, outage: 82 });
  assert.deepEqual(closed.outages.map(({ start, end }) => [start, end]), [[68, 150]]);
});

test("one that was noticed only when it was over, and one that never ends", () => {
  assert.deepEqual(fold({ t: 50, type: "watchdog.calmed", life: 1, outage: 20 }).outages.map(({ start, end }) => [start, end]), [[30, 50]]);
  const [lost] = fold({ t: 50, type: "watchdog.fired", life: 1, silent: 20, restarts: 1 }, { t: 80, type: "watchdog.gave_up", life: 1, restarts: 3 }).outages;
  assert.deepEqual([lost.start, lost.end, lost.words], [30, null, "scheduler given up"]);
});

test("two front ends have outages of their own; faults on purpose are moments", () => {
  const found = fold({ t: 10, type: "watchdog.fired", life: 0, silent: 5, restarts: 1 }, { t: 20, node: "dpu1", type: "watchdog.fired", life: 0, silent: 5, restarts: 1 },
    { t: 25, node: "dpu1", type: "watchdog.calmed", life: 1, outage: 10 }, { t: 3, type: "fault.injected", what: "gpu0", kind: "kill-scheduler" });
  assert.deepEqual(found.outages.map(({ node, end }) => [node, end]), [["dpu0", null], ["dpu1", 25]]);
  assert.deepEqual(found.faults, [{ t: 3, words: "kill-scheduler: gpu0" }]);
});

test("two rings of one front end's node have outages of their own", () => {
  const { outages } = fold({ t: 10, type: "watchdog.fired", life: 0, silent: 5, restarts: 1, ring: "gpu0" },
    { t: 12, type: "watchdog.fired", life: 0, silent: 5, restarts: 1, ring: "gpu1" }, { t: 20, type: "watchdog.calmed", life: 1, outage: 15, ring: "gpu0" });
  assert.deepEqual(outages.map(({ ring, start, end }) => [ring, start, end]), [["gpu0", 5, 20], ["gpu1", 7, null]]);
});
