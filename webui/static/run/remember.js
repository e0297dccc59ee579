// @ts-check
// What the person looks at, as parameters of the address, so that a link shows somebody else the same picture.

const SETTLE_MS = 300;

export class Remember {
  /** @param {URL} address @param {(address: URL) => void} [put] */
  constructor(address, put = (told) => history.replaceState(null, "", told)) {
    this.address = address;
    this.put = put;
    /** @type {ReturnType<typeof setTimeout> | undefined} */ this.waiting = undefined;
  }

  /** @param {string} name */
  get(name) { return this.address.searchParams.get(name); }

  /** Null and the empty text take the parameter away. @param {Record<string, string | null>} values */
  set(values) {
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === "") this.address.searchParams.delete(name); else this.address.searchParams.set(name, value);
    }
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.now(), SETTLE_MS);
  }

  /** Writes what is waiting to be written. */
  now() {
    clearTimeout(this.waiting);
    this.put(this.address);
  }

  /** The stretch of time in the address, in nanoseconds; null without one. @returns {[number, number] | null} */
  stretch() {
    const from = Number(this.get("from") ?? NaN), to = Number(this.get("to") ?? NaN);
    return to > from ? [from * 1e3, to * 1e3] : null;
  }

  /** @param {import("./view.js").View} view */
  keepView(view) {
    const given = view.follow || view.whole ? null : view;
    this.set({ from: given && String(Math.round(given.start / 1e3)), to: given && String(Math.round(given.end / 1e3)) });
  }

  /** The same picture of another trial. @param {string} trial */
  ofTrial(trial) {
    const address = new URL(this.address);
    address.searchParams.set("trial", trial);
    address.searchParams.delete("line");
    return address;
  }
}
