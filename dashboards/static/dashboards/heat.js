// The heat map of GPUs over time. The server gives the whole figure, again at each slow round of the charts.
(() => {
  "use strict";
  const { marks } = window.headworks;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const set = (id, props) => window.dash_clientside.set_props(id, props);
  let given = null;

  // What happened, as lines over the cells; its words stand above the other charts and in the list.
  const marked = ({ xaxis, margin }) => {
    const [from, to] = xaxis.range;
    const width = Math.max(80, document.getElementById("heat-frame").clientWidth - margin.l - margin.r);
    const { shapes } = marks.over(from, to, width, { line: colour("--text"), text: colour("--text") });
    return shapes.map((shape) => ({ ...shape, layer: "above" }));
  };

  // In the page's own colours, light or dark.
  const dressed = ({ data, layout }) => {
    const axis = { color: colour("--quiet"), linecolor: colour("--line") };
    const font = { family: getComputedStyle(document.body).fontFamily, size: 11.5, color: colour("--quiet") };
    return {
      data,
      layout: {
        ...layout,
        font,
        height: layout.meta.height,
        hoverlabel: { bgcolor: colour("--surface"), bordercolor: colour("--line"), font: { color: colour("--text"), size: 12 }, align: "left" },
        xaxis: { ...layout.xaxis, ...axis },
        yaxis: { ...layout.yaxis, ...axis },
        shapes: [
          ...layout.shapes.map((shape) => ({ ...shape, line: { ...shape.line, color: colour("--surface") } })),
          ...(data.length ? marked(layout) : []),
        ],
      },
    };
  };

  const part = (type, props, children) => ({ type, namespace: "dash_html_components", props: { ...props, children } });
  const legend = ({ legend: steps, unit }) =>
    steps.map(({ text, colour: shade }, at) =>
      part("Li", {}, [
        part("Span", { style: { backgroundColor: shade } }, ""),
        at === steps.length - 1 ? `${text} ${unit}` : text,
      ]),
    );

  const draw = () => {
    set("heat", { figure: dressed(given.figure), style: { height: `${given.figure.layout.meta.height}px` } });
    set("note-heat", { children: given.note });
    set("heat-legend", { children: given.figure.data.length ? legend(given.figure.layout.meta) : [] });
    set("unfiltered-heat", { children: given.unfiltered });
    set("card-heat", { className: given.unfiltered ? "card heat-card more-than-chosen" : "card heat-card" });
    set("heat-highest", { children: given.highest.join(" · ") });
    set("heat-summary", { className: given.highest.length ? "small" : "small visually-hidden" });
    set("curl-heat", { children: given.curl });
    set("csv-heat", { href: given.csv });
    for (const button of document.querySelectorAll("[data-heat]")) {
      set(button.id, { "aria-pressed": String(button.dataset.heat === given.measure) });
    }
  };

  // What the page says beside a picture of it: what the colours show, and their scale below the cells.
  const heading = () => {
    const [title, measure] = ["#gpus-over-time h2", `#heat-${given.measure}`].map((place) => document.querySelector(place).textContent);
    return `${title}: ${measure}`;
  };
  const scale = (text) => {
    const { legend: steps, unit } = given.figure.data.length ? given.figure.layout.meta : { legend: [], unit: "" };
    const place = (at) => ({ xref: "paper", yref: "paper", x: (at + 0.5) * 0.06 });
    return {
      shapes: steps.map(({ colour: shade }, at) => ({
        type: "rect", xref: "paper", x0: at * 0.06, x1: (at + 1) * 0.06,
        yref: "paper", ysizemode: "pixel", yanchor: 0, y0: -20, y1: -32, fillcolor: shade, line: { width: 0 },
      })),
      annotations: steps.map(({ text: value }, at) => ({
        ...place(at), y: 0, yanchor: "top", yshift: -34, showarrow: false, font: { size: 12, color: text },
        text: at === steps.length - 1 ? `${value} ${unit}` : value,
      })),
    };
  };
  window.headworks.heat = { figure: () => given?.figure, heading, scale };

  // Called by Dash with what the server gave.
  const show = (found) => {
    if (!found) return;
    given = found;
    draw();
  };
  window.dash_clientside = Object.assign({}, window.dash_clientside, { headworks_heat: { show } });

  // A choice stands in the address, so that a link to it shows the same.
  document.addEventListener("click", ({ target }) => {
    const chosen = target.closest?.("[data-heat]")?.dataset.heat;
    if (!chosen) return;
    const address = new URL(location.href);
    address.searchParams.set("heat", chosen);
    history.replaceState(history.state, "", address);
    set("heat-measure", { data: chosen });
  });
  // Another time or filter keeps it.
  document.getElementById("choices").addEventListener("formdata", ({ formData }) => {
    const chosen = new URL(location.href).searchParams.get("heat");
    if (chosen) formData.set("heat", chosen);
  });
  dark.addEventListener("change", () => given && draw());
  marks.onMarked(() => given && draw());
})();
