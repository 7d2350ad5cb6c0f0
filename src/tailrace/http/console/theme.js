// Light or dark. Runs before the first paint, so that nobody is blinded for a moment.
//
// "auto" follows the system. The choice is kept in this browser; where it cannot be (storage is switched
// off) it holds until the page is left.
(() => {
  "use strict";
  const KEY = "tailrace.theme";
  const CHOICES = ["auto", "light", "dark"];
  const system = matchMedia("(prefers-color-scheme: dark)");
  const watchers = new Set();

  const read = () => {
    try {
      const kept = localStorage.getItem(KEY);
      return CHOICES.includes(kept) ? kept : "auto";
    } catch {
      return "auto";
    }
  };

  let choice = read();

  const apply = () => {
    const dark = choice === "dark" || (choice === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    for (const watcher of watchers) watcher(choice);
  };

  window.tailraceTheme = {
    choices: CHOICES,
    get choice() {
      return choice;
    },
    choose(wanted) {
      choice = wanted;
      try {
        localStorage.setItem(KEY, wanted);
      } catch {
        // Not kept: the choice holds for this page.
      }
      apply();
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
  system.addEventListener("change", apply);
  addEventListener("storage", (event) => {
    if (event.key !== KEY) return;
    choice = read();
    apply();
  });
  apply();
})();
