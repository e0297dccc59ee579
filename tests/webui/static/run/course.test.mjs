// A figure over a run in bounded bins.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Course, stepFor } from "../../../../webui/static/run/course.js";

const total = (points, step) => points.y.reduce((sum, value) => sum + (value ?? 0) * step / 1e9, 0);

test("a total keeps its sum however often pairs are put together", () => {
  const course = new Course("total");
  let sum = 0;
  for (let t = 0; t < 60e9; t += 7.3e6) { course.add(t, 3); sum += 3; }
  assert.ok(course.values.length <= 8192);
  assert.ok(course.width > 1e6);
  for (const step of [course.width, course.width * 4]) assert.ok(Math.abs(total(course.read(0, 61e9, step), step) - sum) < 1e-6);
});

test("an amount over a stretch is spread by time", () => {
  const course = new Course("total");
  course.spread(0.5e6, 2.5e6, 20);
  assert.deepEqual(course.values.map((value) => Math.round(value * 1e6) / 1e6), [5, 10, 5]);
  course.spread(1e6, 1e6, 7);
  assert.equal(course.values[1], 17);
});

test("a gauge shows the most of a bin and holds what was said last", () => {
  const course = new Course("gauge");
  course.add(0.1e6, 4); course.add(0.2e6, 9); course.add(0.3e6, 2); course.add(5.5e6, 1);
  assert.deepEqual(course.read(0, 6e6, 1e6).y, [9, 2, 2, 2, 2, 1]);
  assert.deepEqual(course.read(3e6, 6e6, 1e6).y, [2, 2, 1]);
  assert.equal(new Course("gauge").read(0, 1e9, 1e6).x.length, 0);
});

test("what came before the epoch is left out", () => {
  const course = new Course("gauge");
  course.add(-5, 3);
  assert.ok(course.empty);
});

test("one grid fits courses of different length", () => {
  const short = new Course("total"), long = new Course("total");
  short.add(1e6, 1); long.add(100e9, 1);
  const step = stepFor([short, long], 0, 100e9, 200);
  assert.equal(step % short.width, 0);
  assert.equal(step % long.width, 0);
  assert.ok(100e9 / step <= 200);
});
