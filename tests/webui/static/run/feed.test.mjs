// Which way the events come: as a pack, as a stream, and how a page waits while the pack is made.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Feed } from "../../../../webui/static/run/feed.js";

const settle = () => new Promise((done) => setImmediate(done));
/** A feed whose server answers with these, and what it told the page. */
function stage(...answers) {
  const told = [], waits = [], asked = [];
  const note = (what) => (...values) => told.push([what, ...values]);
  const feed = new Feed({ stream: "ws://x/s", pack: "/p" }, { events: note("events"), packed: note("packed"), run: note("run"),
    end: note("end"), progress: note("progress"), state: note("state") },
  { fetch: async (where) => { asked.push(where); const answer = answers.shift(); if (answer instanceof Error) throw answer; return answer; }, later: (f) => waits.push(f) });
  let connected = 0;
  feed.stream.connect = () => { connected++; };
  return { feed, told, waits, asked, connected: () => connected };
}

test("a run that goes on is streamed without a question", async () => {
  const { feed, asked, connected } = stage();
  feed.start(false);
  await settle();
  assert.deepEqual([connected(), asked.length], [1, 0]);
});

test("a pack in the making is asked for again, and the page hears how far it is", async () => {
  const { feed, told, waits, asked, connected } = stage({ status: 202, json: async () => ({ share: 0.4 }) }, { status: 204 });
  feed.start(true);
  await settle();
  assert.deepEqual(told, [["progress", 0.4]]);
  waits[0]();
  await settle();
  assert.deepEqual([connected(), asked.length], [1, 2]);
});

test("a pack that is none, or cannot be had, leaves the log", async () => {
  for (const answer of [{ status: 200, arrayBuffer: async () => new TextEncoder().encode("<html>nothing").buffer }, new Error("no network"), { status: 500 }]) {
    const { feed, told, connected } = stage(answer);
    feed.start(true);
    await settle();
    assert.equal(connected(), 1);
    assert.deepEqual(told, []);
  }
});

test("a page that is closed asks no more", async () => {
  const { feed, connected } = stage({ status: 204 });
  feed.start(true);
  feed.close();
  await settle();
  assert.equal(connected(), 0);
});
