// What is fetched for one request.
import assert from "node:assert/strict";
import { test } from "node:test";
import { storyAddress, Told } from "../../../../webui/static/run/told.js";

const lines = ['{"t":1,"node":"a","seq":0,"type":"tokens.detokenised","request":3,"first":0,"count":1,"text":"Hi"}',
  '{"t":2,"node":"a","seq":1,"type":"tokens.detokenised","request":3,"first":1,"count":1,"text":""}',
  '{"t":3,"node":"a","seq":2,"type":"tokens.streamed","request":3,"first":0,"count":1}'].join("\n");
const lane = (told) => ({ key: "r3", request: 3, name: "a&b <c>", track: { text: [], told } });
const server = (...answers) => { const asked = []; return { asked, get: async (where) => { asked.push(where); return answers.shift(); } }; };

test("names go into the address as they are", () => {
  assert.equal(storyAddress("/runs/1/story", lane(true)), "/runs/1/story?request=3&name=a%26b+%3Cc%3E");
  assert.equal(storyAddress("/runs/1/story?trial=x%3D1", { request: null, name: "a0.t000" }), "/runs/1/story?trial=x%3D1&name=a0.t000");
});

test("a text is fetched once, and not where it is there", async () => {
  const { asked, get } = server({ ok: true, text: async () => `${lines}\n` });
  const told = new Told("/runs/1/story", get), one = lane(false);
  assert.equal(await told.text(one), true);
  assert.deepEqual(one.track.text, [[0, "Hi"]]);
  assert.equal(await told.text(one), false);
  assert.equal(await told.text({ key: "r4", request: 4, name: "", track: { text: [], told: true } }), false);
  assert.equal(await told.text({ key: "n4", request: null, name: "x", track: null }), false);
  assert.equal(asked.length, 1);
});

test("after an error it is asked for again", async () => {
  const { asked, get } = server({ ok: false, status: 503 }, { ok: true, text: async () => lines });
  const told = new Told("/runs/1/story", get), one = lane(false);
  assert.equal(await told.text(one), false);
  assert.equal(await told.text(one), true);
  assert.equal(asked.length, 2);
});
