// One request's story as data.
import assert from "node:assert/strict";
import { test } from "node:test";
import { longest, sharesOf, taleOf } from "../../../../webui/static/run/tale.js";

const lane = (more = {}) => ({ key: "r1", name: "request-1", request: 1, slot: 3, start: 0, end: 100e6, state: "done", reason: "length", promptTokens: 7, maxTokens: 9,
  phases: [{ what: "queued", start: 0, end: 20e6 }, { what: "prefill", start: 20e6, end: 50e6 }, { what: "decode", start: 50e6, end: 100e6 }],
  tokens: [50e6, 60e6, 85e6, 100e6], pauses: [[62e6, 72e6]], track: { text: [[0, "Hel"], [2, "lo"]] }, exchange: null, turn: null, ...more });

test("shares of its time are the whole of it, and a pause is no decoding", () => {
  const shares = sharesOf(lane());
  assert.deepEqual(shares.map(({ stage, percent }) => [stage, percent]), [["queued", 20], ["prefill", 30], ["decode", 40], ["paused", 10]]);
});

test("a turn is told by the stages that the servers named", () => {
  const stages = [{ stage: "queued", t: 10e6, node: "s" }, { stage: "reading", t: 30e6, node: "p" }, { stage: "decoding", t: 60e6, node: "d" }];
  const shares = sharesOf(lane({ turn: { stages, placed: "", path: "", hitTokens: 0, promptTokens: 0 } }));
  assert.deepEqual(shares.map(({ stage, ms }) => [stage, ms]), [["sending", 10], ["queued", 20], ["reading", 30], ["decoding", 40]]);
  assert.equal(shares.reduce((sum, { percent }) => sum + percent, 0), 100);
});

test("the longest gaps come first and name the token after them", () => {
  assert.deepEqual(longest([50e6, 60e6, 85e6, 100e6]).map(({ token, ms }) => [token, ms]), [[3, 25], [4, 15], [2, 10]]);
  assert.deepEqual(longest([]), []);
});

test("each piece of text has its moment; those of the log are taken where they are there", () => {
  assert.deepEqual(taleOf(lane()).text, [{ first: 0, text: "Hel", ms: 50 }, { first: 2, text: "lo", ms: 85 }]);
  const told = taleOf(lane(), [{ t: 1, node: "d", seq: 0, type: "tokens.detokenised", first: 1, count: 1, text: "<script>" }]);
  assert.deepEqual(told.text, [{ first: 1, text: "<script>", ms: 60 }]);
});

test("the path, why, its blocks and its hops", () => {
  const at = (type, more, t) => ({ t, node: "p", seq: 0, type, ...more });
  const hop = (t, source) => at("transfer.finished", { hop: "pe1-2", layer: 0, source, target: "p.snic0", bytes: 10, blocks: 2, began: t - 5, crossed: [] }, t);
  const tale = taleOf(lane(), [at("path.chosen", { path: "decode", prefill_blocks: 0, decode_blocks: 4, prefill_queue: 900, decode_queue: 100 }, 1), hop(20, "a"), hop(30, "b")]);
  assert.equal(tale.path, "decode");
  assert.match(tale.why, /900 tokens on the prefill side and 100 on the decode side/);
  assert.match(tale.blocks, /4 by the decode node/);
  assert.deepEqual(tale.hops, [{ hop: "pe1-2", transfers: 2, blocks: 4, bytes: 20, first: 15, last: 30, ends: ["a → p.snic0", "b → p.snic0"] }]);
});
