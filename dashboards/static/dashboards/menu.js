// What a chart can be taken away as: a picture, its values, a link to it at this time.
(() => {
  "use strict";
  const { charts } = window.headworks;
  // Of the heat map as high as its rows want.
  const picture = { width: 1100, height: 480, scale: 2 };
  const besidePixels = 130;

  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const minute = (ms) => new Date(ms).toISOString().slice(0, 16).replace("T", " ");
  // The heat map's script comes after this one.
  const heatOf = (chart) => (chart === "heat" ? window.headworks.heat : null);
  const figureOf = (chart) => heatOf(chart)?.figure() ?? charts.whole()?.figures[chart];
  const [firstOf, lastOf] = [0, 1].map((at) => (chart) => figureOf(chart).layout.xaxis.range[at]);
  const heading = (chart) => {
    if (heatOf(chart)) return heatOf(chart).heading();
    const [title, unit] = document.querySelector(`#card-${chart} h3`).childNodes;
    const texts = [title, unit?.nextSibling ?? unit].map((node) => node?.textContent.trim());
    return texts.filter(Boolean).join(", ");
  };
  const fileName = (chart, kind) => `${chart}-${new Date(lastOf(chart)).toISOString().slice(0, 16).replaceAll(":", "")}Z.${kind}`;

  const save = (address, name) => {
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    link.click();
  };

  // Of a drawing. Plotly's own painting is by way of a blob, which the page's policy has no room for.
  const painted = async (drawing, height) => {
    const image = new Image();
    image.src = drawing;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [picture.width * picture.scale, height * picture.scale];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/png");
  };

  // As it stands there, with what the card says around it: title, time, names of the lines.
  const png = async (chart) => {
    const graph = charts.graphOf(chart);
    const text = charts.colour("--text");
    const time = `${minute(firstOf(chart))} – ${minute(lastOf(chart))} UTC`;
    const meta = figureOf(chart).layout.meta;
    const height = heatOf(chart) ? Math.max(picture.height, meta.height + besidePixels) : picture.height;
    const scale = heatOf(chart)?.scale(text) ?? { shapes: [], annotations: [] };
    const layout = {
      ...graph.layout,
      ...picture,
      height,
      autosize: false,
      shapes: [...graph.layout.shapes, ...scale.shapes],
      annotations: [...graph.layout.annotations, ...scale.annotations],
      title: { text: `${escaped(heading(chart))} · ${time}`, x: 0.02, xanchor: "left", font: { size: 17, color: text } },
      paper_bgcolor: charts.colour("--surface"),
      plot_bgcolor: charts.colour("--surface"),
      showlegend: true,
      legend: { orientation: "h", y: -0.12, font: { size: 12, color: text } },
      margin: { ...graph.layout.margin, t: 78, r: 24, b: 84 },
    };
    const drawing = await window.Plotly.toImage({ data: graph.data, layout }, { format: "svg", ...picture, height });
    save(await painted(drawing, height), fileName(chart, "png"));
  };

  // The values as drawn: of this time, in these steps.
  const csv = (chart) => {
    const there = new URL(charts.whole().csv[chart], location.href);
    there.searchParams.set("from", firstOf(chart) / 1000);
    there.searchParams.set("to", lastOf(chart) / 1000);
    save(there, fileName(chart, "csv"));
  };

  const copyLink = async (chart, button) => {
    const there = new URL(location.href);
    there.searchParams.set("from", Math.floor(firstOf(chart) / 1000));
    there.searchParams.set("to", Math.ceil(lastOf(chart) / 1000));
    there.hash = `card-${chart}`;
    try {
      await navigator.clipboard.writeText(there);
      button.textContent = button.dataset.done;
    } catch {
      // Without a clipboard (plain http from afar) a person copies it from here.
      window.prompt(button.dataset.link, there);
    }
  };

  const close = (menu) => {
    menu.open = false;
    menu.querySelector("summary").focus();
  };

  document.addEventListener("click", ({ target }) => {
    for (const menu of document.querySelectorAll(".chart-menu[open]")) if (!menu.contains(target)) menu.open = false;
    const button = target.closest("[data-png], [data-csv], [data-link]");
    const { png: picked, csv: valued, link, chart } = button?.dataset ?? {};
    if (!button || !figureOf(chart)) return;
    if (picked !== undefined) png(chart);
    else if (valued !== undefined) csv(chart);
    else if (link !== undefined) return copyLink(chart, button);
    const menu = button.closest(".chart-menu");
    if (menu) close(menu);
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && event.target.closest(".chart-menu[open]");
    if (menu) close(menu);
  });
})();
