// The stream's client: acknowledges, reconnects from its cursor, gives up where coming back is of no use.
import assert from "node:assert/strict";
import { test } from "node:test";
import { SILENCE_MS, Stream } from "../../../../webui/static/run/socket.js";

function stage() {
  const opened = [], waits = [], heard = { events: [], runs: [], ends: 0, states: [] };
  const world = {
    open: (url) => { const socket = { url, sent: [], send: (text) => socket.sent.push(text), close() {} }; opened.push(socket); return socket; },
    later: (f, ms) => waits.push([f, ms]),
  };
  const stream = new Stream("ws://x/ws/runs/1", {
    events: (events) => heard.events.push(...events), run: (facts) => heard.runs.push(facts), end: () => heard.ends++,
    state: (state) => heard.states.push(state),
  }, world);
  return { stream, opened, waits, heard };
}
const frame = (cursor, ...seqs) => new TextEncoder().encode(`{"cursor":"${cursor}"}\n` + seqs.map((seq) => `{"t":${seq},"node":"a","seq":${seq},"type":"x.y"}\n`).join("")).buffer;

test("each frame is answered once and moves the cursor", () => {
  const { stream, opened, heard } = stage();
  stream.connect();
  opened[0].onopen();
  opened[0].onmessage({ data: frame("a:5", 0, 1) });
  opened[0].onmessage({ data: frame("a:9", 2) });
  assert.deepEqual(opened[0].sent, ["a", "a"]);
  assert.deepEqual(heard.events.map((event) => event.seq), [0, 1, 2]);
  assert.equal(stream.cursor, "a:9");
});

test("a lost stream comes back from its cursor, waiting longer each time", () => {
  const { stream, opened, waits, heard } = stage();
  stream.connect();
  opened[0].onopen();
  opened[0].onmessage({ data: frame("a:5,b:7", 0) });
  opened[0].onclose({ code: 1006 });
  waits[0][0]();
  assert.equal(opened[1].url, "ws://x/ws/runs/1?cursor=a%3A5%2Cb%3A7");
  opened[1].onclose({ code: 1006 });
  opened[0].onclose({ code: 1006 }); // an old socket's word counts no more
  assert.equal(waits.length, 2);
  assert.ok(waits[1][1] > waits[0][1]);
  assert.deepEqual(heard.states, ["live", "stale", "stale"]);
});

test("a frame of an old socket is dropped, so nothing is folded twice", () => {
  const { stream, opened, waits, heard } = stage();
  stream.connect();
  opened[0].onclose({ code: 1006 });
  waits[0][0]();
  opened[0].onmessage({ data: frame("a:5", 0) });
  assert.deepEqual(heard.events, []);
});

test("after the end nothing is opened again", () => {
  const { stream, opened, waits, heard } = stage();
  stream.connect();
  opened[0].onmessage({ data: '{"run":{"state":"finished"}}' });
  opened[0].onmessage({ data: '{"end":{"cursor":"a:5"}}' });
  opened[0].onclose({ code: 1000 });
  assert.deepEqual([heard.ends, waits.length, heard.states.at(-1)], [1, 0, "ended"]);
});

test("signed out, or no such run: it says so and stays away", () => {
  for (const code of [4401, 4404, 4400]) {
    const { stream, opened, waits, heard } = stage();
    stream.connect();
    opened[0].onclose({ code });
    assert.deepEqual([waits.length, heard.states.at(-1)], [0, "refused"]);
  }
});

test("a line that is silent for long is given up, and what it still says counts no more", () => {
  let now = 0;
  const opened = [], waits = [], states = [];
  const stream = new Stream("ws://x", { events: () => assert.fail("too late"), run: () => {}, end: () => {}, state: (state) => states.push(state) },
    { open: () => { const socket = { send() {}, close() {} }; opened.push(socket); return socket; }, later: (f) => waits.push(f), now: () => now });
  stream.connect();
  opened[0].onopen();
  now = SILENCE_MS;
  stream.look();
  assert.equal(waits.length, 0);
  opened[0].onmessage({ data: "{}" }); // the server's beat
  now += SILENCE_MS;
  stream.look();
  assert.equal(waits.length, 0);
  now += 1;
  stream.look();
  assert.deepEqual(states, ["live", "stale"]);
  opened[0].onmessage({ data: frame("a:5", 0) });
  opened[0].onclose({ code: 1006 });
  assert.equal(waits.length, 1);
});

test("a page that wakes does not wait for its turn, and its old turn does not come twice", () => {
  const { stream, opened, waits } = stage();
  stream.connect();
  opened[0].onclose({ code: 1006 });
  stream.look();
  assert.equal(opened.length, 1);
  stream.look(true);
  assert.equal(opened.length, 2);
  waits[0][0]();
  assert.equal(opened.length, 2);
  stream.look(true); // it is being opened already
  assert.equal(opened.length, 2);
});
