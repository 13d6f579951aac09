// Keeps the charts live. The server gives whole figures (the callback into "whole"); one stream then brings the points
// that come after, for all charts. Each point is put in by its time, so that none stands twice whoever sends it again.
(() => {
  "use strict";
  const { more: moreText } = document.currentScript.dataset;
  const live = document.getElementById("live");
  const form = document.getElementById("choices");
  // What came late, or from a line that was not drawn before, appears at the latest then.
  const wholeEveryMs = 60000;
  // A line that nobody knew before asks for everything anew, but not more often than this.
  const wholeAtMostEveryMs = 10000;
  const patienceMs = 8000;
  const reopenMs = 5000;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  let whole = null;
  let shownAt = 0;
  let again = 0;
  let source = null;
  let silence = 0;

  const say = (look, text) => {
    live.className = `state ${look}`;
    live.textContent = text;
  };

  // How numbers read in the legend, as the figures' own formats do on hover.
  const language = document.documentElement.lang;
  const plain = (value, digits) => value.toLocaleString(language, { maximumSignificantDigits: digits });
  const readable = (value, { unit, reads }) => {
    if (value === null || value === undefined) return "–";
    if (reads === "whole") return `${value.toLocaleString(language, { maximumFractionDigits: 0 })} ${unit}`;
    if (reads === "plain") return plain(value, 3);
    if (reads === "seconds" && value > 0 && value < 1) return `${plain(value * 1000, 3)} ms`;
    if (reads === "prefixed" && value >= 1000) return `${plain(value / 1000, 3)} k${unit}`;
    return `${plain(value, 3)} ${unit}`;
  };

  const part = (type, props, ...children) => ({ type, namespace: "dash_html_components", props: { ...props, children } });

  const item = (swatch, color, name, value, meta) =>
    part(
      "Li",
      {},
      part("Span", { className: `swatch ${swatch}`, style: { color } }),
      part("Span", { className: "quiet" }, name),
      " ",
      part("Strong", {}, readable(value, meta)),
    );

  const legend = ({ data, layout: { meta, shapes } }) => {
    const items = data.map(({ line, name, y }) => item(line.dash, line.color, name, y[y.length - 1], meta));
    const limits = meta.thresholds.map(({ text, value }, at) => item("dash", shapes[at].line.color, text, value, meta));
    if (!data.length) return [];
    const more = meta.hidden ? [part("Li", { className: "quiet" }, moreText.replace("{number}", meta.hidden))] : [];
    return [...items, ...limits, ...more];
  };

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The page's own colours, in its light and its dark look.
  const dressed = (layout) => {
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), color: colour("--quiet") };
    return {
      ...layout,
      font: { family: getComputedStyle(document.body).fontFamily, size: 11.5, color: colour("--quiet") },
      hoverlabel: {
        bgcolor: colour("--surface"),
        bordercolor: colour("--line"),
        font: { color: colour("--text"), size: 12 },
      },
      xaxis: { ...layout.xaxis, ...axis, spikecolor: colour("--quiet"), spikethickness: 1, spikedash: "dot" },
      yaxis: { ...layout.yaxis, ...axis },
    };
  };

  // Charts that a person looks closer at, by name: they keep the time that was chosen, though points come.
  const closer = new Map();
  const watched = new WeakSet();
  const watch = (graph) => {
    if (watched.has(graph)) return;
    watched.add(graph);
    const chart = graph.parentElement.closest("[id]").id;
    graph.on("plotly_relayout", (change) => "xaxis.range[0]" in change && closer.set(chart, graph));
    graph.on("plotly_doubleclick", () => closer.delete(chart) && draw(chart, whole.figures[chart]));
  };

  const draw = (chart, figure) => {
    const layout = dressed(figure.layout);
    if (closer.has(chart)) layout.xaxis.range = closer.get(chart).layout.xaxis.range;
    const shown = { data: figure.data, layout: { ...layout, datarevision: whole.newest_ms } };
    window.dash_clientside.set_props(chart, { figure: shown });
    window.dash_clientside.set_props(`legend-${chart}`, { children: legend(figure) });
  };

  const drawAll = () => {
    for (const [chart, figure] of Object.entries(whole.figures)) draw(chart, figure);
  };

  const askForWhole = () => {
    again += 1;
    window.dash_clientside.set_props("again", { data: again });
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

  const take = (message) => {
    heard();
    const { times, lines } = JSON.parse(message.data);
    let unknown = false;
    for (const [chart, figure] of Object.entries(whole.figures)) {
      const points = lines[chart] ?? {};
      const known = new Set(figure.data.map((line) => line.meta));
      unknown ||= !figure.layout.meta.hidden && Object.keys(points).some((key) => !known.has(key));
      figure.data = figure.data.map((line) => longer(line, times, points[line.meta]));
      const step = times[times.length - 1] - whole.newest_ms;
      if (step > 0) figure.layout.xaxis = { ...figure.layout.xaxis, range: figure.layout.xaxis.range.map((at) => at + step) };
    }
    whole.newest_ms = Math.max(whole.newest_ms, times[times.length - 1]);
    drawAll();
    const age = Date.now() - shownAt;
    if (age > wholeEveryMs || (unknown && age > wholeAtMostEveryMs)) askForWhole();
  };

  const heard = () => {
    clearTimeout(silence);
    silence = 0;
    say("good", live.dataset.live);
  };

  const close = () => {
    source?.close();
    source = null;
  };

  // After an answer that is no stream the browser does not try again: without a log-in the page goes to it.
  const reopen = async (ended) => {
    try {
      const answer = await fetch("_dash-dependencies");
      if (answer.status === 401) return location.reload();
    } catch {
      // Still away.
    }
    setTimeout(() => source === ended && open(), reopenMs);
  };

  const open = () => {
    close();
    if (document.hidden || !whole) return;
    const after = new URL(whole.stream, location.href);
    after.searchParams.set("after", whole.newest_ms);
    const opened = new EventSource(after);
    source = opened;
    opened.addEventListener("open", heard);
    opened.addEventListener("points", take);
    opened.addEventListener("error", () => {
      silence ||= setTimeout(() => say("bad", live.dataset.lost), patienceMs);
      if (opened.readyState === EventSource.CLOSED) reopen(opened);
    });
  };

  // Called by Dash with what the server gave.
  const show = (given) => {
    if (!given) return;
    whole = given;
    shownAt = Date.now();
    drawAll();
    for (const [id, texts] of Object.entries({ curl: whole.curl, note: whole.notes })) {
      for (const [chart, text] of Object.entries(texts)) {
        window.dash_clientside.set_props(`${id}-${chart}`, { children: text });
      }
    }
    // Anew from where these figures end: an event may have come while they were made.
    open();
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, { headworks: { show } });

  // Before the first drag of each.
  document.addEventListener("pointerdown", ({ target }) => {
    const graph = target.closest(".js-plotly-plot");
    if (graph) watch(graph);
  }, true);
  form.addEventListener("change", () => form.requestSubmit());
  dark.addEventListener("change", () => whole && drawAll());
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => event.persisted && open());
})();
