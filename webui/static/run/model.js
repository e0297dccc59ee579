// @ts-check
// All folds of one run, fed in the one order. Nothing here knows the page.

import { CourseFold } from "./courses.js";
import { FidelityFold } from "./fidelity.js";
import { Journal, KEPT } from "./journal.js";
import { LaneBook } from "./lanes.js";
import { ExchangeFold } from "./latency.js";
import { LaunchFold, LinkFold } from "./machine.js";
import { MomentFold } from "./moments.js";
import { Reorderer } from "./order.js";
import { OutageFold } from "./outages.js";
import { TrackFold } from "./requests.js";
import { RingFold } from "./ring.js";
import { TurnFold } from "./turns.js";

export class Model {
  /** @param {{levels: Record<string, string>, limits: import("./fidelity.js").Limit[]}} tables */
  constructor(tables) {
    this.order = new Reorderer();
    this.exchanges = new ExchangeFold();
    this.tracks = new TrackFold();
    this.turns = new TurnFold();
    this.ring = new RingFold();
    this.launches = new LaunchFold();
    this.links = new LinkFold();
    this.fidelity = new FidelityFold(tables.limits);
    this.journal = new Journal(tables.levels);
    this.courses = new CourseFold();
    this.moments = new MomentFold();
    this.outages = new OutageFold();
    this.book = new LaneBook(this.tracks, this.exchanges, this.turns);
    this.folds = [this.exchanges, this.tracks, this.turns, this.ring, this.launches, this.links, this.fidelity, this.courses, this.moments, this.outages];
    /** Which folds a kind of event is for; one that does not say what it takes is given everything. @type {Map<string, any[]>} */
    this.readers = new Map();
    /** The last moment anything was heard of. */ this.now = 0;
    this.events = 0;
    this.started = false;
    this.expected = 0;
    this.dilation = 1;
    this.simulated = false;
    this.stage = "";
    /** @type {{verdict: string, reasons: string[]} | null} */ this.judged = null;
    /** When a node woke later than the threshold, at most the newest thousand. @type {number[]} */ this.late = [];
  }

  /** Takes events as they came; `clock` is the page's clock in ms. @param {import("./order.js").Event[]} events @param {number} clock */
  add(events, clock) { this.order.add(events, clock); }

  /** Folds what is complete; true if there was something. @param {number} clock @param {boolean} ended */
  advance(clock, ended) {
    const ready = ended ? this.order.finish() : this.order.release(clock);
    for (const event of ready) { this.#fold(event); this.journal.take(event); }
    return ready.length > 0;
  }

  /** A pack of the run up to its cursor, into a model that has seen nothing yet. @param {import("./pack.js").Pack} pack */
  load(pack) {
    // Lines that only "everything" shows are put into words for the newest alone.
    let older = pack.lines - KEPT;
    pack.replay((event, logged) => {
      if (older-- > 0) this.journal.old(event); else this.journal.take(event);
      if (!logged) this.#fold(event);
    });
    for (const fold of [this.exchanges, this.tracks, this.fidelity]) fold.load(pack);
    this.journal.skip(pack);
    this.events = pack.head.events;
    this.now = pack.head.now;
  }

  /** @param {import("./order.js").Event} event */
  #fold(event) {
    this.events++;
    if (event.t > this.now) this.now = event.t;
    switch (event.type) {
      case "run.started":
        this.started = true;
        this.expected = event.requests;
        this.dilation = event.dilation;
        this.simulated = event.clock === "simulated";
        break;
      case "stage.entered": this.stage = event.detail ? `${event.stage}: ${event.detail}` : event.stage; break;
      case "clock.late":
        if (event.t >= 0) this.late.push(event.t);
        if (this.late.length > 1000) this.late.splice(0, 500);
        break;
      case "fidelity.judged": this.judged = { verdict: event.verdict, reasons: event.reasons }; break;
    }
    let folds = this.readers.get(event.type);
    if (!folds) this.readers.set(event.type, (folds = this.folds.filter((fold) => !fold.takes || fold.takes.has(event.type))));
    for (const fold of folds) fold.take(event);
  }

  /** The requests as lanes, as they are now. */
  requestLanes() { return this.book.at(this.now); }
}
