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
      const known = new Map([...main.querySelectorAll("details[id]")].map((d) => [d.id, d.open]));
      const scrolled = [...main.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
      main.innerHTML = event.data;
      for (const d of main.querySelectorAll("details[id]")) d.open = known.get(d.id) ?? d.open;
      main.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
      const again = controls()[focused];
      if (again && again.textContent === active.textContent) again.focus({ preventScroll: true });
    });
    source.addEventListener("reload", () => { source.close(); location.reload(); });
    source.addEventListener("gone", () => source.close());
    addEventListener("pagehide", () => source.close());
  }
  for (const pre of document.querySelectorAll("pre[data-stream]")) {
    const source = new EventSource(pre.dataset.stream);
    source.addEventListener("text", (event) => {
      const follows = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
      pre.append(JSON.parse(event.data));
      if (follows) pre.scrollTop = pre.scrollHeight;
    });
    source.addEventListener("gone", () => source.close());
    source.addEventListener("error", () => source.close()); // it would begin anew
    addEventListener("pagehide", () => source.close());
  }
})();
