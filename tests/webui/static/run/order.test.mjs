// The one order, and when an event may be let go.
import assert from "node:assert/strict";
import { test } from "node:test";
import { before, PATIENCE_MS, Reorderer } from "../../../../webui/static/run/order.js";

const event = (t, node, seq, type = "line.logged") => ({ t, node, seq, type });
const names = (events) => events.map((one) => `${one.t}${one.node}${one.seq}`);

test("order is by time, then node, then number", () => {
  assert.ok(before(event(1, "b", 9), event(2, "a", 0)));
  assert.ok(before(event(1, "a", 9), event(1, "b", 0)));
  assert.ok(before(event(1, "a", 0), event(1, "a", 1)));
  assert.ok(!before(event(1, "a", 1), event(1, "a", 1)));
});

test("an event is held until every node has been heard later", () => {
  const order = new Reorderer();
  order.add([event(5, "a", 0), event(9, "a", 1)], 0);
  order.add([event(3, "b", 0)], 0);
  assert.deepEqual(names(order.release(0)), []); // b may still write at 3
  order.add([event(6, "b", 1)], 10);
  assert.deepEqual(names(order.release(10)), ["3b0", "5a0"]);
  assert.deepEqual(names(order.finish()), ["6b1", "9a1"]);
});

test("a node that has stopped, or was silent too long, is not waited for", () => {
  const order = new Reorderer();
  order.add([event(1, "a", 0), event(2, "a", 1)], 0);
  order.add([event(1, "b", 0, "node.stopped")], 0);
  assert.deepEqual(names(order.release(0)), ["1a0", "1b0"]);
  order.add([event(3, "c", 0)], 0);
  order.add([event(9, "a", 2)], PATIENCE_MS + 1);
  assert.deepEqual(names(order.release(PATIENCE_MS + 1)), ["2a1", "3c0"]);
});

test("whatever the cut into frames, the same events come out in the same order", () => {
  let seed = 7;
  const random = () => (seed = (seed * 1103515245 + 12345) % 2 ** 31) / 2 ** 31;
  const logs = ["a", "b", "c"].map((node) => { let t = 0; return Array.from({ length: 400 }, (_, seq) => event((t += Math.floor(random() * 4)), node, seq)); });
  const whole = logs.flat().sort((a, b) => (before(a, b) ? -1 : 1));
  for (let round = 0; round < 20; round++) {
    const order = new Reorderer(), places = [0, 0, 0], out = [];
    while (places.some((place, n) => place < logs[n].length)) {
      const n = Math.floor(random() * 3), size = Math.floor(random() * 60);
      order.add(logs[n].slice(places[n], places[n] + size), 0);
      places[n] = Math.min(logs[n].length, places[n] + size);
      // Only once all three have been heard is anything certain, as on the page, where the first frame has every node.
      if (places.every((place) => place > 0)) out.push(...order.release(0));
    }
    out.push(...order.finish());
    assert.deepEqual(names(out), names(whole));
  }
});

test("long queues do not keep what has gone", () => {
  const order = new Reorderer();
  order.add(Array.from({ length: 20000 }, (_, seq) => event(seq, "a", seq)), 0);
  order.add([event(1e9, "b", 0)], 0);
  assert.equal(order.release(0).length, 19999);
  assert.ok(order.lanes.get("a").events.length < 10000);
});
