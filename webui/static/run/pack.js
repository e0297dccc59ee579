// @ts-check
// A packed timeline (webui/runs/packing.py): reads its columns, gives its events back one by one in the one order, and
// hands the folds what was folded already, which is all that comes token by token.

const MAGIC = 0x4c54504c;
export const FORMAT = 1;

/** @typedef {{name: string, texts?: string[], values?: any[]}} Field */
/** @typedef {{type: string, n: number, logged: boolean, fields: Field[]}} Table */

export class Pack {
  /** @param {any} head @param {ArrayBuffer} buffer @param {number} start */
  constructor(head, buffer, start) {
    this.head = head;
    this.buffer = buffer;
    this.start = start;
  }

  /** Of its events, those that are a line of the log for sure: late wakes are drawn together. @returns {number} */
  get lines() { return this.head.tables.reduce((/** @type {number} */ sum, /** @type {Table} */ table) => sum + (table.type === "clock.late" ? 0 : table.n), 0); }

  /** @param {string} name @returns {Float64Array | Int32Array | Uint32Array | Uint16Array} */
  column(name) {
    const [kind, at, length] = this.head.columns[name];
    const from = this.start + at;
    switch (kind) {
      case "f8": return new Float64Array(this.buffer, from, length);
      case "i4": return new Int32Array(this.buffer, from, length);
      case "u4": return new Uint32Array(this.buffer, from, length);
      case "u2": return new Uint16Array(this.buffer, from, length);
      default: throw new Error(`a column of the pack is of kind ${kind}`);
    }
  }

  /** Rows of rising times, each a view of one long array. @param {string} name @returns {Float64Array[]} */
  times(name) {
    const lengths = this.column(`${name}.length`), stepped = this.head.columns[`${name}.step`] !== undefined;
    const source = this.column(stepped ? `${name}.step` : `${name}.t`);
    const all = stepped ? new Float64Array(source.length) : /** @type {Float64Array} */ (source);
    const first = stepped ? this.column(`${name}.first`) : null;
    const rows = [];
    for (let row = 0, at = 0, full = 0; row < lengths.length; row++) {
      const end = at + lengths[row];
      if (first && end > at) {
        let t = first[full++];
        for (let place = at; place < end; place++) all[place] = t += source[place];
      }
      rows.push(all.subarray(at, end));
      at = end;
    }
    return rows;
  }

  /** Calls `each` with every event that the pack holds whole, in the one order; `logged` are those that only the log
   * shows, since the folds have them already. An event is good only until the next one: nobody may keep it.
   * @param {(event: import("./order.js").Event, logged: boolean) => void} each */
  replay(each) {
    const tables = this.head.tables.map((/** @type {Table} */ table, /** @type {number} */ number) => new Reader(this, table, number));
    for (const number of this.column("order")) {
      const table = tables[number];
      each(table.next(), table.logged);
    }
  }
}

/** One table's events, one after the other. */
class Reader {
  /** @param {Pack} pack @param {Table} table @param {number} number */
  constructor(pack, table, number) {
    this.logged = table.logged;
    this.fields = table.fields.map((field) => ({ name: field.name, column: pack.column(`${number}.${field.name}`), words: field.texts ?? field.values ?? null }));
    this.at = 0;
    /** The one event that is filled again and again: half a million of them would be litter. @type {any} */
    this.event = { t: 0, node: "", seq: 0, type: table.type };
  }

  /** @returns {import("./order.js").Event} */
  next() {
    const at = this.at++;
    const { event } = this;
    for (const { name, column, words } of this.fields) event[name] = words ? words[column[at]] : column[at];
    return event;
  }
}

/** @param {ArrayBuffer} buffer @returns {Pack} */
export function openPack(buffer) {
  const words = new DataView(buffer);
  if (buffer.byteLength < 8 || words.getUint32(0, true) !== MAGIC) throw new Error("this is no packed timeline");
  const length = words.getUint32(4, true);
  const head = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(buffer, 8, length)));
  if (head.format !== FORMAT) throw new Error(`the packed timeline is of format ${head.format}, this page reads ${FORMAT}`);
  return new Pack(head, buffer, 8 + length);
}

/** @param {ArrayLike<number> & Iterable<number>} values @returns {number[]} A list that can grow. */
export function growing(values) { return Array.isArray(values) ? values : Array.from(values); }
