// @ts-check
// Requests as the front end saw them, for a run whose clients log nothing (`looplane serve`): arrival, and when tokens
// were in the ring; the first and the last are taken when they were streamed, so that TTFT and TPOT are those of the
// summary. Pure.

/** @typedef {import("./latency.js").Exchange} Exchange */

/** @param {import("./requests.js").TrackFold} tracks @returns {Exchange[]} */
export function servedOf(tracks) {
  const exchanges = [];
  for (const track of tracks.tracks.values()) {
    const arrived = track.steps.get(1)?.first, streamed = track.steps.get(13);
    if (arrived === undefined) continue;
    const times = Float64Array.from(track.published);
    if (times.length && streamed) {
      times[0] = Math.max(times[0], streamed.first);
      times[times.length - 1] = Math.max(times[times.length - 1], streamed.last);
    }
    const failed = track.ended !== null && !["stop", "length"].includes(track.reason);
    exchanges.push({ name: track.name, scheduled: arrived, sent: arrived, promptTokens: track.promptTokens, maxTokens: track.maxTokens, times, counts: null,
      received: times.length, ended: track.ended, tokens: times.length, reason: failed ? "" : track.reason, error: failed ? track.reason : "" });
  }
  return exchanges;
}

/** The same with the ring's own times throughout: they only grow, which a course that looks at what is new relies on.
 * @param {import("./requests.js").TrackFold} tracks @returns {{sent: number, times: ArrayLike<number>, counts: null}[]} */
export function publishedOf(tracks) {
  return [...tracks.tracks.values()].map((track) => ({ sent: track.steps.get(1)?.first ?? 0, times: track.published, counts: null }));
}

/** Tokens a second between two moments. @param {Exchange[]} exchanges @param {number} start @param {number} end */
export function rateBetween(exchanges, start, end) {
  let count = 0;
  for (const { times } of exchanges) for (let place = times.length - 1; place >= 0 && times[place] > start; place--) if (times[place] <= end) count++;
  return end > start ? (count * 1e9) / (end - start) : null;
}
