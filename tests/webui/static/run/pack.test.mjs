// Columns of a pack; that a whole one gives a page's whole state is test_pack.py's.
import assert from "node:assert/strict";
import { test } from "node:test";
import { growing, openPack } from "../../../../webui/static/run/pack.js";

/** A pack of these columns: [name, kind, typed array]. */
function pack(head, ...columns) {
  const places = {}, parts = [];
  let at = 0;
  for (const [name, kind, values] of columns) {
    places[name] = [kind, at, values.length];
    const bytes = new Uint8Array(Math.ceil(values.byteLength / 8) * 8);
    bytes.set(new Uint8Array(values.buffer));
    parts.push(bytes);
    at += bytes.length;
  }
  let text = JSON.stringify({ format: 1, ...head, columns: places });
  text = text.padEnd(Math.ceil(text.length / 8) * 8);
  const whole = new Uint8Array(8 + text.length + at);
  whole.set(new TextEncoder().encode("LPTL"));
  new DataView(whole.buffer).setUint32(4, text.length, true);
  whole.set(new TextEncoder().encode(text), 8);
  let place = 8 + text.length;
  for (const part of parts) { whole.set(part, place); place += part.length; }
  return whole.buffer;
}

test("rows of times come back, the empty ones too, from steps or whole", () => {
  const stepped = openPack(pack({}, ["a.length", "u4", Uint32Array.of(0, 3, 0, 1)], ["a.first", "f8", Float64Array.of(-5, 1e12)], ["a.step", "u4", Uint32Array.of(0, 4e9, 1, 0)]));
  assert.deepEqual(stepped.times("a").map((row) => [...row]), [[], [-5, 4e9 - 5, 4e9 - 4], [], [1e12]]);
  const whole = openPack(pack({}, ["a.length", "u4", Uint32Array.of(2, 1)], ["a.t", "f8", Float64Array.of(1, 9e9, 3)]));
  assert.deepEqual(whole.times("a").map((row) => [...row]), [[1, 9e9], [3]]);
});

test("events of several tables come back in their order, with texts and lists", () => {
  const tables = [
    { type: "x.y", n: 2, logged: false, fields: [{ name: "t" }, { name: "node", texts: ["a", "b"] }, { name: "seq" }, { name: "list", values: [[1], null] }] },
    { type: "z.w", n: 1, logged: true, fields: [{ name: "t" }, { name: "node", texts: ["b"] }, { name: "seq" }] },
  ];
  const found = [];
  openPack(pack({ tables }, ["order", "u2", Uint16Array.of(0, 1, 0)],
    ["0.t", "i4", Int32Array.of(1, 3)], ["0.node", "u2", Uint16Array.of(0, 1)], ["0.seq", "i4", Int32Array.of(0, 7)], ["0.list", "u2", Uint16Array.of(0, 1)],
    ["1.t", "i4", Int32Array.of(2)], ["1.node", "u2", Uint16Array.of(0)], ["1.seq", "i4", Int32Array.of(6)])).replay((event, logged) => found.push([{ ...event }, logged]));
  assert.deepEqual(found, [
    [{ t: 1, node: "a", seq: 0, type: "x.y", list: [1] }, false],
    [{ t: 2, node: "b", seq: 6, type: "z.w" }, true],
    [{ t: 3, node: "b", seq: 7, type: "x.y", list: null }, false],
  ]);
});

test("another file, and a pack of another format, are refused", () => {
  assert.throws(() => openPack(new TextEncoder().encode("<!doctype html>").buffer), /no packed timeline/);
  assert.throws(() => openPack(new ArrayBuffer(3)), /no packed timeline/);
  assert.throws(() => openPack(pack({ format: 2 })), /format 2/);
});

test("a view of a pack becomes a list once it has to grow", () => {
  const list = [1];
  assert.equal(growing(list), list);
  assert.deepEqual(growing(Float64Array.of(1, 2)), [1, 2]);
});
