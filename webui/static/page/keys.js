// @ts-check
// Keys of every page: / to the page's own search field, else to that of all runs, ? for help, j and k through rows. Fields keep their own keys.

const inField = (/** @type {EventTarget | null} */ target) => target instanceof HTMLElement
  && (target.matches("input, select, textarea") || target.isContentEditable);

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || inField(event.target)) return;
  if (event.key === "/") {
    const field = /** @type {HTMLInputElement | null} */ (document.querySelector("main [data-search]") ?? document.querySelector("[data-search]"));
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  } else if (event.key === "?") {
    const help = /** @type {HTMLDialogElement | null} */ (document.querySelector("dialog#help"));
    if (help) { event.preventDefault(); help.open ? help.close() : help.showModal(); }
  } else if ((event.key === "j" || event.key === "k") && !document.querySelector("[data-own-keys]")) {
    const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-row]")]);
    if (!rows.length) return;
    const place = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = event.key === "j" ? Math.min(rows.length - 1, place + 1) : Math.max(0, place < 0 ? 0 : place - 1);
    event.preventDefault();
    rows[next].focus();
  }
});

for (const button of document.querySelectorAll("[data-opens]")) {
  button.addEventListener("click", () => {
    const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById(/** @type {HTMLElement} */ (button).dataset.opens ?? ""));
    dialog?.showModal();
  });
}
for (const button of document.querySelectorAll("dialog [data-closes]")) {
  button.addEventListener("click", () => button.closest("dialog")?.close());
}
