// Exchanges and latencies; the numbers of whole runs are held against the Python folds in test_parity.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import { distribution, ExchangeFold, histogram, latencies, linear } from "../../../../webui/static/run/latency.js";

const MS = 1e6;
function fold(events) {
  const one = new ExchangeFold();
  events.forEach((event, seq) => one.take({ node: "client0", seq, ...event }));
  return one;
}
const sent = (name, t) => ({ t, type: "request.sent", name, scheduled: t, lag: 0, prompt_tokens: 5, max_tokens: 9 });
const token = (name, t, index, count = 1) => ({ t, type: "token.received", name, index, count });
const done = (name, t, tokens) => ({ t, type: "request.finished", name, tokens, reason: "length" });

test("TTFT, ITL and TPOT by their formulae", () => {
  const { exchanges } = fold([sent("a", 0), token("a", 40 * MS, 0), token("a", 50 * MS, 1), token("a", 70 * MS, 2), done("a", 71 * MS, 3)]);
  const found = latencies(exchanges);
  assert.equal(found.ttft.p50, 40);
  assert.equal(found.itl.n, 2);
  assert.equal(found.itl.p50, 15);
  assert.equal(found.tpot.p50, 15);
  assert.equal(found.ttst.p50, 10);
});

test("only finished requests count; failed ones count nowhere", () => {
  const { exchanges, completed, failed } = fold([sent("a", 0), token("a", MS, 0), sent("b", 0), token("b", MS, 0),
    { t: 2 * MS, type: "request.failed", name: "b", error: "gone" }]);
  assert.equal(latencies(exchanges).ttft.n, 0);
  assert.deepEqual([completed, failed], [0, 1]);
});

test("a request of one token has no TPOT", () => {
  const found = latencies(fold([sent("a", 0), token("a", MS, 0), done("a", MS, 1)]).exchanges);
  assert.equal(found.tpot.n, 0);
  assert.equal(found.tpot.p50, null);
});

test("chunks of several tokens are one gap and several tokens", () => {
  const one = fold([sent("a", 0), token("a", MS, 0, 3), token("a", 5 * MS, 3, 4), done("a", 5 * MS, 7)]);
  assert.equal(one.tokens, 7);
  assert.equal(latencies(one.exchanges).itl.n, 1);
  assert.equal(latencies(one.exchanges).tpot.p50, 4 / 6);
});

test("percentiles are numpy's linear ones, and null where n is too small", () => {
  assert.equal(linear([1, 2, 3, 4], 0.5), 2.5);
  assert.equal(linear([10], 0.99), 10);
  const few = distribution(Array.from({ length: 99 }, (_, k) => k * MS));
  assert.equal(few.p99, null);
  assert.equal(few.p90, 88.2);
  assert.equal(distribution(Array.from({ length: 100 }, (_, k) => k * MS)).p99, 98.01);
});

test("an event of an unknown request is a stray, a second end changes nothing", () => {
  const one = fold([token("x", 1, 0), sent("a", 0), done("a", 2, 1), done("a", 9, 1)]);
  assert.equal(one.strays, 2);
  assert.equal(one.exchanges[0].ended, 2);
});

test("tokens a second: of the recent past, and of all", () => {
  const events = [sent("a", 0)];
  for (let k = 0; k < 100; k++) events.push(token("a", k * 10 * MS, k));
  const one = fold([...events, done("a", 1000 * MS, 100)]);
  assert.equal(one.recent(1000 * MS, 500 * MS), 100);
  assert.equal(one.served(), 100);
  assert.equal(new ExchangeFold().served(), null);
});

test("a histogram loses no value", () => {
  const values = distribution(Array.from({ length: 5000 }, (_, k) => (k % 97) * MS + (k === 7 ? 900 * MS : 0)));
  assert.equal(histogram(values, 44).counts.reduce((a, b) => a + b), 5000);
  assert.equal(histogram(distribution([]), 44).counts.reduce((a, b) => a + b), 0);
});
