// The map of slots.
import assert from "node:assert/strict";
import { test } from "node:test";
import { RingFold, STATES } from "../../../../webui/static/run/ring.js";

const move = (t, before, after, slot = 3, incarnation = 1, request = 7, node = "gpu0") =>
  ({ t, node, seq: t, type: "slot.moved", slot, incarnation, before, after, request });
function fold(events) {
  const ring = new RingFold();
  for (const event of events) ring.take(event);
  return ring;
}
const slots = (ring, name = "gpu0") => ring.at(name, null);
const LIFE = [move(1, "empty", "prefill_pending"), move(2, "prefill_pending", "prefill_processing"), move(3, "prefill_processing", "decode_processing"),
  move(4, "decode_processing", "decode_paused"), move(5, "decode_paused", "decode_processing"), move(6, "decode_processing", "decode_completed"),
  move(7, "decode_completed", "empty")];

test("a slot's life, state by state, with one slot counted at any moment", () => {
  for (let k = 1; k <= LIFE.length; k++) {
    const ring = fold(LIFE.slice(0, k));
    assert.equal(slots(ring).get(3).state, LIFE[k - 1].after);
    assert.equal([...ring.rings.get("gpu0").counts.values()].reduce((a, b) => a + b), 1);
    assert.deepEqual(ring.gaps(), []);
  }
  assert.ok(STATES.every((state) => LIFE.some((one) => one.after === state)));
});

test("a late move of the DPU's joins up and changes nothing", () => {
  const late = [LIFE[1], LIFE[0], LIFE[2]];
  const ring = fold(late);
  assert.equal(slots(ring).get(3).state, "decode_processing");
  assert.deepEqual(ring.gaps(), []);
});

test("a move that is missing leaves a gap that is named", () => {
  const ring = fold([LIFE[0], LIFE[1], LIFE[3]]);
  assert.deepEqual(ring.gaps(), [{ ring: "gpu0", slot: 3 }]);
});

test("prompt.written and request.served move the slot", () => {
  const written = { t: 1, node: "dpu0", seq: 0, type: "prompt.written", request: 7, slot: 3, incarnation: 1, ring: "gpu0" };
  const served = { t: 9, node: "dpu0", seq: 1, type: "request.served", request: 7, tokens: 2, reason: "length" };
  const ring = fold([written]);
  assert.equal(slots(ring).get(3).state, "prefill_pending");
  for (const event of LIFE.slice(1, 6)) ring.take(event);
  assert.equal(slots(ring).get(3).state, "decode_completed");
  ring.take(served);
  assert.equal(slots(ring).get(3).state, "empty");
  assert.deepEqual(ring.gaps(), []);
});

test("served late does not empty a slot that was taken again", () => {
  const ring = fold([{ t: 1, node: "dpu0", seq: 0, type: "prompt.written", request: 7, slot: 3, incarnation: 1, ring: "gpu0" },
    { t: 2, node: "dpu0", seq: 1, type: "prompt.written", request: 8, slot: 3, incarnation: 2, ring: "gpu0" },
    { t: 3, node: "dpu0", seq: 2, type: "request.served", request: 7, tokens: 1, reason: "stop" }]);
  assert.equal(slots(ring).get(3).state, "prefill_pending");
  assert.equal(slots(ring).get(3).request, 8);
});

test("the map of an earlier moment, and of the fullest one", () => {
  const ring = fold([...LIFE.slice(0, 3), ...LIFE.map((one) => ({ ...one, t: one.t + 10, slot: 4, request: 8 }))]);
  assert.equal(ring.at("gpu0", 2).get(3).state, "prefill_processing");
  assert.equal(ring.at("gpu0", 2).has(4), false);
  assert.equal(ring.at("gpu0", 0).size, 0);
  assert.equal(ring.at("gpu0", 99).get(4).state, "empty");
  assert.deepEqual(ring.fullest, { t: 11, taken: 2 });
});

test("what both nodes log is taken once", () => {
  const written = { t: 1, node: "dpu0", seq: 0, type: "prompt.written", request: 7, slot: 3, incarnation: 1, ring: "gpu0" };
  const served = { t: 9, node: "dpu0", seq: 1, type: "request.served", request: 7, tokens: 2, reason: "length" };
  const ring = fold([written, ...LIFE, served]);
  assert.equal(slots(ring).get(3).state, "empty");
  assert.equal(slots(ring).get(3).moved, 7);
  assert.deepEqual(ring.gaps(), []);
});

const ready = (node) => ({ t: 0, node, seq: 0, type: "node.ready", role: "gpu", pid: 1 });
const written = (t, request, ring = "") => ({ t, node: "dpu0", seq: t, type: "prompt.written", request, slot: 3, incarnation: 1, ...(ring ? { ring } : {}) });
const served = (t, request) => ({ t, node: "dpu0", seq: t, type: "request.served", request, tokens: 1, reason: "stop" });

test("one number in two rings is two slots, each with its history", () => {
  const ring = fold([written(1, 7, "gpu0"), written(2, 8, "gpu1"), move(3, "prefill_pending", "prefill_processing"),
    move(4, "prefill_pending", "prefill_processing", 3, 1, 8, "gpu1"), served(5, 7)]);
  assert.deepEqual(ring.names(), ["gpu0", "gpu1"]);
  assert.deepEqual(["gpu0", "gpu1"].map((name) => slots(ring, name).get(3).state), ["empty", "prefill_processing"]);
  assert.deepEqual(["gpu0", "gpu1"].map((name) => ring.at(name, 2).get(3).request), [7, 8]);
  assert.deepEqual(ring.slotOf.get(8), { ring: "gpu1", slot: 3 });
  assert.deepEqual([...ring.rings.values()].map(({ most, taken }) => [most, taken]), [[1, 0], [1, 1]]);
  assert.deepEqual(ring.fullest, { t: 2, taken: 2 });
  assert.deepEqual(ring.gaps(), []);
});

test("a log that does not name the ring: the only GPU's, or that of the GPU which moves the request first", () => {
  assert.equal(slots(fold([ready("gpu7"), written(1, 7)]), "gpu7").get(3).state, "prefill_pending");
  const two = [ready("gpu0"), ready("gpu1"), written(1, 7), written(1, 8), written(1, 9)];
  assert.deepEqual(fold(two).names(), []);
  const ring = fold([...two, move(2, "prefill_pending", "prefill_processing", 3, 1, 8, "gpu1"), served(3, 7), served(4, 8),
    move(5, "prefill_pending", "prefill_processing", 3, 2, 9, "gpu1")]);
  assert.deepEqual(ring.names(), ["gpu1"]);
  assert.deepEqual([slots(ring, "gpu1").get(3).request, slots(ring, "gpu1").get(3).state], [9, "prefill_processing"]);
  assert.deepEqual(ring.gaps(), []);
});
