// Applies the stored theme before the first paint, and offers a switch. Without script the system's
// preference holds.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => localStorage.getItem("qh-theme");
  const shown = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const apply = () => {
    if (stored()) root.dataset.theme = stored();
  };
  apply();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("[data-theme-toggle]");
    if (!button) return;
    const label = () => {
      button.textContent = shown() === "dark" ? "Light" : "Dark";
      button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
    };
    button.hidden = false;
    label();
    button.addEventListener("click", () => {
      localStorage.setItem("qh-theme", shown() === "dark" ? "light" : "dark");
      apply();
      label();
      document.dispatchEvent(new CustomEvent("qh:theme", { detail: shown() }));
    });
  });
})();
