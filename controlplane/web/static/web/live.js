// One stream from the server while the tab is seen. Each message of it becomes the event "convergence" on <body>, and a
// newer revision "published", another number of incidents that fire "firing" before it: panels name them in hx-trigger.
// The header's pill and count follow the data.
//
// A page whose own script wants more of the server (`data-own-stream`) has no second stream: by `headworks.live` it says
// where one is that tells of that too. So a browser with several tabs keeps within HTTP/1.1's six connections.
(() => {
  "use strict";
  const pill = document.querySelector("[data-live]");
  if (!pill) return;
  // The server ends each stream now and then; only a longer silence is worth a word.
  const patienceMs = 3000;
  // After an answer that is no stream (a restart behind a proxy) the browser does not try again by itself.
  const reopenMs = 5000;
  // Of the page's own script: where its stream is, what it takes by event, and what it does at each turn.
  const own = { address: () => null, takes: {}, heard: () => {}, lost: () => {}, closed: () => {} };
  let waits = document.querySelector("[data-own-stream]") !== null;
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

  const heard = () => {
    clearTimeout(silence);
    silence = 0;
    own.heard();
  };

  const take = (message) => {
    heard();
    const now = JSON.parse(message.data);
    show(now.look, pill.dataset.told.replace("{applied}", now.applied).replace("{targets}", now.targets));
    count(now.firing);
    if (now.firing !== firing) document.body.dispatchEvent(new CustomEvent("firing"));
    firing = now.firing;
    if (now.revision !== revision) document.body.dispatchEvent(new CustomEvent("published"));
    revision = now.revision;
    document.body.dispatchEvent(new CustomEvent("convergence"));
  };

  const lost = () => {
    show("lost", pill.dataset.lost);
    own.lost();
  };

  const open = () => {
    if (source || waits || document.hidden) return;
    const opened = new EventSource(own.address() ?? pill.dataset.stream);
    source = opened;
    opened.addEventListener("open", heard);
    opened.addEventListener("convergence", take);
    for (const [name, taken] of Object.entries(own.takes)) {
      opened.addEventListener(name, (message) => {
        heard();
        taken(JSON.parse(message.data));
      });
    }
    opened.addEventListener("error", () => {
      silence ||= setTimeout(lost, patienceMs);
      if (opened.readyState !== EventSource.CLOSED) return;
      own.closed();
      setTimeout(() => source === opened && reopen(), reopenMs);
    });
  };

  const close = () => {
    source?.close();
    source = null;
  };

  const reopen = () => {
    close();
    open();
  };

  // `start` opens the page's stream, or one from another place where there is one.
  const start = (page) => {
    Object.assign(own, page);
    waits = false;
    reopen();
  };
  window.headworks = Object.assign(window.headworks ?? {}, { live: { start } });

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  // A page kept for the back button must not hold a connection.
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) open();
  });
  open();
})();
