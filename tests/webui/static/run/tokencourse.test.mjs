// Tokens and latencies over a run: the same whether chunks come one by one or all at once.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TokenCourse } from "../../../../webui/static/run/tokencourse.js";

function exchanges(upTo) {
  return Array.from({ length: 30 }, (_, place) => {
    const sent = place * 20e6, times = Array.from({ length: 40 }, (_, chunk) => sent + 5e6 + chunk * (6e6 + place * 1e4)).filter((t) => t <= upTo);
    return { sent, times: Float64Array.from(times), counts: place % 3 ? null : new Uint32Array(times.length).fill(2) };
  });
}

test("looked at often or once, it is the same", () => {
  const often = new TokenCourse(), once = new TokenCourse();
  for (let t = 0; t <= 1e9; t += 37e6) often.look(exchanges(t));
  often.look(exchanges(2e9));
  once.look(exchanges(2e9));
  assert.deepEqual(often.tokens.values, once.tokens.values);
  const sorted = (bins) => bins.map((bin) => [...bin].sort((a, b) => a - b));
  assert.deepEqual(sorted(often.itl.bins), sorted(once.itl.bins));
  assert.deepEqual(often.ttft.read(), once.ttft.read());
});

test("a p99 is only said of a hundred values or more", () => {
  const course = new TokenCourse();
  course.look([{ sent: 0, times: Float64Array.from({ length: 50 }, (_, place) => 1e6 + place * 1e4), counts: null }]);
  const { p50, p99, worst } = course.itl.read();
  assert.ok(p50[0] > 0 && worst[0] > 0);
  assert.equal(p99[0], null);
});

test("bins stay few, and every value is in one", () => {
  const course = new TokenCourse(), times = Float64Array.from({ length: 5000 }, (_, place) => 1e6 + place * 3e7);
  course.look([{ sent: 0, times, counts: null }]);
  assert.ok(course.itl.bins.length <= 96);
  assert.equal(course.itl.bins.flat().length, 4999);
});
