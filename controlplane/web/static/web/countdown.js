// Counts down what ends at a moment that its server named. How far that server's clock is off is told by the page.
(() => {
  "use strict";
  const offsets = new WeakMap();
  const two = (number) => String(number).padStart(2, "0");

  const show = (element) => {
    if (!offsets.has(element)) offsets.set(element, Date.parse(element.dataset.now) - Date.now());
    const left = Math.max(0, Math.round((Date.parse(element.dateTime) - Date.now() - offsets.get(element)) / 1000));
    const hours = Math.floor(left / 3600);
    element.textContent = `${hours}:${two(Math.floor(left / 60) % 60)}:${two(left % 60)}`;
  };

  const tick = () => document.querySelectorAll("time[data-now]").forEach(show);
  setInterval(tick, 1000);
  document.addEventListener("htmx:afterSwap", tick);
  tick();
})();
