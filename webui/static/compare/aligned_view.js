// @ts-check
// What of the aligned timelines is on screen, and how an address says it. Pure.

/** @typedef {{name: string, state: string, start: number, end: number, phases: {what: string, start: number, end: number}[], tokens: number[], pauses: [number, number][]}} Lane */
/** @typedef {{letter: string, name: string, trial: string, requests: number, lanes: Lane[]}} SideLanes */

/** @param {Lane[]} lanes @param {number} top @param {number} rows */
export const pageOf = (lanes, top, rows) => lanes.slice(top, top + rows);

/** What all names begin with, up to the last letter or sign before their numbers. @param {string[]} names */
export function commonPrefix(names) {
  let prefix = names[0] ?? "";
  for (const name of names) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
  return prefix.replace(/\d+$/, "");
}

/** A name for a narrow gutter. @param {string} name @param {string} prefix */
export function shortName(name, prefix) {
  const own = name.slice(prefix.length) || name;
  return own.length > 9 ? `…${own.slice(-8)}` : own;
}

/** When a request's first token was there. @param {Lane} lane */
export const firstToken = (lane) => (lane.tokens.length ? lane.tokens[0] : null);

/** In microseconds, which an address can bear. @param {{start: number, end: number}} view @param {number} top */
export const viewText = (view, top) => `${Math.round(view.start / 1e3)}-${Math.round(view.end / 1e3)}-${top}`.replace(/^-/, "m");

/** The view that an address keeps, or null where it keeps none that makes sense. @param {string} text */
export function viewOf(text) {
  const found = /^(m?)(\d{1,15})-(\d{1,15})-(\d{1,5})$/.exec(text);
  if (!found) return null;
  const start = Number(found[2]) * 1e3 * (found[1] ? -1 : 1), end = Number(found[3]) * 1e3;
  return end > start ? { start, end, top: Number(found[4]) } : null;
}
