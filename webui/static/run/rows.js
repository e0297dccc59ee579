// @ts-check
// What the timeline shows beside the requests, as the person's choice (devices, further ports), and a box that goes to a
// request by its name. Both stand in the address. Made here, since what there is to choose follows from the log.

import { make } from "./dom.js";
import { DEVICES_FIRST } from "./picture.js";

export class Rows {
  /** @param {HTMLElement} bar the timeline's buttons @param {import("./timeline.js").Timeline} timeline @param {import("./remember.js").Remember} remember */
  constructor(bar, timeline, remember) {
    this.timeline = timeline;
    this.remember = remember;
    timeline.devices = remember.get("devices")?.split(",") ?? null;
    timeline.more = remember.get("ports")?.split(",") ?? [];
    this.menu = make("div", { class: "menu", role: "group", "aria-label": "Rows to show" });
    this.box = make("details", { class: "choose", hidden: "" }, make("summary", { class: "btn" }, "Rows"), this.menu);
    this.offered = "";
    this.find = /** @type {HTMLInputElement} */ (make("input", { type: "search", id: "tl-find", placeholder: "Go to request", "aria-label": "Go to request, by number or name", size: "13", maxlength: "300", autocomplete: "off" }));
    this.find.addEventListener("input", () => this.#go(false));
    this.find.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); this.#go(true); } });
    bar.prepend(this.find, this.box);
  }

  /** @param {boolean} enter */
  #go(enter) {
    const text = this.find.value, found = text.trim() !== "" && this.timeline.find(text);
    this.find.setCustomValidity(text.trim() && !found ? "No request has this number or name." : "");
    this.find.setAttribute("aria-invalid", String(Boolean(text.trim()) && !found));
    if (enter && found) this.timeline.canvas.focus();
    else if (enter) this.find.reportValidity();
  }

  /** Offers what the log has by now. */
  offer() {
    const { timeline } = this, devices = timeline.model.launches.devices(), ports = timeline.model.links.names();
    const offered = `${devices} ${ports}`;
    if (offered === this.offered) return;
    this.offered = offered;
    this.box.hidden = devices.length < 2 && ports.length < 2;
    const shown = timeline.devices ?? devices.slice(0, DEVICES_FIRST);
    const part = (/** @type {string} */ title, /** @type {HTMLElement[]} */ boxes) => boxes.length > 1 ? [make("b", {}, title), ...boxes] : [];
    this.menu.replaceChildren(
      ...part("Launches of", devices.map((name) => this.#box(name, shown.includes(name), (on) => {
        const now = timeline.devices ?? devices.slice(0, DEVICES_FIRST);
        timeline.devices = on ? [...now, name] : now.filter((one) => one !== name);
        this.remember.set({ devices: timeline.devices.join(",") || "none" });
      }))),
      ...part("Lanes of further ports", ports.map((name) => this.#box(name, timeline.more.includes(name), (on) => {
        timeline.more = on ? [...timeline.more, name] : timeline.more.filter((one) => one !== name);
        this.remember.set({ ports: timeline.more.join(",") || null });
      }))));
  }

  /** @param {string} name @param {boolean} on @param {(on: boolean) => void} change */
  #box(name, on, change) {
    const box = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox" }));
    box.checked = on;
    box.addEventListener("change", () => { change(box.checked); this.timeline.refresh(); });
    return make("label", {}, box, name);
  }
}
