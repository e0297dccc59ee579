// What is looked at stands in the address.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Remember } from "../../../../webui/static/run/remember.js";

const remember = (query) => { const put = []; return { put, told: new Remember(new URL(`http://x/runs/r${query}`), (address) => put.push(String(address))) }; };

test("empty values leave the address, others stay", () => {
  const { put, told } = remember("?line=1&trial=a");
  told.set({ request: "r1", line: null, find: "" });
  told.now();
  assert.deepEqual(put, ["http://x/runs/r?trial=a&request=r1"]);
});

test("a stretch of time in microseconds, and only a real one", () => {
  assert.deepEqual(remember("?from=10&to=30").told.stretch(), [10e3, 30e3]);
  for (const query of ["", "?from=3&to=3", "?from=x&to=9", "?from=9"]) assert.equal(remember(query).told.stretch(), null);
});

test("a view that follows or shows the whole run is not kept", () => {
  const { told } = remember("");
  told.keepView({ follow: false, whole: false, start: 5e6, end: 9e6 });
  assert.equal(told.get("from"), "5000");
  told.keepView({ follow: true, whole: false, start: 5e6, end: 9e6 });
  assert.equal(told.get("from"), null);
  told.now();
});

test("another trial keeps the view and the charts, but not the line of this one", () => {
  const { told } = remember("?trial=a&from=1&to=9&charts=itl&line=3:n:1");
  assert.equal(told.ofTrial("b=2").search, "?trial=b%3D2&from=1&to=9&charts=itl");
});
