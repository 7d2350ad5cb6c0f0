// The keyboard: / searches, g and a letter goes somewhere, ? shows the keys. Typing in a field is never
// taken.

import { Dialog } from "./dialog.js";
import { go, href } from "./router.js";
import { html, useEffect, useState } from "./vendor/htm-preact.js";

const SECOND_KEY_MS = 1_500;
const PLACES = {
  o: ["Overview", []],
  t: ["Topics", ["topics"]],
  g: ["Groups", ["groups"]],
  s: ["Subscriptions", ["subscriptions"]],
  x: ["Transactions", ["transactions"]],
  p: ["Pipelines", ["pipelines"]],
  m: ["Metrics", ["charts"]],
  c: ["Cluster", ["cluster"]],
};

export function Keys() {
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    let began_ms = -Infinity;
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (document.querySelector("dialog[open]")) return;
      const isSecond = performance.now() - began_ms < SECOND_KEY_MS;
      began_ms = -Infinity;
      if (isSecond && PLACES[event.key]) go(href(PLACES[event.key][1]));
      else if (event.key === "g") began_ms = performance.now();
      else if (event.key === "/") focusSearch();
      else if (event.key === "?") setShown(true);
      else return;
      event.preventDefault();
    };
    const leave = (event) => {
      if (event.key === "Escape" && event.target.matches?.("[data-search]")) event.target.blur();
    };
    addEventListener("keydown", press);
    addEventListener("keydown", leave);
    return () => {
      removeEventListener("keydown", press);
      removeEventListener("keydown", leave);
    };
  }, []);
  useEffect(() => {
    const show = () => setShown(true);
    addEventListener("tailrace-keys", show);
    return () => removeEventListener("tailrace-keys", show);
  }, []);
  return isShown ? html`<${KeyList} onClose=${() => setShown(false)} />` : null;
}

export const showKeys = () => dispatchEvent(new Event("tailrace-keys"));

function isTyping(target) {
  return (
    target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"))
  );
}

function focusSearch() {
  const search = document.querySelector("[data-search]");
  search?.focus();
  search?.select();
}

function KeyList({ onClose }) {
  const rows = [
    [["/"], "Search this page"],
    ...Object.entries(PLACES).map(([key, [title]]) => [["g", key], title]),
    [["Esc"], "Close a dialog, leave a field"],
    [["?"], "These keys"],
  ];
  return html`<${Dialog} title="Keyboard" onClose=${onClose}>
    <dl class="keys">${rows.map(([keys, what]) => html`<div><dt>${keys.map((key) => html`<kbd>
    ${key}</kbd>`)}</dt><dd>${what}</dd></div>`)}</dl>
  <//>`;
}
