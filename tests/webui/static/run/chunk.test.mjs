// Frames of the live stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeChunk, decodeLines } from "../../../../webui/static/run/chunk.js";

const frame = (text) => new TextEncoder().encode(text);
const line = (seq, more = "") => `{"t":${seq},"node":"gpu0","seq":${seq},"type":"node.heartbeat"${more}}\n`;

test("a frame is a cursor and whole events", () => {
  const chunk = decodeChunk(frame(`{"cursor":"gpu0:12"}\n${line(0)}${line(1)}`));
  assert.equal(chunk.cursor, "gpu0:12");
  assert.deepEqual(chunk.events.map((event) => event.seq), [0, 1]);
  assert.equal(chunk.bad, 0);
  assert.equal(chunk.bytes, line(0).length + line(1).length);
});

test("an ArrayBuffer is as good as an array", () => {
  const bytes = frame(`{"cursor":""}\n${line(0)}`);
  assert.equal(decodeChunk(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)).events.length, 1);
});

test("newlines, commas and brackets inside texts do not cut an event", () => {
  const text = JSON.stringify("a,\n]} \u2028 é");
  const chunk = decodeChunk(frame(`{"cursor":"x:1"}\n${line(0, `,"text":${text}`)}`));
  assert.equal(chunk.events[0].text, "a,\n]} \u2028 é");
});

test("a frame may hold no event", () => assert.deepEqual(decodeChunk(frame('{"cursor":"a:1"}\n')).events, []));

test("a bad line is counted and the others are kept", () => {
  const { events, bad } = decodeLines(`${line(0)}{"t":1,"no\nnull\n3\n{"t":"x"}\n${line(2)}`.trimEnd());
  assert.deepEqual(events.map((event) => event.seq), [0, 2]);
  assert.equal(bad, 4);
});

test("a frame without a first line, a cursor or sound text is refused", () => {
  assert.throws(() => decodeChunk(frame("no newline")));
  assert.throws(() => decodeChunk(frame('{"place":1}\n')), /no cursor/);
  assert.throws(() => decodeChunk(Uint8Array.of(0xff, 0xfe, 10)));
});
