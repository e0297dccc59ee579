// Which charts a run has follows from what it logged.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Course } from "../../../../webui/static/run/course.js";
import { Model } from "../../../../webui/static/run/model.js";
import { chartsOf, together } from "../../../../webui/static/run/series.js";
import { TokenCourse } from "../../../../webui/static/run/tokencourse.js";

function charts(events) {
  const model = new Model({ levels: {}, limits: [] }), tokens = new TokenCourse(), seqs = new Map();
  model.add(events.map(([type, more, t = 1e6, node = "n0"]) => {
    const seq = seqs.get(node) ?? 0;
    seqs.set(node, seq + 1);
    return { t, node, seq, type, ...more };
  }), 0);
  model.advance(0, true);
  tokens.look(model.exchanges.exchanges);
  return chartsOf(model, tokens, () => "");
}

test("an empty run has no chart", () => assert.deepEqual(charts([]), []));

test("a chart for each kind of reading, and none else", () => {
  const found = charts([["read_queue.measured", { tokens: 5 }], ["neighbour.measured", { name: "zip", interval: 1e9, done: 3, unit: "MB", cpu: 1 }],
    ["link.measured", { port: "a.b", lane: 0, interval: 1e8, bytes: 1, packets: 1, drops: 0, rate_bits_per_s: 5e9, setting_bits_per_s: 1e10 }]]);
  assert.deepEqual(found.map(({ id }) => id), ["queues", "lanes", "neighbours"]);
  assert.deepEqual(found[2].read(0, 2e6).lines.map(({ name }) => name), ["zip, MB"]);
  assert.deepEqual(found[1].read(0, 2e6).lines, [{ name: "VL0", y: [5] }]);
});

test("what a storage node receives is not a read", () => {
  const crossed = (node) => ({ began: 0, bytes: 1e6, crossed: [`${node}.snic0.snic_rx`] });
  const found = charts([["read_queue.measured", { tokens: 5 }, 1e6, "pe0"], ["transfer.finished", crossed("pe0"), 1e6, "pe0"], ["transfer.finished", crossed("storage0"), 1e6, "storage0"]]);
  assert.deepEqual(found.find(({ id }) => id === "snic").read(0, 2e6).lines.map(({ name }) => name), ["pe0"]);
});

test("many lines are told as mean, most and least", () => {
  const named = Array.from({ length: 9 }, (_, place) => { const course = new Course("gauge"); course.add(1e6, place); return [`n${place}`, course]; });
  const { lines } = together(named, 0, 2e6);
  assert.deepEqual(lines.map(({ name }) => name), ["mean of 9", "most", "least"]);
  assert.deepEqual(lines.map(({ y }) => y.at(-1)), [4, 8, 0]);
});
