// @ts-check
// The list of runs by keyboard: x ticks the row that has the focus, c compares; and the bar says how many are ticked.

const form = /** @type {HTMLFormElement} */ (document.getElementById("chosen"));
const count = /** @type {HTMLElement} */ (document.getElementById("bulk-count"));
const ticked = () => form.querySelectorAll("input[name=run]:checked").length;

function tell() {
  const number = ticked();
  count.textContent = number === 1 ? "1 run chosen" : `${number} runs chosen`;
}

form.addEventListener("change", tell);
// Rows that came anew may have brought ticks along or lost some.
form.addEventListener("htmx:after:swap", tell);
addEventListener("pageshow", tell);

addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (at instanceof HTMLElement && at.matches("input:not([type=checkbox]), select, textarea")) return;
  if (event.key === "x" && at instanceof HTMLElement) {
    const box = /** @type {HTMLInputElement | null | undefined} */ (at.closest("tr")?.querySelector("input[name=run]"));
    if (!box) return;
    event.preventDefault();
    box.checked = !box.checked;
    tell();
  } else if (event.key === "c" && ticked()) {
    event.preventDefault();
    form.requestSubmit(/** @type {HTMLButtonElement} */ (form.querySelector("button[value=compare]")));
  }
});
