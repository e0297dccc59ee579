// @ts-check
// The comparison page: parts of a side are changed without a button, timelines are drawn, and a page whose logs are
// still being read looks again until they are.

import { Aligned } from "../compare/aligned.js";

const LOOK_MS = 1000;

/** Everything that hangs on what is inside #compared. */
function begin() {
  const form = /** @type {HTMLFormElement | null} */ (document.getElementById("sides"));
  if (form) {
    form.addEventListener("change", () => form.requestSubmit());
    document.getElementById("show-sides")?.setAttribute("hidden", "");
  }
  const canvas = /** @type {HTMLCanvasElement | null} */ (document.getElementById("al"));
  if (canvas?.dataset.lanes) new Aligned(canvas, canvas.dataset.lanes);
  if (document.querySelector("#compared[data-pending]")) setTimeout(look, LOOK_MS);
}

/** Fetches this page again and takes its middle; a failure is tried again, since the logs are still being read. */
async function look() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("compared"), old = document.getElementById("compared");
    // While somebody is choosing a part nothing may be taken from under their hands.
    if (answer.ok && fresh && old && !document.activeElement?.closest("#sides")) {
      old.replaceWith(fresh);
      begin();
      return;
    }
  } catch { /* the connection may come back */ }
  setTimeout(look, LOOK_MS);
}

begin();
