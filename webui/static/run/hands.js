// @ts-check
// Pointer and keys on the timeline. Dragging moves time and rows, with Shift it chooses a stretch of time; Ctrl and wheel
// zooms (a plain wheel scrolls the page, as everywhere), a click chooses a request, a double click shows all of it.

const DRAG_PX = 4, ROW_PX = 16;
const TIME_KEYS = new Set(["ArrowLeft", "ArrowRight", "+", "=", "-", "0", "Home"]);

/** @param {import("./timeline.js").Timeline} timeline @param {{hover: (x: number, y: number) => void, leave: () => void, story: () => void}} on */
export function takeHands(timeline, on) {
  const { canvas, view } = timeline;
  /** @type {{x: number, y: number, start: number, end: number, top: number, moved: boolean} | null} */ let drag = null;
  const changed = () => { timeline.on.moved(); timeline.refresh(); };
  /** @param {number} x */
  const select = (x) => { if (timeline.chosen) { timeline.chosen[1] = timeline.timeAt(Math.max(timeline.left, x)); timeline.refresh(); } };
  const movedInTime = () => { timeline.bring(); changed(); };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    if (event.shiftKey && event.offsetX >= timeline.left) timeline.chosen = [timeline.timeAt(event.offsetX), timeline.timeAt(event.offsetX)];
    else drag = { x: event.offsetX, y: event.offsetY, start: view.start, end: view.end, top: timeline.first(timeline.lanes().length), moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    select(event.offsetX);
    if (drag && (drag.moved || Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > DRAG_PX)) {
      drag.moved = true;
      canvas.classList.add("grab");
      const share = (drag.x - event.offsetX) / (timeline.width - timeline.left - 8);
      view.set(drag.start + (drag.end - drag.start) * share, drag.end + (drag.end - drag.start) * share);
      timeline.top = Math.max(0, drag.top + Math.round((drag.y - event.offsetY) / ROW_PX));
      timeline.point(null);
      on.leave();
      changed();
      return;
    }
    timeline.point({ x: event.offsetX, y: event.offsetY });
    on.hover(event.offsetX, event.offsetY);
  });
  const end = () => {
    const stretch = timeline.chosen;
    timeline.chosen = null;
    if (stretch && Math.abs(timeline.xOf(stretch[1]) - timeline.xOf(stretch[0])) > DRAG_PX) {
      view.set(Math.min(...stretch), Math.max(...stretch));
      movedInTime();
    } else timeline.refresh();
    drag = null; 
    canvas.classList.remove("grab");
  };
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) {
      const { lane } = timeline.hit(event.offsetX, event.offsetY);
      if (lane) timeline.choose(lane.key);
    }
    end();
  });
  canvas.addEventListener("pointercancel", () => { timeline.chosen = null; end(); });
  canvas.addEventListener("dblclick", (event) => {
    const { lane } = timeline.hit(event.offsetX, event.offsetY);
    if (lane) timeline.show(lane.start, lane.end, lane.key);
  });
  canvas.addEventListener("pointerleave", () => { timeline.point(null); on.leave(); });
  canvas.addEventListener("wheel", (event) => {
    const share = (event.offsetX - timeline.left) / (timeline.width - timeline.left - 8);
    if (event.ctrlKey || event.metaKey) view.zoom(Math.exp(event.deltaY * 0.0025), Math.max(0, Math.min(1, share)));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.pan((event.deltaX || event.deltaY) * 0.001);
    else return;
    event.preventDefault();
    movedInTime();
  }, { passive: false });

  /** @type {Record<string, (event: KeyboardEvent) => void>} */
  const keys = {
    ArrowDown: () => timeline.step(1), j: () => timeline.step(1),
    ArrowUp: () => timeline.step(-1), k: () => timeline.step(-1),
    PageDown: () => timeline.scroll(timeline.rows), PageUp: () => timeline.scroll(-timeline.rows),
    ArrowLeft: (event) => view.pan(event.shiftKey ? -1 : -0.2), ArrowRight: (event) => view.pan(event.shiftKey ? 1 : 0.2),
    "+": () => view.zoom(1 / 1.5), "=": () => view.zoom(1 / 1.5), "-": () => view.zoom(1.5),
    "0": () => view.fit(), Home: () => view.fit(),
    f: () => (view.follow ? view.set(view.start, view.end) : view.resume()),
    Enter: () => on.story(), Escape: () => timeline.choose(null),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(event);
    if (TIME_KEYS.has(event.key)) movedInTime(); else changed();
  });
}
