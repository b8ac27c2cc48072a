// Draws a figure from its JSON, in the colours of the theme, and again when the theme changes.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (system.matches ? "dark" : "light");
  const NARROW = 560;
  const TITLE = 32;

  const draw = async (box) => {
    const wanted = theme();
    const answer = await fetch(`${box.dataset.figure}?theme=${wanted}`, { redirect: "error" });
    if (!answer.ok) throw new Error(String(answer.status));
    const figure = await answer.json();
    if (wanted !== theme()) return;
    // The heading of the panel is the title.
    delete figure.layout.title;
    figure.layout.margin.t -= TITLE;
    figure.layout.height -= TITLE;
    if (box.clientWidth < NARROW) {
      figure.layout.font.size = 11;
      figure.layout.margin = { ...figure.layout.margin, l: 4, r: 8 };
    }
    // A resize asks the box for its height.
    box.style.height = `${figure.layout.height}px`;
    const alt = figure.layout.meta && figure.layout.meta.alt;
    if (alt) box.setAttribute("aria-label", alt);
    if (!box.dataset.drawn) box.replaceChildren();
    await Plotly.react(box, figure.data, figure.layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: false,
      scrollZoom: false,
    });
    box.dataset.drawn = wanted;
  };

  const all = () =>
    document.querySelectorAll("[data-figure]").forEach((box) => {
      draw(box).catch(() => {
        box.textContent = "The chart could not be drawn. The table below has all of its numbers.";
      });
    });
  document.addEventListener("DOMContentLoaded", all);
  document.addEventListener("qh:theme", all);
  system.addEventListener("change", all);
})();
