// @ts-check
// Light or dark: by the system, until the person chooses. Runs before the page is drawn, so that nothing flashes.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => {
    const dark = (stored() ?? (system.matches ? "dark" : "light")) === "dark";
    root.classList.toggle("dark", dark);
    document.dispatchEvent(new CustomEvent("theme"));
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("[data-theme-switch]");
    if (!button) return;
    try { localStorage.setItem("theme", root.classList.contains("dark") ? "light" : "dark"); } catch { /* private window */ }
    apply();
  });
})();
