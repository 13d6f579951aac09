// Copies the text of the element that a button names. Without a clipboard (plain http from afar) it selects the text.
(() => {
  "use strict";
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const text = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = button.dataset.done;
    } catch {
      window.getSelection().selectAllChildren(text);
    }
  });
})();

// The shell lines beside a form say the reason that is typed there.
(() => {
  "use strict";
  document.addEventListener("input", (event) => {
    // Elsewhere a reason is what refusals are filtered by.
    if (event.target.name !== "reason" || event.target.form?.method !== "post") return;
    // The line stands between single quotes, which encodeURIComponent leaves as they are.
    const reason = encodeURIComponent(event.target.value.trim() || "WHY").replaceAll("'", "%27");
    for (const line of document.querySelectorAll(".curl pre")) {
      // Of each call the address: its body may speak of other reasons, as an expression does.
      line.textContent = line.textContent.replace(/(\/api\/v1\/[^\s']*[?&]reason=)[^&']*/g, (_, call) => call + reason);
    }
  });
})();

// A folded part that a person has opened stays open when its panel is loaded anew.
(() => {
  "use strict";
  let opened = [];
  document.addEventListener("htmx:beforeSwap", () => {
    opened = [...document.querySelectorAll("details[id][open]")].map((folded) => folded.id);
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  });
})();

// Who moves by keyboard stays at the same link or button when its panel is loaded anew. What has an id htmx sees to.
(() => {
  "use strict";
  const like = (panel, { tagName, href, textContent }) =>
    [...panel.querySelectorAll(tagName)].filter((each) => each.href === href && each.textContent === textContent);
  let left = null;
  document.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
    const focused = document.activeElement;
    const isWithin = focused !== target && target.contains(focused) && !focused.id;
    left = isWithin ? { target, focused, place: like(target, focused).indexOf(focused) } : null;
  });
  document.addEventListener("htmx:afterSwap", () => {
    // One that is put in the place of its panel is another element.
    const panel = left?.target.isConnected ? left.target : document.getElementById(left?.target.id);
    if (panel && !left.focused.isConnected) like(panel, left.focused)[left.place]?.focus({ preventScroll: true });
    left = null;
  });
})();

// The page that is open is seen in the navigation and among its tabs, which move by themselves: down, and sideways on a
// phone.
(() => {
  "use strict";
  for (const here of document.querySelectorAll(".nav [aria-current], .tabs [aria-current]")) {
    const strip = here.closest(".nav, .tabs");
    strip.scrollLeft = here.offsetLeft - (strip.clientWidth - here.offsetWidth) / 2;
    if (here.offsetTop + here.offsetHeight > strip.clientHeight) strip.scrollTop = here.offsetTop - strip.clientHeight / 2;
  }
})();

// A panel that the server does not answer, or refuses, is greyed and says of when it is, until it comes again.
(() => {
  "use strict";
  const { late } = document.currentScript.dataset;
  const opened = Date.now();
  const cameAt = new Map();
  // A panel with an id may be another element by now.
  const known = (panel) => panel.id || panel;
  const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
  document.addEventListener("htmx:afterRequest", ({ detail: { elt: panel, successful } }) => {
    if (panel.matches("input, form")) return;
    panel.classList.toggle("late", !successful);
    if (successful) cameAt.set(known(panel), Date.now());
    else if (!panel.querySelector(":scope > .late-note")) {
      const note = document.createElement("p");
      note.className = "note warn late-note";
      note.setAttribute("role", "status");
      note.textContent = late.replace("{time}", clock(cameAt.get(known(panel)) ?? opened));
      panel.prepend(note);
    }
  });
})();
