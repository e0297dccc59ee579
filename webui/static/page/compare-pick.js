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
count();
