// Readings become courses by what they measure.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CourseFold } from "../../../../webui/static/run/courses.js";

const fold = (...events) => {
  const courses = new CourseFold();
  for (const [type, more, t = 1e6, node = "n0"] of events) courses.take({ t, node, seq: 0, type, ...more });
  return courses;
};

test("a transfer's bytes count for the side that its storage NIC was on", () => {
  const courses = fold(["transfer.finished", { began: 0, bytes: 1e6, crossed: ["pe0.snic0.snic_rx", "storage0.snic0.snic_tx", "pe0.dram"] }, 1e6]);
  assert.deepEqual(courses.all("snic read").map(([node]) => node), ["pe0"]);
  assert.deepEqual(courses.all("snic write").map(([node]) => node), ["storage0"]);
  const { y } = courses.all("snic read")[0][1].read(0, 2e6, 1e6);
  assert.ok(Math.abs(y.reduce((sum, value) => sum + value, 0) * 1e-3 - 8e-3) < 1e-9);  // Gbit
});

test("lateness is told in true time, CPU pressure only where the kernel has it", () => {
  const courses = fold(["run.started", { dilation: 40 }], ["clock.measured", { wakes: 3, p99: 8e6 }], ["cpu.measured", { busy_percent: 50, some_percent: -1 }]);
  assert.equal(courses.all("late")[0][1].read(0, 2e6, 1e6).y[1], 0.2);
  assert.deepEqual(courses.all("cpu").map(([name]) => name), ["busy"]);
});

test("a kind that was never logged has no course", () => {
  assert.deepEqual(fold(["batch.changed", { running: 2, paused: 0, pending: 1, kv_blocks_free: 1, kv_blocks_total: 4 }]).all("neighbour"), []);
});

test("what a port carries by its finished transfers", () => {
  const courses = fold(["transfer.finished", { began: 0, bytes: 1e6, crossed: ["pe0.cnic1.wire", "pe0.cnic1.cnic_read"] }, 1e6]);
  assert.ok(Math.abs(courses.portRate("pe0.cnic1", 0, 2e6) - 4e9) < 1);
  assert.equal(courses.portRate("pe0.cnic0", 0, 2e6), null);
});
