// @ts-check
// The stretch of time that is on screen. Follow keeps the newest at the right edge; whatever the person does by hand
// turns follow off, and nothing but the person turns it on again.

const LEAST = 20e3;

export class View {
  constructor() {
    this.start = 0;
    this.end = 4e9;
    this.span = 4e9;
    this.follow = true;
    /** The whole run, as the page shows it until somebody moves. */ this.whole = false;
    /** The newest moment. */ this.now = 0;
  }

  /** The run has come to `now`. @param {number} now */
  advance(now) {
    this.now = now;
    if (!this.follow) return;
    // A little air at the right, so that the newest marks are not cut.
    this.end = Math.max(this.span, now + this.span * 0.02);
    this.start = this.end - this.span;
  }

  /** How much is on screen while following. @param {number} span */
  setSpan(span) {
    this.span = Math.max(LEAST, span);
    this.advance(this.now);
  }

  /** @param {number} start @param {number} end */
  set(start, end) {
    this.follow = this.whole = false;
    this.span = Math.max(LEAST, end - start);
    this.start = start;
    this.end = start + this.span;
  }

  /** @param {number} share Of the span; positive is later. */
  pan(share) { this.set(this.start + this.span * share, this.end + this.span * share); }

  /** Around the point at `share` of the width; while following, around the newest. @param {number} factor @param {number} share */
  zoom(factor, share = 0.5) {
    if (this.follow) { this.setSpan(Math.min(this.span * factor, Math.max(this.now * 1.04, LEAST))); return; }
    const limit = Math.max(this.now * 4, 4e9);
    const span = Math.min(Math.max(LEAST, this.span * factor), limit), centre = this.start + this.span * share;
    this.set(centre - span * share, centre + span * (1 - share));
  }

  /** All of the run. */
  fit() {
    const now = Math.max(this.now, LEAST);
    this.set(-now * 0.01, now * 1.02);
    this.whole = true;
  }

  resume() { this.follow = true; this.whole = false; this.advance(this.now); }
}

/** Round moments for an axis, at most one every `gap` px. @param {number} start @param {number} end @param {number} width @param {number} gap */
export function ticks(start, end, width, gap = 110) {
  const raw = (end - start) / Math.max(2, width / gap);
  if (!(raw > 0)) return { step: 1, at: [] };
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw * 0.999) ?? 10 * power;
  const at = [];
  for (let k = Math.ceil(start / step - 1e-9); k * step <= end + 1e-9 && at.length < 100; k++) at.push(k * step);
  return { step, at };
}

/** A moment as an axis writes it. @param {number} t @param {number} step */
export function axisLabel(t, step) {
  if (step < 1e6) return `${(t / 1e6).toFixed(Math.max(0, Math.min(3, Math.ceil(6 - Math.log10(step) - 1e-9))))} ms`;
  const digits = Math.max(0, Math.min(3, Math.ceil(9 - Math.log10(step) - 1e-9)));
  return `${(t / 1e9).toFixed(digits)} s`;
}
