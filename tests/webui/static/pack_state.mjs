// What a page knows of a run from its log, and whether it knows the same from packs and the events after them; for
// test_pack.py. node pack_state.mjs EVENTS TABLES PACK...: of the log, only what lies after a pack's cursor is read.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { decodeLines } from "../../../webui/static/run/chunk.js";
import { latencies } from "../../../webui/static/run/latency.js";
import { Model } from "../../../webui/static/run/model.js";
import { openPack } from "../../../webui/static/run/pack.js";

const [folder, tables, ...packs] = process.argv.slice(2);

/** @param {string | null} packed */
function modelOf(packed) {
  const model = new Model(JSON.parse(readFileSync(tables, "utf8")));
  const offsets = new Map();
  if (packed) {
    const bytes = readFileSync(packed), pack = openPack(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    model.load(pack);
    for (const part of pack.head.cursor.split(",").filter(Boolean)) {
      const colon = part.lastIndexOf(":");
      offsets.set(part.slice(0, colon), Number(part.slice(colon + 1)));
    }
  }
  for (const name of readdirSync(folder).filter((one) => one.endsWith(".jsonl"))) {
    const rest = readFileSync(`${folder}/${name}`).subarray(offsets.get(name.replace(".jsonl", "")) ?? 0);
    model.add(decodeLines(rest.toString("utf8").trimEnd()).events, 0);
  }
  model.advance(0, true);
  return model;
}

const skipped = new Set(["version", "text", "told", "touched", "book", "readers", "takes", "journal", "order", "folds", "levels", "limits"]);
/** Everything of a fold in a form that does not depend on how it came to be. */
function plain(value) {
  if (value instanceof Map) return [...value].map(([key, one]) => [key, plain(one)]).sort((a, b) => (JSON.stringify(a[0]) < JSON.stringify(b[0]) ? -1 : 1));
  if (value instanceof Set) return [...value].sort();
  if (ArrayBuffer.isView(value)) return Array.from(value);
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).filter(([key]) => !skipped.has(key)).map(([key, one]) => [key, plain(one)]));
  return value === undefined ? null : value;
}
/** @param {Model} model */
function known(model) {
  const { sorted: _, ...itl } = latencies(model.exchanges.exchanges).itl;
  return { state: plain(model), itl, lanes: model.requestLanes().map(({ track, exchange, turn, ...lane }) => plain(lane)),
    fidelity: model.fidelity.result(), logged: model.journal.counts,
    lines: { all: model.journal.read("debug", "", 5000), info: model.journal.read("info", "", 5000), found: model.journal.read("debug", "r", 300) } };
}

const whole = known(modelOf(null));
for (const packed of packs) {
  const found = known(modelOf(packed));
  for (const part of Object.keys(whole)) assert.deepEqual(found[part], whole[part], `${part} from ${packed}`);
}
process.stdout.write(String(whole.state.events));
