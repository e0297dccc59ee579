// The view of the aligned timelines in an address, and names in a narrow gutter.
import assert from "node:assert/strict";
import { test } from "node:test";
import { commonPrefix, firstToken, pageOf, shortName, viewOf, viewText } from "../../../../webui/static/compare/aligned_view.js";

test("a view comes back from its address to the microsecond", () => {
  for (const [start, end, top] of [[0, 5e9, 0], [-40e6, 2e9, 8], [1_234_567_000, 1_234_568_000, 32]]) {
    assert.deepEqual(viewOf(viewText({ start, end }, top)), { start, end, top });
  }
});

test("an address that says nonsense keeps no view", () => {
  for (const text of ["", "1", "5-5-0", "9-2-0", "a-b-c", "1-2-3-4", "1e3-2e3-0", "m5-m2-0", "1-9999999999999999-0"]) {
    assert.equal(viewOf(text), null, text);
  }
});

test("names lose what they all begin with, but never their numbers", () => {
  const names = ["client0.r-00001", "client0.r-00002"], prefix = commonPrefix(names);
  assert.equal(prefix, "client0.r-");
  assert.equal(shortName(names[1], prefix), "00002");
  assert.equal(commonPrefix(["a12", "a13"]), "a");
  assert.equal(commonPrefix([]), "");
  assert.equal(commonPrefix(["one", "two"]), "");
  assert.equal(shortName("one", "one"), "one");
  assert.equal(shortName("a-very-long-name", ""), "…ong-name");
});

test("a page of lanes, and a request without tokens", () => {
  const lanes = Array.from({ length: 10 }, (_, place) => ({ tokens: place ? [place] : [] }));
  assert.deepEqual(pageOf(lanes, 8, 8), lanes.slice(8));
  assert.equal(firstToken(lanes[0]), null);
  assert.equal(firstToken(lanes[3]), 3);
});
