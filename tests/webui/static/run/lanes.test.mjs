// Lanes that are made anew one by one are the lanes that are made all at once; reading, finding, whereabouts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LaneBook, label, laneNamed, whereabouts } from "../../../../webui/static/run/lanes.js";
import { ExchangeFold } from "../../../../webui/static/run/latency.js";
import { TrackFold } from "../../../../webui/static/run/requests.js";
import { TurnFold } from "../../../../webui/static/run/turns.js";

let seed = 3;
const random = (n) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % n;

/** Events of many requests, in order of time: some without a server, some turns, some that fail, some that go on. */
function log(many) {
  const events = [];
  for (let n = 0; n < many; n++) {
    const name = `q${String(n).padStart(3, "0")}`, kind = random(3);
    let t = random(500);
    const put = (type, more) => events.push({ t: (t += random(20)), node: "n", seq: events.length, type, name, request: n, turn: name, ...more });
    put("request.sent", { scheduled: t, prompt_tokens: 5, max_tokens: 9 });
    if (kind === 1) {
      put("request.arrived", { max_tokens: 9 });
      put("slot.claimed", { slot: n });
      for (let count = 1; count < 6; count++) {
        put("tokens.published", { launch: 1, requests: [n], counts: [count] });
        if (random(3) === 0) { put("slot.moved", { slot: n, before: "decode_processing", after: "decode_paused" }); put("slot.moved", { slot: n, before: "decode_paused", after: "decode_processing" }); }
      }
    } else if (kind === 2) {
      for (const stage of ["queued", "placed", "reading", "ready", "prefilling"]) put("turn.stage", { stage });
      put("path.chosen", { path: ["prefill", "decode", "split", "none"][random(4)] });
    }
    for (let place = 0; place < random(6); place++) put("token.received", { index: place, count: 1 + random(2) });
    if (random(4)) put(random(5) ? "request.finished" : "request.failed", { tokens: 5, reason: "length", error: "gone" });
  }
  return events.sort((a, b) => a.t - b.t || a.seq - b.seq);
}
function folds() {
  const tracks = new TrackFold(), exchanges = new ExchangeFold(), turns = new TurnFold();
  return { take: (event) => { tracks.take(event); exchanges.take(event); turns.take(event); }, book: new LaneBook(tracks, exchanges, turns) };
}
const plain = (lanes) => lanes.map(({ track, exchange, turn, ...lane }) => ({ ...lane, tokens: [...lane.tokens] }));

test("looked at in between or not, the lanes come out the same", () => {
  for (let round = 0; round < 30; round++) {
    const events = log(25), often = folds(), once = folds();
    let now = 0;
    for (const event of events) {
      now = Math.max(now, event.t);
      often.take(event);
      once.take(event);
      if (random(3) === 0) often.book.at(now);
    }
    assert.deepEqual(plain(often.book.at(now + 5)), plain(once.book.at(now + 5)));
    assert.equal(new Set(often.book.lanes.map((lane) => lane.key)).size, often.book.lanes.length);
  }
});

test("only lanes that something was heard of are made anew", () => {
  const { take, book } = folds(), events = log(40);
  for (const event of events) take(event);
  const phases = book.at(1e6).map((lane) => lane.phases);
  assert.ok(book.at(2e6).every((lane, place) => lane.phases === phases[place]));
});

const stage = (t, stage) => ({ t, node: "sched0", seq: 0, type: "turn.stage", turn: "a.t1", stage });
test("reading lasts from its stage to the next, by the chosen path", () => {
  const { take, book } = folds();
  take({ t: 0, node: "c", seq: 0, type: "request.sent", name: "a.t1", scheduled: 0, prompt_tokens: 1, max_tokens: 1 });
  take(stage(5, "queued"));
  take(stage(9, "reading"));
  const [lane] = book.at(12);
  assert.deepEqual(lane.reading, { start: 9, end: 12, path: "" });
  assert.equal(book.at(20)[0].reading.end, 20);
  take({ t: 20, node: "s", seq: 0, type: "path.chosen", turn: "a.t1", path: "decode" });
  take(stage(30, "ready"));
  assert.deepEqual(book.at(90)[0].reading, { start: 9, end: 30, path: "decode" });
  assert.deepEqual([whereabouts(lane, 8), whereabouts(lane, 10), whereabouts(lane, -1)], ["queued", "reading, DE path", "not sent yet"]);
});

test("a lane is called what the log calls it: by the client's name, else by the server's number", () => {
  assert.equal(label({ request: 3, name: "request-00002" }), "request-00002");
  assert.equal(label({ request: null, name: "a0001.t002" }), "a0001.t002");
  assert.equal(label({ request: 3, name: "" }), "request 3");
});

test("nothing to read is no reading", () => {
  const { take, book } = folds();
  take({ t: 0, node: "c", seq: 0, type: "request.sent", name: "a.t1", scheduled: 0, prompt_tokens: 1, max_tokens: 1 });
  take({ t: 1, node: "s", seq: 0, type: "path.chosen", turn: "a.t1", path: "none" });
  take(stage(9, "reading"));
  assert.equal(book.at(12)[0].reading, null);
});

test("a request is found by number, name, beginning or part", () => {
  const lanes = [[7, "request-00017"], [17, "request-00003"], [null, "a0001.t002"]].map(([request, name]) => ({ request, name }));
  const found = (text) => laneNamed(lanes, text)?.name;
  assert.equal(found("17"), "request-00003");
  assert.equal(found(" R0007 "), "request-00017");
  assert.equal(found("request 17"), "request-00003");
  assert.equal(found("request-00017"), "request-00017");
  assert.equal(found("a0001"), "a0001.t002");
  assert.equal(found("t002"), "a0001.t002");
  assert.equal(found("zzz"), undefined);
  assert.equal(found(""), undefined);
});
