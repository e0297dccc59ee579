// The log for people.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Journal, wordsOf } from "../../../../webui/static/run/journal.js";

const event = (type, more = {}, t = 1) => ({ t, node: "gpu0", seq: t, type, ...more });
function fill(events, levels = { "clock.late": "warning", "node.heartbeat": "debug" }) {
  const journal = new Journal(levels);
  for (const one of events) journal.take(one);
  return journal;
}

test("floods are for `everything` only", () => {
  const journal = fill([event("tokens.read"), event("slot.moved"), event("stage.entered", { stage: "network", detail: "" })], { "tokens.read": "debug", "slot.moved": "debug" });
  assert.deepEqual(journal.read("info", "", 9).map((line) => line.type), ["stage.entered"]);
  assert.equal(journal.read("debug", "", 9).length, 3);
});

test("newest first, by level and node", () => {
  const journal = fill([event("line.logged", { text: "one", severity: "info" }, 1), event("line.logged", { text: "two", severity: "error" }, 2)]);
  assert.deepEqual(journal.read("info", "", 9).map((line) => line.text), ["two", "one"]);
  assert.deepEqual(journal.read("error", "", 9).map((line) => line.text), ["two"]);
  assert.equal(journal.read("info", "gpu0", 9).length, 2);
  assert.equal(journal.read("info", "dpu0", 9).length, 0);
  assert.deepEqual([...journal.nodes], ["gpu0"]);
  assert.equal(journal.read("info", "", 1).length, 1);
});

test("a node that died is an error, whatever the schema's level", () => {
  assert.equal(fill([event("node.stopped", { code: 1, detail: "oh" })]).read("error", "", 9).length, 1);
  assert.equal(fill([event("node.stopped", { code: 0, detail: "" })]).read("warning", "", 9).length, 0);
});

test("late wakes of a second are one line with the worst", () => {
  const late = (t, lateness) => event("clock.late", { lateness }, t);
  const journal = fill([late(1, 2e6), late(2, 9e6), late(3, 4e6), late(2e9, 1e6)]);
  const lines = journal.read("warning", "", 9);
  assert.equal(lines.length, 2);
  assert.match(lines[1].text, /3 times .* worst 9\.0 ms/);
});

test("deaths of schedulers and neighbours are told in words", () => {
  assert.equal(wordsOf(event("watchdog.fired", { life: 1, silent: 200_008_024, restarts: 2 })), "no sign of life of scheduler 1 for 200.0 ms; restart 2");
  assert.equal(wordsOf(event("watchdog.calmed", { life: 1, outage: 200_008_024, ring: "gpu1" })), "scheduler 1 of gpu1 gives signs of life, 200.0 ms after the last one");
  assert.equal(wordsOf(event("scheduler.restarted", { life: 2, running: 0, waiting: 4, ended: 1, interrupted: 0 })),
    "scheduler 2 goes on with 0 requests, prefills 4 again, ends 1, gives up 0");
  assert.equal(wordsOf(event("neighbour.started", { name: "zip", kind: "pbzip2", threads: 12, containers: 4, cpus: [0], program: "bz2" })),
    "zip: bz2, 12 threads in 4 containers on CPU 0");
  assert.equal(wordsOf(event("mitigation.applied", { name: "cache_partition", applied: false, detail: "no resctrl" })), "cache_partition NOT in force: no resctrl");
});

test("an event without the expected fields is shown, not thrown", () => {
  assert.equal(typeof wordsOf(event("lanes.applied", {})), "string");
  assert.equal(wordsOf(event("new.thing", { a: 1, b: [2] })), "a 1, b [2]");
});

test("F5: a line of megabytes is cut with a mark", () => {
  const [line] = fill([event("line.logged", { text: "x".repeat(10_000_000), severity: "info" })]).read("info", "", 9);
  assert.ok(line.text.length < 2100);
  assert.match(line.text, /… \(9998000 characters more, in the file\)$/);
});
