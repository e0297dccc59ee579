// Folds a run's event files with the page's own modules and prints what they say as JSON; for test_parity.py.
import { readdirSync, readFileSync } from "node:fs";
import { decodeLines } from "../../../webui/static/run/chunk.js";
import { latencies } from "../../../webui/static/run/latency.js";
import { Model } from "../../../webui/static/run/model.js";

const [folder, tables] = process.argv.slice(2);
const model = new Model(JSON.parse(readFileSync(tables, "utf8")));
// File by file in uneven pieces, as frames bring them; the model puts them in order.
const logs = readdirSync(folder).filter((name) => name.endsWith(".jsonl")).map((name) => decodeLines(readFileSync(`${folder}/${name}`, "utf8").trimEnd()).events);
const places = logs.map(() => 0);
for (let round = 0; places.some((place, n) => place < logs[n].length); round++) {
  logs.forEach((events, n) => {
    const size = round === 0 ? 5 : 300 + 170 * n;
    model.add(events.slice(places[n], places[n] + size), 0);
    places[n] = Math.min(events.length, places[n] + size);
  });
  model.advance(0, false);
}
model.advance(0, true);

const figures = latencies(model.exchanges.exchanges);
for (const one of Object.values(figures)) delete one.sorted;
process.stdout.write(JSON.stringify({
  events: model.events,
  figures,
  served: model.exchanges.served(),
  tokens: model.exchanges.tokens,
  ring: { slots: model.ring.names().flatMap((ring) => [...model.ring.rings.get(ring).slots].sort((a, b) => a[0] - b[0])
    .map(([slot, one]) => [ring, slot, one.state, one.incarnation, one.request, one.moved])), gaps: model.ring.gaps().map(({ ring, slot }) => [ring, slot]), moves: model.ring.moves },
  counts: [...model.ring.rings.values()].reduce((sum, { counts }) => { for (const [state, n] of counts) sum[state] = (sum[state] ?? 0) + n; return sum; }, {}),
  fullest: model.ring.fullest,
  tops: Object.fromEntries([...model.ring.rings].map(([ring, { most }]) => [ring, most])),
  fidelity: model.fidelity.result(),
  lanes: model.requestLanes().map((lane) => ({ name: lane.name, request: lane.request, ring: lane.ring, slot: lane.slot, start: lane.start, end: lane.end,
    phases: lane.phases.map((phase) => [phase.what, phase.start, phase.end]), tokens: lane.tokens, pauses: lane.pauses, state: lane.state,
    reason: lane.reason, steps: lane.track ? [...lane.track.steps].map(([step, times]) => [step, times.first, times.last, times.count]).sort((a, b) => a[0] - b[0]) : [],
    text: lane.track ? lane.track.text.map(([, text]) => text).join("") : "" })),
}));
