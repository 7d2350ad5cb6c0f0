// Fields of forms and of toolbars, each with its label.

import { Icon } from "./icon.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";

const TYPING_MS = 500;

export function Field({ label, hint, children }) {
  return html`<label class="field"><span>${label}</span>${children}${hint && html`<small>
    ${hint}</small>`}</label>`;
}

// Filters what is on the page as it is typed.
export function Filter({ value, onChange, label }) {
  return html`<label class="filter"><${Icon} name="search" /><span class="off-screen">${label}</span>
    <input type="search" data-search placeholder=${label} value=${value} spellcheck="false" autocomplete="off"
      onInput=${(event) => onChange(event.target.value)} /><kbd aria-hidden="true">/</kbd></label>`;
}

// A text that asks the broker: told when typing pauses, or at once with Enter.
export function SearchField({ value, onChange, label, isFirst = false }) {
  const [text, setText] = useState(value);
  const told = useRef(value);
  const tell = (wanted) => {
    if (wanted === told.current) return;
    told.current = wanted;
    onChange(wanted);
  };
  useEffect(() => {
    if (value === told.current) return; // it is our own, and more may have been typed since
    told.current = value;
    setText(value);
  }, [value]);
  useEffect(() => {
    const timer = setTimeout(() => tell(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const press = (event) => event.key === "Enter" && tell(text);
  return html`<label class="filter ${isFirst ? "" : "narrow"}"><${Icon} name=${isFirst ? "search" : "key"} />
    <span class="off-screen">${label}</span>
    <input type="search" data-search=${isFirst ? "" : null} placeholder=${label} value=${text}
      spellcheck="false"
      autocomplete="off" onInput=${(event) => setText(event.target.value)} onKeyDown=${press} /></label>`;
}

// One of a few: buttons side by side.
export function Choice({ label, options, value, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(
      ([
        name,
        text,
        icon,
      ]) => html`<button type="button" key=${name} aria-pressed=${name === value ? "true" : "false"}
      onClick=${() => onChange(name)}>${icon && html`<${Icon} name=${icon} />`}${text}</button>`,
    )}
  </div>`;
}

export function Select({ label, value, onChange, options }) {
  return html`<select aria-label=${label} value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([name, text]) => html`<option key=${name} value=${name}
      selected=${String(name) === String(value)}>${text}</option>`)}
  </select>`;
}
