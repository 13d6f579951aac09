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
