// The bytes of a key or a value, shown as text, as JSON that folds, or as hex.
//
// The API gives text where the bytes are UTF-8 and base64 where they are not. Numbers that JavaScript
// cannot hold are shown as they were written: a console that rounds an id is worse than none.

import { Choice } from "./field.js";
import * as format from "./format.js";
import { html, useMemo, useState } from "./vendor/htm-preact.js";

const HEX_BYTES_MAX = 16_384;
const TREE_CHARS_MAX = 400_000;
const OPEN_DEPTH = 2;
const FOLD_OVER = 60;
const CHILDREN_MAX = 1_000;

export function bytesOf(text, encoding) {
  if (text === null || text === undefined) return null;
  if (encoding !== "base64") return new TextEncoder().encode(text);
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return new TextEncoder().encode(text);
  }
}

export function Payload({ title, text, encoding, children }) {
  const json = useMemo(() => readJson(text, encoding), [text, encoding]);
  const usual = encoding === "base64" ? "hex" : json ? "json" : "text";
  const [chosen, setChosen] = useState(null);
  const form = chosen ?? usual;
  const size = useMemo(() => bytesOf(text, encoding)?.length ?? 0, [text, encoding]);
  const options = [["text", "Text"], ...(json ? [["json", "JSON"]] : []), ["hex", "Hex"]];
  return html`<section class="section">
    <div class="row-between"><h3>${title} <span class="faint">
    ${text === null ? "" : format.bytes(size)}</span></h3>
      <div class="buttons">${text !== null && html`<${Choice} label="Show ${title} as" options=${options}
        value=${form} onChange=${setChosen} />`}${children}</div>
    </div>
    <div class="payload">${shown(form, text, encoding, json)}</div>
  </section>`;
}

function shown(form, text, encoding, json) {
  if (text === null || text === undefined) return html`<span class="faint">null</span>`;
  if (form === "json" && json)
    return html`<div class="json"><${Node} value=${json.value} depth=${0} /></div>`;
  if (form === "hex") return html`<pre class="hex" tabindex="0">${hexText(bytesOf(text, encoding))}</pre>`;
  const plain = encoding === "base64" ? new TextDecoder().decode(bytesOf(text, encoding)) : text;
  return html`<pre tabindex="0">${plain === "" ? html`<span class="faint">empty</span>` : plain}</pre>`;
}

// ---- JSON

class Exact {
  constructor(source) {
    this.source = source;
  }
}

// {value} if the text is an object or a list; other JSON is as readable as text.
export function readJson(text, encoding) {
  if (
    typeof text !== "string" ||
    encoding === "base64" ||
    text.length > TREE_CHARS_MAX ||
    !/^\s*[[{]/.test(text)
  )
    return null;
  try {
    return { value: JSON.parse(text, exactly) };
  } catch {
    return null;
  }
}

function exactly(_key, value, context) {
  return typeof value === "number" && context?.source && String(value) !== context.source
    ? new Exact(context.source)
    : value;
}

// What is folded is not drawn: a list of a hundred thousand numbers would hold up the page.
function Node({ name, value, depth }) {
  const [isOpen, setOpen] = useState(null);
  const label = name === undefined ? "" : html`<span class="name">${name}</span>${": "}`;
  if (value === null || typeof value !== "object" || value instanceof Exact) {
    return html`<div class="leaf">${label}${leaf(value)}</div>`;
  }
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  const [open, close] = isList ? "[]" : "{}";
  if (!entries.length) return html`<div class="leaf">${label}${open}${close}</div>`;
  const isUnfolded = isOpen ?? (depth < OPEN_DEPTH && entries.length <= FOLD_OVER);
  const left = entries.length - CHILDREN_MAX;
  return html`<details open=${isUnfolded} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>${label}${open}<span
      class="folded"> ${entries.length} ${isList ? "items" : "fields"} ${close}</span></summary>
    <div>${isUnfolded && entries.slice(0, CHILDREN_MAX).map(([each, inner]) => html`<${Node} key=${each}
      name=${isList ? undefined : each} value=${inner} depth=${depth + 1} />`)}
      ${isUnfolded && left > 0 && html`<div class="leaf faint">… and ${format.count(left)} more, in the
        text</div>`}</div>
    <span class="leaf">${close}</span>
  </details>`;
}

function leaf(value) {
  if (value instanceof Exact) return html`<span class="number">${value.source}</span>`;
  if (typeof value === "string") return html`<span class="text">"${value}"</span>`;
  if (typeof value === "number") return html`<span class="number">${value}</span>`;
  return html`<span class="word">${String(value)}</span>`;
}

// ---- hex

//  00000000  7b 22 61 22 3a 20 31 7d                          |{"a": 1}|
export function hexText(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_BYTES_MAX); at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = part
      .map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "."))
      .join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(47)}  |${letters}|`);
  }
  if (bytes.length > HEX_BYTES_MAX) lines.push(`… and ${format.bytes(bytes.length - HEX_BYTES_MAX)} more`);
  return lines.join("\n");
}
