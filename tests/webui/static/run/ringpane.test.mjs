// The keyboard on the map of a ring.
import assert from "node:assert/strict";
import { test } from "node:test";
import { placeAfter } from "../../../../webui/static/run/ringpane.js";

// Ten slots in rows of four, of which three are taken.
const after = (key, cursor) => placeAfter(key, cursor, 4, 10, [2, 5, 9]);

test("arrows go from slot to slot and stay on the map", () => {
  assert.deepEqual(["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"].map((key) => after(key, null)), [0, 0, 0, 0]);
  assert.deepEqual(["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"].map((key) => after(key, 5)), [6, 4, 9, 1]);
  assert.deepEqual([after("ArrowRight", 9), after("ArrowLeft", 0), after("ArrowDown", 6), after("ArrowUp", 3)], [9, 0, 6, 3]);
  assert.deepEqual([after("Home", 5), after("End", 5)], [0, 9]);
});

test("Page up and Page down go from taken slot to taken slot", () => {
  assert.deepEqual([null, 2, 3, 9].map((at) => after("PageDown", at)), [2, 5, 5, 9]);
  assert.deepEqual([null, 2, 5, 8].map((at) => after("PageUp", at)), [9, 2, 2, 5]);
  assert.equal(placeAfter("PageDown", null, 4, 10, []), 0);
});

test("other keys are not the map's", () => {
  for (const key of ["j", "Tab", "+", "a"]) assert.equal(after(key, 3), undefined);
});
