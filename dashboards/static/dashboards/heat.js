// The heat map of GPUs over time. The server gives the whole figure, again at each slow round of the charts.
(() => {
  "use strict";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const set = (id, props) => window.dash_clientside.set_props(id, props);
  let given = null;

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
        shapes: layout.shapes.map((shape) => ({ ...shape, line: { ...shape.line, color: colour("--surface") } })),
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
    for (const button of document.querySelectorAll("[data-heat]")) {
      set(button.id, { "aria-pressed": String(button.dataset.heat === given.measure) });
    }
  };

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
})();
