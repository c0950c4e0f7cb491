// Keeps a page that moves up to date. Without it the page works, and stands still.
"use strict";

(function () {
  const main = document.querySelector("main[data-live]");
  if (main && window.EventSource) {
    const url = new URL(location.href), kept = document.querySelector("[data-have]");
    if (kept) url.searchParams.set("have", kept.dataset.have);
    const source = new EventSource(url);
    source.addEventListener("main", (event) => {
      const active = document.activeElement;
      if (main.contains(active) && active.matches("input")) return; // what is typed is not taken away
      const controls = () => [...main.querySelectorAll("a, button, summary, [tabindex]")];
      const focused = controls().indexOf(active);
      const known = new Map([...main.querySelectorAll("details[id]")].map((d) => [d.id, d.open]));
      const scrolled = [...main.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
      const kept = [...main.querySelectorAll("[data-kept]")];
      main.innerHTML = event.data;
      for (const old of kept) document.getElementById(old.id)?.replaceWith(old); // events of their own say what is new there
      for (const d of main.querySelectorAll("details[id]")) d.open = known.get(d.id) ?? d.open;
      main.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
      const again = controls()[focused];
      if (again && again.textContent === active.textContent) again.focus({ preventScroll: true });
    });
    let failures = 0, stale = null; // the first failure is the end of a stream, which the browser opens again
    source.addEventListener("open", () => { failures = 0; stale?.remove(); stale = null; });
    source.addEventListener("error", () => {
      const over = source.readyState === EventSource.CLOSED;
      if (++failures < 2 && !over) return;
      stale?.remove();
      stale = notice(over ? "This page is no longer updated: reload it." : "This page is not updated at the moment: the scheduler does not answer.");
      main.prepend(stale);
    });
    source.addEventListener("lanes", (event) => addBars(JSON.parse(event.data)));
    source.addEventListener("reload", () => { source.close(); location.reload(); });
    source.addEventListener("left", () => { source.close(); location.assign("/logout"); });
    source.addEventListener("gone", (event) => {
      source.close();
      main.prepend(notice(`This page is no longer updated: ${event.data}`));
    });
    addEventListener("pagehide", () => source.close());
  }
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
    source.addEventListener("reload", () => { source.close(); location.reload(); });
    source.addEventListener("left", () => { source.close(); location.assign("/logout"); });
    source.addEventListener("gone", (event) => {
      source.close();
      if (event.data !== "end") pre.before(notice(`This output is no longer updated: ${event.data}`));
    });
    source.addEventListener("error", () => source.close()); // it would begin anew
    addEventListener("pagehide", () => source.close());
  }

  function notice(text) {
    const p = document.createElement("p");
    p.className = "notice";
    p.setAttribute("role", "status");
    p.textContent = text;
    return p;
  }

  // A bar of a build's time line is [lane, given to the worker, started, ended, over, failed, operation, name, waited], times
  // in milliseconds: see timeline.go. The page has those of its begin in a script; live ones are added.
  let read = null;
  function timeLine() {
    const section = document.getElementById("time-line"), script = section?.querySelector("script");
    if (!script || read?.section === section) return script && read;
    const data = JSON.parse(script.textContent);
    read = {
      section, data, svg: section.querySelector(".lanes svg"), from: 0, until: Number(section.dataset.span), most: Number(section.dataset.most), lane: Number(section.dataset.lane),
      lanes: new Map(data.workers.map((name, i) => [name, i])), known: new Set(data.ended.map((bar) => bar[6])),
    };
    return read;
  }

  function addBars(news) {
    const line = timeLine();
    if (!line) return;
    const later = news.origin - line.data.origin;
    const placed = (list) => list.flatMap((bar) => {
      const name = news.workers[bar[0]];
      if (!line.lanes.has(name)) {
        if (line.lanes.size >= line.most) return [];
        line.lanes.set(name, line.lanes.size);
        const item = document.createElement("li");
        item.textContent = name;
        line.section.querySelector("ol").append(item);
      }
      return [[line.lanes.get(name), ...bar.slice(1, 5).map((at) => at + later), ...bar.slice(5)]];
    });
    const ended = placed(news.ended.filter((bar) => !line.known.has(bar[6])));
    line.data.running = placed(news.running);
    line.data.waits = news.waits.map(([at, n]) => [at + later, n]);
    for (const [at] of line.data.waits) {
      line.from = Math.min(line.from, at);
      line.until = Math.max(line.until, later);
    }
    for (const bar of ended) line.known.add(bar[6]);
    line.data.ended.push(...ended);
    for (const bar of [...ended, ...line.data.running]) {
      line.from = Math.min(line.from, bar[1] - bar[8]);
      line.until = Math.max(line.until, bar[4]);
    }
    drawBars(line, ended);
  }

  function drawBars(line, ended) {
    const d = { fetch: "", run: "", bad: "", upload: "", now: "" };
    const add = (path, bar, from, until) => {
      const took = Math.max(until - from, 1);
      if (until > from || path !== "fetch" && path !== "upload") d[path] += `M${from} ${bar[0] * line.lane}h${took}v${line.lane - 1}h-${took}z`;
    };
    for (const bar of ended) {
      add("fetch", bar, bar[1], bar[2]);
      add(bar[5] ? "bad" : "run", bar, bar[2], bar[3]);
      add("upload", bar, bar[3], bar[4]);
    }
    for (const bar of line.data.running) add("now", bar, bar[1], bar[4]);
    line.svg.querySelector(".now")?.setAttribute("d", d.now);
    for (const name of ["fetch", "run", "bad", "upload"]) {
      if (!d[name]) continue;
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", name);
      path.setAttribute("d", d[name]);
      line.svg.append(path);
    }
    const span = line.until - line.from, height = line.lanes.size * line.lane;
    line.svg.setAttribute("viewBox", `${line.from} 0 ${span} ${height}`);
    line.svg.setAttribute("height", height);
    drawWaits(line, span);
    line.section.querySelector(".lane-count").textContent = `${line.lanes.size} ${line.lanes.size === 1 ? "lane" : "lanes"}`;
    drawAxis(line.section.querySelector(".ticks"), span);
  }

  // As Ticks in scale.go.
  function drawAxis(svg, span) {
    const steps = svg.dataset.steps.split(" ").map(Number), most = 5, day = steps.at(-1);
    const step = steps.find((s) => Math.floor(span / s) <= most) ?? (Math.floor(span / (most * day)) + 1) * day;
    const make = (name, attributes, text = "") => {
      const e = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
      e.textContent = text;
      return e;
    };
    svg.replaceChildren();
    for (let at = 0; at <= span; at += step) {
      const x = `${(100 * at / Math.max(span, 1)).toFixed(2)}%`;
      svg.append(make("line", { x1: x, x2: x, y2: 4 }), make("text", { x, y: 16, "text-anchor": at === 0 ? "start" : at > 0.95 * span ? "end" : "middle" }, tickText(at)));
    }
  }

  function tickText(ms) {
    if (ms < 1000) return ms ? `${ms}ms` : "0";
    const s = ms / 1000, h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
    return `${h ? `${h}h` : ""}${m ? `${m}m` : ""}${s % 60 ? `${s % 60}s` : ""}`;
  }

  // As (*Lanes).wait in timeline.go.
  function drawWaits(line, span) {
    const figure = line.section.querySelector(".waits"), svg = figure.querySelector("svg");
    const bins = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height, per = span / bins, sums = Array(bins).fill(0);
    const add = (from, until, n) => {
      for (let b = Math.floor(from / per); b < bins && b * per < until; b++) sums[b] += n * (Math.min(until, (b + 1) * per) - Math.max(from, b * per)) / per;
    };
    for (const bar of [...line.data.ended, ...line.data.running]) add(bar[1] - bar[8] - line.from, bar[1] - line.from, 1);
    for (const [at, n] of line.data.waits) add(at - line.from, span, n);
    const most = Math.ceil(Math.max(...sums));
    svg.querySelector("path").setAttribute("d", `M0,${height}${sums.map((n) => `V${(height * (1 - n / Math.max(most, 1))).toFixed(1)}h1`).join("")}V${height}Z`);
    figure.querySelector("b").textContent = most;
  }

  function duration(ms) {
    if (ms < 1000) return `${Math.round(ms)}ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(2)}s`;
    const s = Math.round(ms / 1000), h = Math.floor(s / 3600);
    return `${h ? `${h}h` : ""}${Math.floor(s / 60) % 60}m${s % 60}s`;
  }

  // What all plots were at the time under the pointer is in their captions.
  const units = {
    counts: (v) => v < 10 && v % 1 ? v.toFixed(1) : String(Math.round(v)), seconds: (v) => duration(Math.round(v) * 1000), shares: (v) => `${Math.round(v * 100)} %`,
  };
  addEventListener("pointermove", (event) => {
    const area = event.target.closest?.("svg[data-values]")?.getBoundingClientRect();
    const part = area && Math.min(Math.max((event.clientX - area.left) / area.width, 0), 1);
    for (const svg of document.querySelectorAll("svg[data-values]")) {
      const cross = svg.querySelector(".cross"), read = svg.closest("figure").querySelector(".read"), last = svg.viewBox.baseVal.width;
      if (!area) {
        cross.removeAttribute("d");
        read.textContent = "";
        continue;
      }
      const at = Math.round(part * last), value = svg.dataset.values.split(" ")[at] ?? "-";
      const when = new Date(Date.now() - (1 - at / last) * Number(svg.dataset.span)).toISOString();
      cross.setAttribute("d", `M${at},0V${svg.viewBox.baseVal.height}`);
      read.textContent = `${value === "-" ? "unknown" : units[svg.dataset.unit](Number(value))} at ${when.slice(5, 16).replace("T", " ")} UTC`;
    }
  });

  // The action under the pointer is named below the time line; a click opens it.
  function barAt(event) {
    const box = event.target.closest?.(".lanes"), line = box && timeLine();
    if (!line) return null;
    const area = line.svg.getBoundingClientRect(), span = line.until - line.from;
    const at = line.from + (event.clientX - area.left) / area.width * span;
    const lane = Math.floor((event.clientY - area.top) / line.lane);
    const near = 2 * span / area.width; // two pixels
    const found = (bar) => bar[0] === lane && bar[1] - near <= at && at <= bar[4] + near;
    return line.data.running.find(found) || line.data.ended.find(found) || null;
  }
  addEventListener("pointermove", (event) => {
    const bar = barAt(event), name = bar && document.querySelector(".lane-name");
    if (!name) return;
    const worker = [...read.lanes.keys()][bar[0]];
    name.textContent = `${bar[7]}: ${duration(bar[4] - bar[1])}${bar[5] ? ", failed" : ""}, waited ${duration(bar[8])} before, on ${worker}`;
  });
  addEventListener("click", (event) => {
    const bar = barAt(event);
    if (bar) location.href = "/operations/" + bar[6];
  });
})();
