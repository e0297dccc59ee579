// A run whose clients log nothing has figures too: those of its front end.
import assert from "node:assert/strict";
import { test } from "node:test";
import { latencies } from "../../../../webui/static/run/latency.js";
import { TrackFold } from "../../../../webui/static/run/requests.js";
import { rateBetween, servedOf } from "../../../../webui/static/run/served.js";

function tracks() {
  const fold = new TrackFold();
  const take = (t, type, more) => fold.take({ t, node: "dpu0", seq: 0, type, ...more });
  take(10e6, "request.arrived", { request: 1, name: "", prompt_characters: 3, max_tokens: 9 });
  for (const [launch, count, t] of [[1, 1, 15e6], [2, 2, 18e6], [3, 3, 24e6]]) take(t, "tokens.published", { launch, requests: [1], counts: [count] });
  take(16e6, "tokens.streamed", { request: 1, first: 0, count: 1 });
  take(26e6, "tokens.streamed", { request: 1, first: 2, count: 1 });
  take(27e6, "request.served", { request: 1, tokens: 3, reason: "length" });
  take(30e6, "request.arrived", { request: 2, name: "x", prompt_characters: 3, max_tokens: 9 });
  take(31e6, "request.abandoned", { request: 2 });
  return fold;
}

test("from arrival to streaming, as the summary has it", () => {
  const { ttft, tpot, itl } = latencies(servedOf(tracks()));
  assert.equal(ttft.p50, 6);
  assert.equal(tpot.p50, 5);
  assert.equal(itl.n, 2);
});

test("a client that went away is a failure", () => {
  const [served, gone] = servedOf(tracks());
  assert.equal(served.error, "");
  assert.equal(gone.error, "abandoned");
});

test("tokens a second of a stretch", () => {
  assert.equal(rateBetween(servedOf(tracks()), 15e6, 25e6), 200);
  assert.equal(rateBetween([], 5, 5), null);
});
