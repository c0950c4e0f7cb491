// Keeps a page that moves up to date. Without it the page works, and stands still.
"use strict";

(function () {
  const main = document.querySelector("main[data-live]");
  if (main && window.EventSource) {
    const source = new EventSource(location.href);
    source.addEventListener("main", (event) => {
      const active = document.activeElement;
      if (main.contains(active) && active.matches("input")) return; // what is typed is not taken away
      const controls = () => [...main.querySelectorAll("a, button, summary, [tabindex]")];
      const focused = controls().indexOf(active);
      const open = new Set([...main.querySelectorAll("details[open][id]")].map((d) => d.id));
      const scrolled = [...main.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
      main.innerHTML = event.data;
      for (const d of main.querySelectorAll("details[id]")) d.open = open.has(d.id);
      main.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
      const again = controls()[focused];
      if (again && again.textContent === active.textContent) again.focus({ preventScroll: true });
    });
    source.addEventListener("gone", () => source.close());
    addEventListener("pagehide", () => source.close());
  }
  for (const pre of document.querySelectorAll("pre[data-stream]")) {
    const source = new EventSource(pre.dataset.stream);
    source.addEventListener("text", (event) => { pre.append(JSON.parse(event.data)); });
    source.addEventListener("gone", () => source.close());
    source.addEventListener("error", () => source.close()); // it would begin anew
    addEventListener("pagehide", () => source.close());
  }
})();
