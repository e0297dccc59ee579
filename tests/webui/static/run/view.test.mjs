// The stretch of time on screen.
import assert from "node:assert/strict";
import { test } from "node:test";
import { axisLabel, ticks, View } from "../../../../webui/static/run/view.js";

test("follow keeps the newest at the right edge", () => {
  const view = new View();
  view.setSpan(2e9);
  view.advance(10e9);
  assert.ok(view.end >= 10e9 && view.end < 10.1e9);
  assert.equal(view.end - view.start, 2e9);
});

test("what a person moves stays; only resume follows again", () => {
  const view = new View();
  view.advance(10e9);
  view.pan(-0.5);
  const { start, end } = view;
  view.advance(20e9);
  assert.deepEqual([view.start, view.end, view.follow], [start, end, false]);
  view.resume();
  assert.ok(view.follow && view.end > 20e9);
});

test("zoom keeps the moment under the pointer, and has a floor", () => {
  const view = new View();
  view.advance(10e9);
  view.set(2e9, 4e9);
  view.zoom(0.5, 0.25);
  assert.equal(view.start + (view.end - view.start) * 0.25, 2.5e9);
  for (let k = 0; k < 100; k++) view.zoom(0.5);
  assert.ok(view.end - view.start >= 20e3);
});

test("the whole run is whole until somebody moves", () => {
  const view = new View();
  view.advance(10e9);
  view.fit();
  assert.ok(view.whole && !view.follow);
  view.pan(0.1);
  assert.ok(!view.whole);
});

test("zoom while following changes the span and goes on following", () => {
  const view = new View();
  view.advance(10e9);
  view.zoom(0.5);
  assert.ok(view.follow);
  assert.equal(view.end - view.start, 2e9);
});

test("ticks are round, inside and not too many", () => {
  for (const [start, end] of [[0, 4e9], [1.234e9, 1.2345e9], [0, 600e9], [5, 25e3]]) {
    const { at, step } = ticks(start, end, 1200);
    assert.ok(at.length >= 2 && at.length <= 13, `${at.length} ticks`);
    assert.ok(at.every((t) => t >= start - 1e-6 && t <= end + 1e-6 && Math.abs(t / step - Math.round(t / step)) < 1e-6));
  }
  assert.deepEqual(ticks(1, 1, 100).at, []);
});

test("labels have as many digits as the step needs", () => {
  assert.equal(axisLabel(1.5e9, 0.5e9), "1.5 s");
  assert.equal(axisLabel(2e9, 1e9), "2 s");
  assert.equal(axisLabel(2.25e9, 0.05e9), "2.25 s");
  assert.equal(axisLabel(1.25e6, 0.05e6), "1.25 ms");
});
