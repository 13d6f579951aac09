// Keeps the charts live. The server gives whole figures (the callback into "whole"); the page's one stream then brings
// the points that come after, for all charts. Each point is put in by its time, so that none stands twice whoever sends
// it again. A time that was chosen stands in the address, for all charts alike; nothing moves while it does.
(() => {
  "use strict";
  const { legend, lasted, marks } = window.headworks;
  const live = document.getElementById("live");
  const back = document.getElementById("back-to-live");
  const all = document.getElementById("all-again");
  const retry = document.getElementById("retry");
  const form = document.getElementById("choices");
  // What came late, or from a line that was not drawn before, appears at the latest then.
  const wholeEveryMs = 60000;
  // A line that nobody knew before asks for everything anew, but not more often than this.
  const wholeAtMostEveryMs = 10000;
  // Of a time that is chosen with the mouse: in less there is no point that has a neighbour.
  const shortestMs = 60000;
  const doubtMs = 3000;
  const awayMs = 15000;
  // Room above a plot for the words of marks, and beside it for numbers.
  const topPixels = 30;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  let whole = null;
  let shownAt = 0;
  let again = 0;
  let answered = true;
  let doubt = 0;

  const say = (look, text) => {
    live.className = `state ${look}`;
    live.textContent = text;
  };

  const isLive = () => Boolean(whole?.stream);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const set = (id, props) => window.dash_clientside.set_props(id, props);
  const graphOf = (chart) => document.querySelector(`#${CSS.escape(chart)} .js-plotly-plot`);

  // The page's own colours, in its light and its dark look, and the marks.
  const dressed = (chart, layout) => {
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), color: colour("--quiet") };
    const hoverlabel = {
      bgcolor: colour("--surface"),
      bordercolor: colour("--line"),
      font: { color: colour("--text"), size: 12 },
    };
    const [from, to] = layout.xaxis.range;
    const card = document.getElementById(chart)?.clientWidth || 400;
    const width = Math.max(80, card - layout.margin.l - layout.margin.r);
    const marked = marks.over(from, to, width, { line: colour("--quiet"), text: colour("--text") });
    return {
      ...layout,
      margin: { ...layout.margin, t: topPixels },
      font: { family: getComputedStyle(document.body).fontFamily, size: 11.5, color: colour("--quiet") },
      hoverlabel,
      shapes: [...layout.shapes, ...marked.shapes],
      annotations: [...layout.annotations, ...marked.annotations],
      xaxis: { ...layout.xaxis, ...axis, spikecolor: colour("--quiet"), spikethickness: 1, spikedash: "dot" },
      yaxis: { ...layout.yaxis, ...axis },
    };
  };

  const draw = (chart, figure) => {
    const layout = { ...dressed(chart, figure.layout), datarevision: whole.newest_ms };
    set(chart, { figure: { data: figure.data, layout } });
    set(`legend-${chart}`, { children: legend(figure, isLive()) });
  };

  const drawAll = () => {
    late.clear();
    for (const [chart, figure] of Object.entries(whole.figures)) draw(chart, figure);
  };

  // What came is drawn in the charts that are seen; in the others once a person comes to them.
  const seen = new Set();
  const late = new Set();
  const nearby = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const chart = target.id.replace("card-", "");
      isIntersecting ? seen.add(chart) : seen.delete(chart);
      if (isIntersecting && late.delete(chart)) draw(chart, whole.figures[chart]);
    }
  }, { rootMargin: "200px" });
  const drawSeen = () => {
    for (const [chart, figure] of Object.entries(whole.figures)) seen.has(chart) ? draw(chart, figure) : late.add(chart);
  };

  const askForWhole = () => {
    again += 1;
    set("again", { data: again });
  };

  // One line with the newer points at its end and as many dropped from its start.
  const longer = (line, times, points) => {
    const from = times.findIndex((time) => time > line.x[line.x.length - 1]);
    if (from < 0) return line;
    const newer = { y: points?.y ?? times.map(() => null), notes: points?.notes ?? [] };
    const keep = (old, more) => old.concat(more.slice(from)).slice(-whole.points);
    return {
      ...line,
      x: keep(line.x, times),
      y: keep(line.y, newer.y),
      customdata: line.customdata.length ? keep(line.customdata, times.map((_, at) => newer.notes[at] ?? "")) : [],
    };
  };

  const takePoints = ({ times, lines }) => {
    if (!isLive()) return;
    let unknown = false;
    const step = times[times.length - 1] - whole.newest_ms;
    for (const [chart, figure] of Object.entries(whole.figures)) {
      const points = lines[chart] ?? {};
      const known = new Set(figure.data.map((line) => line.meta));
      unknown ||= !figure.layout.meta.hidden && Object.keys(points).some((key) => !known.has(key));
      figure.data = figure.data.map((line) => longer(line, times, points[line.meta]));
      if (step > 0) figure.layout.xaxis = { ...figure.layout.xaxis, range: figure.layout.xaxis.range.map((at) => at + step) };
    }
    whole.newest_ms = Math.max(whole.newest_ms, times[times.length - 1]);
    if (step > 0) marks.moved(whole.first_ms += step, Infinity);
    drawSeen();
    const age = Date.now() - shownAt;
    if (age > wholeEveryMs || (unknown && age > wholeAtMostEveryMs)) askForWhole();
  };

  const takeMarks = (found) => {
    if (!isLive()) return;
    marks.add(found);
    drawSeen();
  };

  const heard = () => {
    document.body.classList.remove("not-live");
    if (isLive()) say("good", live.dataset.live);
  };

  const lost = () => {
    document.body.classList.add("not-live");
    const age = live.dataset.age.replace("{age}", lasted(Date.now() - whole.newest_ms));
    if (isLive()) say("bad", `${live.dataset.lost} ${age}`);
  };

  // After an answer that is no stream: without a log-in the page goes to it.
  const closed = async () => {
    try {
      const answer = await fetch("_dash-dependencies");
      if (answer.status === 401) location.reload();
    } catch {
      // Still away.
    }
  };

  const address = () => {
    if (!isLive()) return null;
    const after = new URL(whole.stream, location.href);
    after.searchParams.set("after", whole.newest_ms);
    return after;
  };

  const start = () => {
    const page = { address, takes: { points: takePoints, marks: takeMarks }, heard, lost, closed };
    const begin = () => window.headworks.live.start(page);
    document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", begin, { once: true }) : begin();
  };

  // Called by Dash with what the server gave.
  const show = (given) => {
    if (!given) return;
    whole = given;
    shownAt = Date.now();
    clearTimeout(doubt);
    answered = true;
    retry.hidden = true;
    document.body.classList.remove("not-live");
    marks.set(whole.marks, whole.first_ms, isLive() ? Infinity : whole.newest_ms);
    for (const [chart, figure] of Object.entries(whole.figures)) {
      const looks = { refused: figure.layout.meta.refused, "more-than-chosen": whole.unfiltered[chart] };
      const more = Object.keys(looks).filter((name) => looks[name]);
      set(`card-${chart}`, { className: ["card chart is-drawn", ...more].join(" ") });
      nearby.observe(document.getElementById(`card-${chart}`));
    }
    drawAll();
    for (const [id, texts] of Object.entries({ curl: whole.curl, note: whole.notes, unfiltered: whole.unfiltered })) {
      for (const [chart, text] of Object.entries(texts)) set(`${id}-${chart}`, { children: text });
    }
    if (!isLive()) say("none", live.dataset.fixed);
    // Anew from where these figures end: an event may have come while they were made.
    start();
  };

  // Called by Dash when it begins to ask for the figures, and when it has an answer or none.
  const asked = (isAsking) => {
    if (isAsking) answered = false;
    clearTimeout(doubt);
    // Of a server that is away Dash says no end; and what was given is shown a moment before or after that.
    if (!answered) doubt = setTimeout(failed, isAsking ? awayMs : doubtMs);
  };

  const failed = () => {
    say("bad", live.dataset.failed);
    retry.hidden = false;
    document.body.classList.add("not-live");
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, { headworks: { show, asked } });

  // A phone has the first screen for charts: what is seldom chosen is folded, unless it was.
  const phone = matchMedia("(max-width: 640px)");
  const more = form.querySelector(".more-choices");
  const fold = () => {
    const chosen = new URL(location.href).searchParams;
    more.open = !phone.matches || ["from", "to", "hide"].some((name) => chosen.get(name));
  };
  phone.addEventListener("change", fold);
  fold();

  const firstSpan = form.querySelector("[name=span]").value;

  // The time of the address: what the buttons, the form and the other layers say of it.
  const told = () => {
    const chosen = new URL(location.href).searchParams;
    const isChosen = chosen.has("from") && chosen.get("from") !== "";
    back.hidden = !isChosen;
    // Where it would be the same as going back to live, one button is enough.
    all.hidden = !new URLSearchParams(history.state?.before ?? "").has("from");
    for (const name of ["from", "to"]) {
      const at = Number(chosen.get(name));
      if (!isChosen) form.elements[name].value = "";
      else if (at) form.elements[name].value = new Date(at * 1000).toISOString().slice(0, 19);
    }
    for (const radio of form.querySelectorAll("[name=span]")) {
      radio.checked = !isChosen && radio.value === (chosen.get("span") ?? firstSpan);
    }
    for (const tab of document.querySelectorAll(".tabs a")) tab.search = location.search;
  };

  // Another time, for all charts: Dash hears of it as of the button that goes back.
  const go = (parameters, before) => {
    const there = new URL(location.href);
    for (const [name, value] of Object.entries(parameters)) {
      value === null ? there.searchParams.delete(name) : there.searchParams.set(name, value);
    }
    history.pushState(before === undefined ? null : { before }, "", there);
    dispatchEvent(new PopStateEvent("popstate", { state: history.state }));
  };

  const zoom = (from, to) => {
    const long = Math.max(to - from, shortestMs);
    // There is nothing after the newest point.
    const end = Math.min((from + to + long) / 2, whole.newest_ms);
    const [first, last] = [Math.floor((end - long) / 1000), Math.ceil(end / 1000)];
    // At once, from the points that are there; those of finer steps come with the answer.
    for (const figure of Object.values(whole.figures)) {
      figure.layout.xaxis = { ...figure.layout.xaxis, range: [first * 1000, last * 1000] };
    }
    whole.stream = "";
    drawSeen();
    say("none", live.dataset.fixed);
    go({ span: null, from: first, to: last }, history.state?.before ?? location.search);
  };

  const before = () => new URLSearchParams(history.state?.before ?? "");
  const allAgain = () => {
    const then = before();
    if (history.state?.before !== undefined) go({ span: then.get("span"), from: then.get("from"), to: then.get("to") });
  };

  const moment = (at) => (typeof at === "number" ? at : Date.parse(`${at.replace(" ", "T")}Z`));
  const watched = new WeakSet();
  const watch = (graph) => {
    if (watched.has(graph)) return;
    watched.add(graph);
    graph.on("plotly_relayout", (change) => {
      if ("xaxis.range[0]" in change) zoom(moment(change["xaxis.range[0]"]), moment(change["xaxis.range[1]"]));
    });
    graph.on("plotly_doubleclick", allAgain);
    graph.on("plotly_clickannotation", ({ annotation }) => annotation.name && marks.open(annotation.name));
  };

  // Before the first drag of each.
  document.addEventListener("pointerdown", ({ target }) => {
    const graph = target.closest(".layers .js-plotly-plot");
    const chart = graph?.parentElement.closest("[id]").id;
    if (chart && whole && (chart in whole.figures || chart === "heat")) watch(graph);
  }, true);
  form.addEventListener("change", ({ target }) => {
    if (target.name === "from" || target.name === "to") return;
    // A span goes on with the clock.
    if (target.name === "span") for (const name of ["from", "to"]) form.elements[name].value = "";
    form.requestSubmit();
  });
  // An address says what was chosen, and nothing else.
  form.addEventListener("formdata", ({ formData }) => {
    if (formData.get("from") || formData.get("to")) formData.delete("span");
    for (const [name, value] of [...formData]) if (!value) formData.delete(name);
  });
  back.addEventListener("click", () => go({ span: before().get("span"), from: null, to: null }));
  all.addEventListener("click", allAgain);
  retry.addEventListener("click", askForWhole);
  document.addEventListener("click", ({ target }) => target.closest("[data-retry]") && askForWhole());
  addEventListener("popstate", told);
  dark.addEventListener("change", () => whole && drawAll());
  marks.onChange(() => whole && drawSeen());
  window.headworks.charts = { graphOf, colour, whole: () => whole };
  told();
})();
