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

// The shell line beside a form says the reason that is typed there.
(() => {
  "use strict";
  document.addEventListener("input", (event) => {
    if (event.target.name !== "reason") return;
    // The line stands between single quotes, which encodeURIComponent leaves as they are.
    const reason = encodeURIComponent(event.target.value.trim() || "WHY").replaceAll("'", "%27");
    for (const line of document.querySelectorAll(".curl pre")) {
      line.textContent = line.textContent.replace(/reason=[^&']*/, () => `reason=${reason}`);
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

// The page that is open is seen in the navigation, which moves by itself: down, and sideways on a phone.
(() => {
  "use strict";
  const here = document.querySelector(".nav [aria-current]");
  const strip = here?.closest(".nav");
  if (!strip) return;
  strip.scrollLeft = here.offsetLeft - (strip.clientWidth - here.offsetWidth) / 2;
  if (here.offsetTop + here.offsetHeight > strip.clientHeight) strip.scrollTop = here.offsetTop - strip.clientHeight / 2;
})();
