// Short news at the foot of the page: something was done. They go by themselves; a few at most are shown.

import { html, useEffect, useState } from "./vendor/htm-preact.js";

const SHOWN_MS = 5_000;
const SHOWN_MAX = 3;
let shown = [];
let counter = 0;
const watchers = new Set();

export function tellUser(text, { tone = "ok" } = {}) {
  const toast = { id: (counter += 1), text, tone };
  update([...shown, toast].slice(-SHOWN_MAX));
  setTimeout(() => update(shown.filter((each) => each.id !== toast.id)), SHOWN_MS);
}

function update(toasts) {
  shown = toasts;
  for (const watcher of watchers) watcher(toasts);
}

export function Toasts() {
  const [toasts, setToasts] = useState(shown);
  useEffect(() => {
    watchers.add(setToasts);
    return () => watchers.delete(setToasts);
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.map((each) => html`<div key=${each.id} class="toast ${each.tone}">${each.text}</div>`)}
  </div>`;
}
