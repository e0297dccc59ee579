// The ring at any moment is what its changes up to there come to.
import assert from "node:assert/strict";
import { test } from "node:test";
import { SlotHistory } from "../../../../webui/static/run/slothistory.js";

test("at every moment each slot is as its newest change left it, however many there were", () => {
  let seed = 5;
  const random = (n) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % n;
  for (const many of [0, 1, 8191, 8192, 8193, 30000]) {
    const history = new SlotHistory(), all = [];
    let t = -3;
    for (let place = 0; place < many; place++) {
      t += random(3);
      const number = random(40), held = { state: ["empty", "full", "odd"][random(3)], incarnation: random(9), request: random(1000), moved: t };
      all.push([number, held]);
      history.push(number, held);
    }
    for (const moment of [-10, -3, Math.floor(t / 3), Math.floor(t / 2), t - 1, t, t + 1]) {
      const expected = new Map();
      for (const [number, held] of all) if (held.moved <= moment) expected.set(number, held);
      const found = history.at(moment);
      assert.deepEqual(new Map([...found].sort((a, b) => a[0] - b[0])), new Map([...expected].sort((a, b) => a[0] - b[0])));
    }
  }
});
