// @ts-check
// Picking runs to compare: says how many are chosen, and lets no more be chosen than can be compared.

const form = /** @type {HTMLFormElement} */ (document.getElementById("pick"));
const words = /** @type {HTMLElement} */ (document.getElementById("pick-count"));
const most = Number(form.dataset.most);

function count() {
  const boxes = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll("input[type=checkbox]")]);
  const chosen = boxes.filter((box) => box.checked).length;
  for (const box of boxes) box.disabled = !box.checked && chosen >= most;
  words.textContent = chosen === 0 ? "Choose at least two runs, or one with several systems"
    : chosen === 1 ? "1 run chosen" : chosen >= most ? `${chosen} runs chosen, as many as can be compared` : `${chosen} runs chosen`;
}

form.addEventListener("change", count);
// As in the list of runs: x chooses the row that has the focus, c compares.
addEventListener("keydown", (event) => {
  const active = /** @type {HTMLElement | null} */ (document.activeElement);
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || active?.matches("input[type=search], select")) return;
  if (event.key === "c") form.requestSubmit();
  const box = event.key === "x" ? /** @type {HTMLInputElement | null | undefined} */ (active?.closest("tr")?.querySelector("input[type=checkbox]")) : null;
  if (box && !box.disabled) { box.checked = !box.checked; count(); }
});
count();
