// Copying text. The clipboard needs a secure page (localhost is one); elsewhere the old way is tried.

import { Icon } from "./icon.js";
import { html, useEffect, useState } from "./vendor/htm-preact.js";

const THANKS_MS = 1_500;

export function CopyButton({ text, label, title = `Copy ${label}` }) {
  const [isDone, setDone] = useState(false);
  useEffect(() => {
    if (!isDone) return undefined;
    const timer = setTimeout(() => setDone(false), THANKS_MS);
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = async () => setDone(await copyText(typeof text === "function" ? text() : text));
  return html`<button type="button" class="button small" title=${title} onClick=${copy}>
    <${Icon} name=${isDone ? "check" : "copy"} />${isDone ? "Copied" : label}
  </button>`;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyThroughSelection(text);
  }
}

function copyThroughSelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "off-screen";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

// A command with a button to copy it.
export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${CopyButton} text=${text} label="Copy" /></div>`;
}
