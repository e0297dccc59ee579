// @ts-check
// The buttons around the timeline, the trial, the port, and the link that shows somebody else the same picture.

import { make, part, say } from "./dom.js";

const SAID_MS = 2000;

/** @param {import("./timeline.js").Timeline} timeline @param {import("./remember.js").Remember} remember @param {() => void} moved */
export function takeControls(timeline, remember, moved) {
  const { view } = timeline;
  /** @param {string} id @param {() => void} act */
  const onClick = (id, act) => part(id).addEventListener("click", () => { act(); moved(); timeline.refresh(); });
  /** @param {string} id @param {() => void} act */
  const inTime = (id, act) => onClick(id, () => { act(); timeline.bring(); });
  onClick("follow", () => view.follow ? view.set(view.start, view.end) : view.resume());
  inTime("zoom-in", () => view.zoom(1 / 1.5));
  inTime("zoom-out", () => view.zoom(1.5));
  onClick("rows-up", () => timeline.scroll(-Math.ceil(timeline.rows / 2)));
  onClick("rows-down", () => timeline.scroll(Math.ceil(timeline.rows / 2)));
  inTime("fit", () => view.fit());
  part("copy-link").addEventListener("click", async () => {
    remember.now();
    try {
      await navigator.clipboard.writeText(remember.address.href);
      say(part("copy-link"), "Link copied");
    } catch { say(part("copy-link"), "Copy it from the address bar"); }
    setTimeout(() => say(part("copy-link"), "Copy link"), SAID_MS);
  });
  const go = (/** @type {string} */ trial) => location.assign(remember.ofTrial(trial));
  // The table of trials is made anew when the run ends, so its parts are asked for when they are used.
  document.addEventListener("change", (event) => {
    if (event.target instanceof HTMLSelectElement && event.target.id === "trial") go(event.target.value);
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? /** @type {HTMLAnchorElement | null} */ (event.target.closest("a[data-trial]")) : null;
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(link.dataset.trial ?? "");
  });
}

/** Offers the ports that have readings, the one with most lanes and most traffic first. */
export class Ports {
  /** @param {import("./timeline.js").Timeline} timeline @param {import("./machine.js").LinkFold} links @param {import("./remember.js").Remember} remember @param {() => void} changed */
  constructor(timeline, links, remember, changed) {
    this.timeline = timeline;
    this.links = links;
    this.wanted = remember.get("port");
    this.select = /** @type {HTMLSelectElement} */ (part("port"));
    this.select.addEventListener("change", () => {
      timeline.port = this.select.value;
      remember.set({ port: timeline.port });
      timeline.refresh();
      changed();
    });
  }

  offer() {
    const { select, timeline } = this, names = this.links.names();
    if (names.length === select.options.length) return;
    select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (this.wanted && names.includes(this.wanted)) { timeline.port = this.wanted; this.wanted = null; }
    if (!names.includes(timeline.port)) timeline.port = names[0] ?? "";
    select.value = timeline.port;
    part("port-label").hidden = !names.length;
  }
}
