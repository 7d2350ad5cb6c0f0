// The top of a page: where one is, its name, its figures, and what can be done.

import { html, useEffect } from "./vendor/htm-preact.js";

export function Heading({ title, trail = [], facts = [], children, badge }) {
  useEffect(() => {
    document.title = `${title} · Tailrace`;
  }, [title]);
  return html`<header class="heading">
    ${trail.length > 0 && html`<nav class="trail" aria-label="Where this is">
    ${trail.map(([text, address]) => html`<a href=${address}>${text}</a>`)}</nav>`}
    <div class="heading-line"><h1>${title}</h1>${badge}<div class="actions">${children}</div></div>
    ${facts.length > 0 && html`<${Facts} facts=${facts} />`}
  </header>`;
}

// Figures side by side: [["Records", "12,345"], ...]
export function Facts({ facts }) {
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>
    ${value}</dd></div>`)}</dl>`;
}

export function Tabs({ label, tabs }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map(([text, address, isHere]) => html`<a href=${address} aria-current=${isHere ? "page" : null}>
    ${text}</a>`)}
  </nav>`;
}
