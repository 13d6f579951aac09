// What happened, on every chart: a thin line at its moment, with a shape and a word above it. Where words would lie over
// each other they stand as one, with their number. The page lists all of them too, for the keyboard and for reading.
(() => {
  "use strict";
  const { more: moreText, none: noneText } = document.currentScript.dataset;
  const panel = document.getElementById("marks");
  const kinds = document.getElementById("mark-kinds");
  const tip = document.getElementById("mark-told");
  // Of the font in which words stand above a chart.
  const characterPixels = 6.3;
  const gapPixels = 6;
  const saidAtMost = 8;

  const marks = new Map();
  let changed = () => {};
  let marked = () => {};
  let range = [-Infinity, Infinity];

  // Plotly reads tags in texts.
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
  const said = ({ who, why }) => [who, why].filter(Boolean).join(": ");

  const hidden = () => new Set([...kinds.querySelectorAll("input:not(:checked)")].map(({ value }) => value));

  // Those that are shown, in the order of time.
  const shown = () => {
    const not = hidden();
    return [...marks.values()]
      .filter(({ kind, at }) => !not.has(kind) && at >= range[0] && at <= range[1])
      .sort((one, other) => one.at - other.at);
  };

  const word = (group) =>
    group.length === 1
      ? `${group[0].shape} ${group[0].head}`
      : `${[...new Set(group.map(({ shape }) => shape))].slice(0, 3).join("")} ${group.length}`;

  // From where to where the word of a group reaches, in pixels: right of its line, or left of it at the end of the axis.
  const reach = (group, pixelOf, width) => {
    const at = pixelOf(group[0].at);
    const long = word(group).length * characterPixels;
    return at + long <= width ? [at, at + long] : [width - long, width];
  };

  const grouped = (found, pixelOf, width) => {
    const groups = [];
    for (const mark of found) {
      groups.push([mark]);
      while (groups.length > 1) {
        const [before, last] = groups.slice(-2);
        if (reach(before, pixelOf, width)[1] + gapPixels < reach(last, pixelOf, width)[0]) break;
        groups.splice(-2, 2, [...before, ...last]);
      }
    }
    return groups;
  };

  // What a chart's layout gets: `from` and `to` of its axis (ms), its plot's width (pixels), and the colours to draw in.
  const over = (from, to, width, { line, text }) => {
    const pixelOf = (at) => ((at - from) / (to - from)) * width;
    const found = shown().filter(({ at }) => at >= from && at <= to);
    const places = new Map(found.map(({ at }) => [Math.round(pixelOf(at)), at]));
    const shapes = [...places.values()].map((at) => ({
      type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, layer: "below",
      line: { color: line, width: 1, dash: "dot" },
    }));
    const annotations = grouped(found, pixelOf, width).map((group) => {
      const [begin] = reach(group, pixelOf, width);
      return {
        // By which the mouse finds it.
        name: group.map(({ id }) => id).join(" "),
        text: escaped(word(group)), captureevents: true, showarrow: false,
        xref: "paper", x: begin / width, xanchor: "left", yref: "paper", y: 1, yanchor: "bottom",
        align: "left", borderpad: 1, font: { size: 11, color: text },
      };
    });
    return { shapes, annotations };
  };

  const element = (name, className, ...children) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
  };

  const row = (mark) => {
    const link = element("a", "", mark.says);
    link.href = mark.page;
    const time = element("time", "number", `${new Date(mark.at).toISOString().slice(0, 10)} ${clock(mark.at)}`);
    time.dateTime = new Date(mark.at).toISOString();
    const shape = element("span", `mark-shape ${mark.kind}`, mark.shape);
    shape.setAttribute("aria-hidden", "true");
    const why = said(mark);
    const made = element("li", "", time, shape, element("span", "words", link, ...(why ? [" ", element("span", "quiet", why)] : [])));
    made.dataset.mark = mark.id;
    return made;
  };

  const list = () => {
    const found = shown().reverse();
    panel.querySelector("[data-count]").textContent = found.length;
    const rows = found.length ? found.map(row) : [element("li", "quiet", noneText)];
    panel.querySelector("ol").replaceChildren(...rows);
  };

  // A click: the page of one; of several, the list.
  const open = (name) => {
    const ids = name.split(" ");
    if (ids.length === 1) return location.assign(marks.get(ids[0]).page);
    panel.open = true;
    const rows = [...panel.querySelectorAll("li")].filter(({ dataset }) => ids.includes(dataset.mark));
    for (const each of panel.querySelectorAll("li")) each.classList.toggle("chosen", rows.includes(each));
    rows[0]?.querySelector("a").focus();
    rows[0]?.scrollIntoView({ block: "center" });
  };

  // What a group says is read beside it, wherever its chart ends.
  const tell = (group) => {
    const rows = group.slice(0, saidAtMost).map((mark) => {
      const rest = said(mark);
      return element("p", "", element("span", "number quiet", clock(mark.at)), ` ${mark.shape} ${mark.says}`, ...(rest ? [element("span", "quiet", ` · ${rest}`)] : []));
    });
    if (group.length > saidAtMost) rows.push(element("p", "quiet", moreText.replace("{number}", group.length - saidAtMost)));
    tip.replaceChildren(...rows);
  };

  document.addEventListener("mouseover", ({ target }) => {
    const word = target.closest?.(".infolayer .annotation");
    const shownIn = word?.closest(".js-plotly-plot");
    const ids = shownIn?.layout.annotations[word.dataset.index]?.name?.split(" ") ?? [];
    const group = ids.map((id) => marks.get(id)).filter(Boolean);
    tip.hidden = group.length === 0;
    if (tip.hidden) return;
    tell(group);
    const place = word.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(place.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${place.bottom + 4}px`;
  });
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  const add = (more) => {
    for (const mark of more) marks.set(mark.id, mark);
    list();
    marked();
  };

  // All that there are, of the time from `from` to `to` (ms).
  const set = ({ found, cut, curl }, from, to) => {
    marks.clear();
    range = [from, to];
    panel.querySelector("[data-cut]").textContent = cut;
    panel.querySelector("pre").textContent = curl;
    add(found);
  };

  // The choice stands in the address, so that a link shows the same; the form keeps it.
  kinds.addEventListener("change", (event) => {
    event.stopPropagation();
    const address = new URL(location.href);
    const names = [...hidden()].join(",");
    names ? address.searchParams.set("hide", names) : address.searchParams.delete("hide");
    history.replaceState(history.state, "", address);
    document.querySelector("#choices [name=hide]").value = names;
    list();
    changed();
    marked();
  });

  window.headworks = Object.assign(window.headworks ?? {}, {
    marks: {
      set, add, over, open,
      moved: (from, to) => { range = [from, to]; list(); },
      onChange: (action) => { changed = action; },
      // Also of new ones.
      onMarked: (action) => { marked = action; },
    },
  });
})();
