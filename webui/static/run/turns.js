// @ts-check
// An agent's turn on the server's side: where it was placed, which side reads its KV, when it entered each stage.

/** @typedef {{name: string, stages: {stage: string, t: number, node: string}[], last: Map<string, number>, placed: string, path: string,
 *   hitTokens: number, promptTokens: number}} Turn */

const TAKES = new Set(["turn.stage", "turn.placed", "path.chosen"]);

export class TurnFold {
  constructor() {
    this.takes = TAKES;
    /** @type {Map<string, Turn>} */ this.byName = new Map();
    /** What something was heard of since somebody last looked. @type {Set<Turn>} */ this.touched = new Set();
    this.version = 0;
  }

  /** @param {import("./order.js").Event} event */
  take(event) {
    switch (event.type) {
      case "turn.stage": {
        const turn = this.#turn(event.turn);
        turn.stages.push({ stage: event.stage, t: event.t, node: event.node });
        turn.last.set(event.stage, event.t);
        break;
      }
      case "turn.placed": {
        const turn = this.#turn(event.turn);
        turn.placed = `${event.prefill_node}.${event.prefill_engine} and ${event.decode_node}.${event.decode_engine}`;
        turn.hitTokens = event.hit_tokens;
        turn.promptTokens = event.prompt_tokens;
        break;
      }
      case "path.chosen": this.#turn(event.turn).path = event.path; break;
      default: return;
    }
    this.version++;
  }

  /** @param {string} name */
  #turn(name) {
    let turn = this.byName.get(name);
    if (!turn) {
      turn = { name, stages: [], last: new Map(), placed: "", path: "", hitTokens: 0, promptTokens: 0 };
      this.byName.set(name, turn);
    }
    this.touched.add(turn);
    return turn;
  }
}
