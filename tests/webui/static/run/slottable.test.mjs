// The text twin of the maps of rings.
import assert from "node:assert/strict";
import { test } from "node:test";
import { taken } from "../../../../webui/static/run/slottable.js";

test("the slots that hold a request, ring by ring, by number", () => {
  const held = (state, request, moved) => ({ state, request, moved, incarnation: 1 });
  const panes = [{ name: "gpu0", shown: new Map([[9, held("decode_paused", 4, 30)], [2, held("prefill_pending", 5, 40)], [3, held("empty", 1, 50)]]) },
    { name: "gpu1", shown: new Map([[2, held("decode_processing", 6, 20)]]) }];
  assert.deepEqual(taken(panes), [{ ring: "gpu0", slot: 2, state: "prefill_pending", request: 5, moved: 40 },
    { ring: "gpu0", slot: 9, state: "decode_paused", request: 4, moved: 30 }, { ring: "gpu1", slot: 2, state: "decode_processing", request: 6, moved: 20 }]);
  assert.deepEqual(taken([{ name: "gpu0", shown: new Map() }]), []);
});
