// @ts-check
// One binary frame of the live stream: a first line {"cursor": …}, then whole event lines (webui/runs/stream.py).

const NEWLINE = 10;
const decoder = new TextDecoder("utf-8", { fatal: true });

/**
 * The frame's cursor and its events. A line that is no JSON object is left out and counted: one bad line of a
 * damaged log must not take the page down.
 * @param {ArrayBuffer | Uint8Array} data
 * @returns {{cursor: string, events: import("./order.js").Event[], bad: number, bytes: number}}
 */
export function decodeChunk(data) {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
  const end = bytes.indexOf(NEWLINE);
  if (end < 0) throw new Error("a frame of the stream has no first line");
  const head = JSON.parse(decoder.decode(bytes.subarray(0, end)));
  if (typeof head.cursor !== "string") throw new Error("a frame of the stream has no cursor");
  const body = decoder.decode(bytes.subarray(end + 1)).trimEnd();
  const { events, bad } = decodeLines(body);
  return { cursor: head.cursor, events, bad, bytes: bytes.length - end - 1 };
}

/** @param {string} body */
export function decodeLines(body) {
  if (!body) return { events: [], bad: 0 };
  try {
    // One parse for all lines is several times faster than one a line.
    const events = JSON.parse("[" + body.replaceAll("\n", ",") + "]");
    if (events.every(isEvent)) return { events, bad: 0 };
  } catch { /* fall through to the lines one by one */ }
  const events = [];
  let bad = 0;
  for (const line of body.split("\n")) {
    try {
      const event = JSON.parse(line);
      if (!isEvent(event)) throw new Error("no event");
      events.push(event);
    } catch { bad++; }
  }
  return { events, bad };
}

/** @param {any} value */
function isEvent(value) {
  return value !== null && typeof value === "object" && typeof value.t === "number" && typeof value.node === "string"
    && typeof value.type === "string";
}
