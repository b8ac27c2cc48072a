// Follows an inspection under way: asks now and then, ever less often, and loads the page again
// when it has ended. Without script the page refreshes itself.
(() => {
  const FIRST_MS = 700;
  const LONGEST_MS = 10000;
  const GROWTH = 1.25;
  document.querySelectorAll("[data-progress]").forEach((panel) => {
    const bar = panel.querySelector("progress");
    const text = panel.querySelector("[data-progress-text]");
    let wait = FIRST_MS;
    let last = "";
    const ask = async () => {
      try {
        const answer = await fetch(panel.dataset.progress, {
          headers: { Accept: "application/json" },
          redirect: "error",
        });
        if (!answer.ok) throw new Error(String(answer.status));
        const now = await answer.json();
        if (now.ended) {
          location.reload();
          return;
        }
        text.textContent = now.message;
        if (now.total) {
          bar.max = now.total;
          bar.value = now.done;
        } else {
          bar.removeAttribute("value");
        }
        const seen = `${now.status} ${now.done} ${now.total}`;
        wait = seen === last ? Math.min(wait * GROWTH, LONGEST_MS) : FIRST_MS;
        last = seen;
      } catch {
        text.textContent = "The hub does not answer; trying again.";
        wait = Math.min(wait * 2, LONGEST_MS);
      }
      setTimeout(ask, wait);
    };
    setTimeout(ask, wait);
  });
})();
