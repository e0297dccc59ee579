// @ts-check
// The request that is chosen: its line below the timeline, its story, its slot on the map, its place in the address.

import { make } from "./dom.js";
import { label, standing, whereabouts } from "./lanes.js";
import { lowerBound } from "./machine.js";
import { Story, tellBrief, tokenText } from "./story.js";
import { Told } from "./told.js";

const TIP_WIDE = 230;

export class Chosen {
  /**
   * @param {{brief: HTMLElement, story: HTMLElement, tip: HTMLElement, canvas: HTMLElement}} parts
   * @param {{timeline: import("./timeline.js").Timeline, model: import("./model.js").Model, ring: import("./ringmap.js").RingMap, remember: import("./remember.js").Remember}} page
   * @param {string} address Where the events of one request are.
   */
  constructor(parts, page, address) {
    this.parts = parts;
    this.page = page;
    this.open = page.remember.get("story") === "1";
    /** A request of the address that has not come yet. */ this.wanted = page.remember.get("request");
    /** It has come, and nobody has chosen another by hand. */ this.restored = false;
    /** Texts that a packed run has left with the server. */ this.told = new Told(address);
    this.story = new Story(parts.story, address, { step: (by) => page.timeline.step(by), show: (t) => page.timeline.show(t, t), close: () => this.toggle() });
  }

  current() {
    const { timeline } = this.page;
    return timeline.selected === null ? null : timeline.lanes().find((lane) => lane.key === timeline.selected) ?? null;
  }

  /** @param {import("./requests.js").Lane | null} lane */
  tell(lane) {
    const { ring, model, remember, timeline } = this.page;
    const open = this.open && lane !== null;
    tellBrief(this.parts.brief, lane, model.ring.rings.size > 1, open, () => this.toggle());
    this.parts.story.hidden = !open;
    if (open && lane) this.story.tell(lane);
    if (lane) void this.told.text(lane).then((news) => { if (news && timeline.selected === lane.key) this.tell(lane); });
    ring.selected = lane ? (model.ring.slotOf.get(lane.request ?? -1) ?? (lane.slot === null ? null : { ring: lane.ring, slot: lane.slot })) : null;
    ring.dirty = true;
    if (this.wanted === null) remember.set({ request: lane?.key ?? null, story: open ? "1" : null });
  }

  toggle() {
    const lane = this.current();
    if (!lane) return;
    this.open = !this.open;
    this.tell(lane);
    if (this.open) this.parts.story.scrollIntoView({ block: "nearest" });
    else this.parts.canvas.focus();
  }

  /** New events have been folded. */
  advance() {
    const { timeline } = this.page;
    if (this.wanted !== null && timeline.lanes().some((lane) => lane.key === this.wanted)) {
      const key = this.wanted;
      this.wanted = null;
      timeline.choose(key);
      this.restored = true;
      if (this.open) this.parts.story.scrollIntoView({ block: "nearest" });
    }
    const lane = this.current();
    if (lane) this.tell(lane);
  }

  /** What is under the pointer, as a tip beside it. @param {number} x @param {number} y */
  hover(x, y) {
    const { timeline, ring, model } = this.page, { tip } = this.parts;
    const { lane, t, inside } = timeline.hit(x, y);
    ring.show(inside && t < model.now ? t : null);
    if (!lane || !inside) { tip.hidden = true; return; }
    const so = lowerBound(lane.tokens, t + 1);
    const text = so ? tokenText(lane, so - 1) : "";
    tip.replaceChildren(make("b", {}, `${label(lane)} at ${(t / 1e9).toFixed(3)} s`), `${whereabouts(lane, t)}; ${standing(lane)}`);
    if (so) tip.append(make("br"), `token ${so}${text ? ` “${text.replaceAll("\n", "⏎")}”` : ""}`);
    tip.hidden = false;
    tip.style.left = `${Math.max(0, Math.min(x + 28, timeline.width - TIP_WIDE))}px`;
    tip.style.top = `${y + 14}px`;
  }

  leave() {
    this.parts.tip.hidden = true;
    this.page.ring.show(null);
  }
}
