// The legend of each chart: the newest value of each line, as text. What is older than its interval says its age.
(() => {
  "use strict";
  const { more: moreText, ago: agoText, at: atText } = document.currentScript.dataset;
  const language = document.documentElement.lang;

  // As the figures' own formats read on hover.
  const plain = (value, digits) => value.toLocaleString(language, { maximumSignificantDigits: digits });
  const readable = (value, { unit, reads }) => {
    if (value === null || value === undefined) return "–";
    if (reads === "whole") return `${value.toLocaleString(language, { maximumFractionDigits: 0 })} ${unit}`;
    if (reads === "plain") return plain(value, 3);
    if (reads === "seconds" && value > 0 && value < 1) return `${plain(value * 1000, 3)} ms`;
    const [size, prefix] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => value >= least) ?? [1, ""];
    if (reads === "prefixed") return `${plain(value / size, 3)} ${prefix}${unit}`;
    return `${plain(value, 3)} ${unit}`;
  };

  const lasted = (ms) => {
    // Pages say "6 dk", where the browser's own short form is "6 dk.".
    const [size, unit] = [[86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"]].find(([least]) => ms >= 2 * least) ?? [1000, "second"];
    return new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: "short", maximumFractionDigits: 0 }).format(ms / size).replace(/\.$/, "");
  };
  const clock = (ms) => new Date(ms).toISOString().slice(11, 16);

  const part = (type, props, ...children) => ({ type, namespace: "dash_html_components", props: { ...props, children } });

  const item = (swatch, color, name, value, age) =>
    part(
      "Li",
      { className: age ? "stale" : "" },
      part("Span", { className: `swatch ${swatch}`, style: { color } }),
      part("Span", { className: "quiet" }, name),
      " ",
      part("Strong", {}, value),
      ...(age ? [" ", part("Span", { className: "age" }, age)] : []),
    );

  // Of one line: its newest value, and how old that is where later points have none.
  const newest = ({ x, y }, isLive) => {
    const at = y.findLastIndex((value) => value !== null);
    if (at < 0 || at === y.length - 1) return [y[at], ""];
    return [y[at], isLive ? agoText.replace("{age}", lasted(Date.now() - x[at])) : atText.replace("{time}", clock(x[at]))];
  };

  // As components of Dash. `isLive`: the chart goes on with the clock.
  const legend = ({ data, layout: { meta, shapes } }, isLive) => {
    if (!data.length) return [];
    const items = data.map((trace) => {
      const [value, age] = newest(trace, isLive);
      return item(trace.line.dash, trace.line.color, trace.name, readable(value, meta), age);
    });
    const limits = meta.thresholds.map(({ text, value }, at) => item("dash", shapes[at].line.color, text, readable(value, meta)));
    const more = meta.hidden ? [part("Li", { className: "quiet" }, moreText.replace("{number}", meta.hidden))] : [];
    return [...items, ...limits, ...more];
  };

  window.headworks = Object.assign(window.headworks ?? {}, { legend, lasted });
})();
