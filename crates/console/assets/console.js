"use strict";
// Charts, copies and the filter of long forms. Pages work without it.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const POINTS = 300;
  const byId = (id) => document.getElementById(id);
  const lang = document.documentElement.lang;
  const number = new Intl.NumberFormat(lang, { maximumFractionDigits: 1 });

  for (const button of document.querySelectorAll("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    const text = button.textContent;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
      button.textContent = button.dataset.done;
      setTimeout(() => { button.textContent = text; }, 2000);
    });
  }

  const narrow = byId("narrow");
  if (narrow) {
    narrow.parentElement.hidden = false;
    narrow.addEventListener("input", () => {
      const wanted = narrow.value.trim().toLowerCase();
      const fields = narrow.closest("details").querySelectorAll("[data-field]");
      for (const field of fields) {
        field.hidden = !field.dataset.field.toLowerCase().includes(wanted);
      }
    });
  }

  // A link of the list of errors opens what its field lies in.
  for (const link of document.querySelectorAll('.alert a[href^="#f."]')) {
    link.addEventListener("click", (event) => {
      const field = byId(decodeURIComponent(link.hash.slice(1)));
      if (!field) return;
      event.preventDefault();
      const details = field.closest("details");
      if (details) details.open = true;
      field.focus();
    });
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = document.querySelector("form[role=search] input");
    if (!search) return;
    event.preventDefault();
    search.focus();
  });

  const live = byId("live");
  if (!live || !window.EventSource) return;
  live.hidden = false;
  let points = [];
  let source = null;
  let paused = false;

  const element = (name, attributes) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };

  function draw(name, series) {
    const chart = byId("chart-" + name);
    const width = 600, height = 160;
    let top = 1;
    for (const one of series) for (const value of one.values) if (value > top) top = value;
    const svg = element("svg", {
      viewBox: "0 0 " + width + " " + height, preserveAspectRatio: "none", role: "img",
      "aria-label": chart.dataset.label + ": " + series.map((one) => one.name + " " + one.now).join(", "),
    });
    for (const share of [0.25, 0.5, 0.75]) {
      svg.append(element("line", { class: "grid", x1: 0, x2: width, y1: height * share, y2: height * share }));
    }
    series.forEach((one, index) => {
      let path = "", pen = "M";
      one.values.forEach((value, at) => {
        if (value === null) { pen = "M"; return; }
        const x = width - (one.values.length - 1 - at) * width / (POINTS - 1);
        path += pen + x.toFixed(1) + " " + (height - 4 - value / top * (height - 8)).toFixed(1);
        pen = "L";
      });
      svg.append(element("path", { class: "line c" + index % 8, d: path || "M0 0" }));
    });
    const scale = document.createElement("span");
    scale.className = "scale";
    scale.textContent = number.format(top);
    chart.replaceChildren(svg, scale);
    byId("legend-" + name).replaceChildren(...series.map((one, index) => {
      const item = document.createElement("li");
      const mark = document.createElement("span");
      mark.className = "key c" + index % 8;
      item.append(mark, one.name + " " + one.now);
      return item;
    }));
  }

  function series(name, pick) {
    const values = points.map(pick);
    const last = values.length ? values[values.length - 1] : null;
    return { name, values, now: last === null ? "–" : number.format(last) };
  }

  function show() {
    const last = points[points.length - 1];
    if (!last) return;
    const names = last.services.map(([name]) => name);
    draw("services", names.map((name) => series(name || "–", (point) => {
      const found = point.services.find(([other]) => other === name);
      return found ? found[1] : 0;
    })));
    draw("latency", [series("p50", (point) => point.p50), series("p95", (point) => point.p95)]);
    draw("classes", [2, 3, 4, 5].map((at) => series(at + "xx", (point) => point.classes[at])));
    byId("now-rate").textContent = number.format(last.rate);
    byId("now-latency").textContent = last.p95 === null ? "" : "p95 " + number.format(last.p95);
    byId("now-errors").textContent = "5xx " + number.format(last.classes[5]);
    count(last.refusals);
  }

  // The counts of refusals that the page has rows for.
  function count(refusals) {
    const counts = new Map(refusals.map(([plugin, code, n]) => [plugin + " " + code, n]));
    for (const row of document.querySelectorAll("#refusals tbody tr")) {
      const cells = row.cells;
      const now = counts.get(cells[0].textContent + " " + cells[1].textContent);
      if (now !== undefined) cells[3].textContent = now;
    }
  }

  function open() {
    if (source || paused || document.hidden) return;
    source = new EventSource(live.dataset.events);
    source.addEventListener("history", (event) => { points = JSON.parse(event.data); show(); });
    source.addEventListener("sample", (event) => {
      points.push(JSON.parse(event.data));
      points = points.slice(-POINTS);
      show();
    });
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  byId("pause").addEventListener("click", (event) => {
    paused = !paused;
    event.currentTarget.setAttribute("aria-pressed", String(paused));
    if (paused) close(); else open();
  });
  open();
})();
