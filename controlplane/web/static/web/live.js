// One stream from the server while the tab is seen. Each message becomes the event "convergence" on <body>, and a
// newer revision "published", another number of incidents that fire "firing" before it: panels name them in hx-trigger.
// The header's pill and count follow the data.
(() => {
  "use strict";
  const pill = document.querySelector("[data-live]");
  if (!pill) return;
  // The server ends each stream now and then; only a longer silence is worth a word.
  const patienceMs = 3000;
  // After an answer that is no stream (a restart behind a proxy) the browser does not try again by itself.
  const reopenMs = 5000;
  let source = null;
  let revision = null;
  let firing = null;
  let silence = 0;

  const show = (state, text) => {
    pill.dataset.live = state;
    pill.querySelector("[data-live-text]").textContent = text;
  };

  const count = (incidents) => {
    const badge = document.querySelector("[data-firing]");
    badge.hidden = incidents === 0;
    badge.querySelector("[data-firing-count]").textContent = incidents;
  };

  const take = (message) => {
    clearTimeout(silence);
    silence = 0;
    const now = JSON.parse(message.data);
    show(now.look, pill.dataset.told.replace("{applied}", now.applied).replace("{targets}", now.targets));
    count(now.firing);
    if (now.firing !== firing) document.body.dispatchEvent(new CustomEvent("firing"));
    firing = now.firing;
    if (now.revision !== revision) document.body.dispatchEvent(new CustomEvent("published"));
    revision = now.revision;
    document.body.dispatchEvent(new CustomEvent("convergence"));
  };

  const open = () => {
    if (source) return;
    const opened = new EventSource(pill.dataset.stream);
    source = opened;
    opened.addEventListener("convergence", take);
    opened.addEventListener("error", () => {
      silence ||= setTimeout(() => show("lost", pill.dataset.lost), patienceMs);
      if (opened.readyState !== EventSource.CLOSED) return;
      setTimeout(() => {
        if (source !== opened) return;
        close();
        open();
      }, reopenMs);
    });
  };

  const close = () => {
    source?.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  // A page kept for the back button must not hold a connection.
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) open();
  });
  if (!document.hidden) open();
})();
