// @ts-check
// The launch page while it is filled in: the plan follows the fields, faults go beside them, settings can be searched.
// Without any of it the form is sent and answered as a whole.

const form = /** @type {HTMLFormElement} */ (document.querySelector("form.launch"));
const plan = /** @type {HTMLElement} */ (document.getElementById("plan"));
const QUIET_MS = 400;

/** @type {number | undefined} */ let timer;
/** @type {AbortController | null} */ let asking = null;

/** Asks for the plan of what the form says now. A newer question makes an older one void. */
async function ask() {
  asking?.abort();
  const mine = asking = new AbortController();
  try {
    const answer = await fetch(/** @type {string} */ (plan.dataset.live), { method: "POST", body: new FormData(form), signal: mine.signal });
    if (!answer.ok || answer.redirected) throw new Error(`${answer.status}`);
    const opened = [...plan.querySelectorAll("details")].map((one) => one.open);
    plan.innerHTML = await answer.text();
    const details = [...plan.querySelectorAll("details")];
    if (details.length === opened.length) details.forEach((one, place) => { one.open = opened[place]; });
    tables();
    placeFaults();
  } catch (fault) {
    if (mine.signal.aborted) return;
    const note = document.createElement("p");
    note.className = "note warning";
    note.textContent = "The plan could not be fetched. It is that of an earlier moment; Check asks again.";
    plan.querySelector(".note.warning")?.remove();
    plan.prepend(note);
  }
}

/** Faults that came with the plan stand beside their fields. */
function placeFaults() {
  const told = /** @type {HTMLTemplateElement | null} */ (plan.querySelector("template[data-field-faults]"));
  for (const list of form.querySelectorAll("[data-faults]")) {
    const name = /** @type {HTMLElement} */ (list).dataset.faults ?? "";
    const mine = told?.content.querySelector(`[data-name="${CSS.escape(name)}"]`);
    list.replaceChildren(...(mine ? [...mine.cloneNode(true).childNodes] : []));
    const field = form.elements.namedItem(name);
    if (!(field instanceof HTMLElement)) continue;
    if (mine) {
      field.setAttribute("aria-invalid", "true");
      for (let box = field.closest("details"); box; box = box.parentElement?.closest("details") ?? null) box.open = true;
    } else field.removeAttribute("aria-invalid");
  }
}

/** On a phone the table takes the picture's place. */
function tables() {
  if (matchMedia("(max-width: 720px)").matches) for (const twin of plan.querySelectorAll(".twin:has(table)")) /** @type {HTMLDetailsElement} */ (twin).open = true;
}

/** Only the fields of the chosen kind are shown. */
function kinds() {
  for (const choice of form.querySelectorAll("select[data-kind]")) {
    const chosen = /** @type {HTMLSelectElement} */ (choice).value;
    for (const variant of /** @type {Element} */ (choice.closest("fieldset")).querySelectorAll(":scope > [data-variant]")) {
      /** @type {HTMLElement} */ (variant).hidden = /** @type {HTMLElement} */ (variant).dataset.variant !== chosen;
    }
  }
}

/** What matters for one backend only. */
function places() {
  const on = new FormData(form).get("on");
  for (const one of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll("[data-if-on]"))) one.hidden = one.dataset.ifOn !== on;
}

/** Shows the settings whose path, label or help has all the words. @param {string} text */
function seek(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const field of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll(".sec .f"))) {
    const own = `${field.dataset.words ?? ""} ${field.closest("[data-words]")?.getAttribute("data-words") ?? ""} ${field.querySelector(".help")?.textContent?.toLowerCase() ?? ""}`;
    field.hidden = !words.every((word) => own.includes(word));
    if (!field.hidden && !field.closest("[data-variant][hidden]")) found += 1;
  }
  for (const box of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll(".sub, .rest, .sec"))) {
    const some = box.querySelector(".f:not([hidden])") !== null;
    box.hidden = words.length > 0 && !some;
    if (words.length && some && box instanceof HTMLDetailsElement) box.open = true;
  }
  const count = /** @type {HTMLElement} */ (document.getElementById("seek-count"));
  count.textContent = words.length ? `${found} found` : "";
}

form.addEventListener("input", (event) => {
  if (event.target instanceof HTMLElement && event.target.id === "seek") return;
  clearTimeout(timer);
  timer = setTimeout(ask, QUIET_MS);
});
form.addEventListener("change", () => { kinds(); places(); });
form.addEventListener("submit", () => clearTimeout(timer));
addEventListener("pageshow", () => { kinds(); places(); });
form.addEventListener("click", async (event) => {
  const button = event.target instanceof Element ? /** @type {HTMLElement | null} */ (event.target.closest("[data-copies]")) : null;
  if (!button) return;
  const text = document.getElementById(button.dataset.copies ?? "")?.textContent ?? "";
  const words = button.firstChild;
  await navigator.clipboard.writeText(text);
  if (words) { words.textContent = "Copied"; setTimeout(() => { words.textContent = "Copy"; }, 1500); }
});

const search = /** @type {HTMLInputElement | null} */ (document.getElementById("seek"));
if (search) {
  search.hidden = false;
  search.dataset.search = "";
  // The page's own search comes first where there is one.
  document.getElementById("find")?.removeAttribute("data-search");
  search.addEventListener("input", () => seek(search.value));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
    if (event.key === "Escape") { search.value = ""; seek(""); }
  });
}
kinds();
places();
tables();
