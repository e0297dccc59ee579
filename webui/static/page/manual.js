// @ts-check
// The manual's search: narrows the contents to the calls that have all the words.

const field = /** @type {HTMLInputElement} */ (document.getElementById("calls"));
const none = /** @type {HTMLElement} */ (document.getElementById("none"));

function narrow() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const part of document.querySelectorAll("[data-part]")) {
    let here = 0;
    for (const item of part.querySelectorAll("li")) {
      const has = words.every((word) => (item.dataset.words ?? "").includes(word));
      item.hidden = !has;
      here += Number(has);
    }
    /** @type {HTMLElement} */ (part).hidden = here === 0;
    shown += here;
  }
  none.hidden = shown > 0;
}

field.addEventListener("input", narrow);
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const first = /** @type {HTMLElement | null} */ (document.querySelector("[data-part] li:not([hidden]) a"));
  first?.click();
});
narrow();
