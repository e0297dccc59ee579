// @ts-check
// Numbers as the page writes them. Widths are steady: the digits after the point depend on the size only.

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

/** @param {number} value */
export const count = (value) => whole.format(value);

/** Milliseconds with about three digits. @param {number | null | undefined} value */
export function millis(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  return size >= 100 ? whole.format(value) : value.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/** A length of time from nanoseconds. @param {number} ns */
export function span(ns) {
  if (ns >= 10e9) return `${(ns / 1e9).toFixed(1)} s`;
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(2)} s`;
  return ns >= 1e6 ? `${millis(ns / 1e6)} ms` : `${(ns / 1e3).toFixed(ns >= 10e3 ? 0 : 1)} µs`;
}

/** Bits a second. @param {number} bits */
export function rate(bits) {
  if (bits >= 1e9) return `${(bits / 1e9).toFixed(bits >= 100e9 ? 0 : 1)} Gbit/s`;
  return bits >= 1e6 ? `${(bits / 1e6).toFixed(bits >= 100e6 ? 0 : 1)} Mbit/s` : `${(bits / 1e3).toFixed(0)} kbit/s`;
}

/** With a capital, as a sentence begins. @param {string} words */
export const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** @param {number} value @param {string} unit @param {string} [units] */
export const several = (value, unit, units) => `${count(value)} ${value === 1 ? unit : units ?? unit + "s"}`;

/** Wall seconds as people say them. @param {number} seconds */
export function clock(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  return s < 3600 ? `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s` : `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
}
