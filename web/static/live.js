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
  // The action under the pointer of a build's time line is named below it; a click opens it.
  let bars = [], read = null;
  const barAt = (event) => {
    const box = event.target.closest && event.target.closest(".lanes");
    if (!box) return null;
    if (read !== box.dataset.bars) bars = JSON.parse(read = box.dataset.bars);
    const area = box.querySelector("svg").getBoundingClientRect();
    const at = (event.clientX - area.left) / area.width * 100000;
    const lane = Math.floor((event.clientY - area.top) / 9);
    const near = 200000 / area.width; // two pixels
    return bars.find((b) => b[0] === lane && b[1] - near <= at && at <= b[2] + near) || null;
  };
  addEventListener("pointermove", (event) => {
    const bar = barAt(event);
    const name = bar && document.querySelector(".lane-name");
    if (name) name.textContent = bar[4];
  });
  addEventListener("click", (event) => {
    const bar = barAt(event);
    if (bar) location.href = "/operations/" + bar[3];
  });
  for (const pre of document.querySelectorAll("pre[data-stream]")) {
    const source = new EventSource(pre.dataset.stream);
    source.addEventListener("text", (event) => {
      const follows = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
      pre.append(JSON.parse(event.data));
      if (follows) pre.scrollTop = pre.scrollHeight;
    });
    source.addEventListener("again", (event) => { // what was printed does not count
      const follows = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
      const before = document.createElement("del"), mark = document.createElement("strong");
      while (pre.firstChild) before.append(pre.firstChild);
      mark.textContent = `\n${event.data}\n`;
      pre.append(before, mark);
      if (follows) pre.scrollTop = pre.scrollHeight;
    });
    source.addEventListener("gone", () => source.close());
    source.addEventListener("error", () => source.close()); // it would begin anew
    addEventListener("pagehide", () => source.close());
  }
})();
