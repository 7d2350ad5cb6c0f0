// The value of a setting as a person reads it, and the words about it.

import * as format from "./format.js";
import { html } from "./vendor/htm-preact.js";

const NO_LIMIT = "9223372036854775807";

// 7 d of 604800000: what the number means, or "" where it says so itself.
export function meaning(name, value) {
  if (value === NO_LIMIT || (value === "-1" && /retention|bytes/.test(name))) return "no limit";
  const number = Number(value);
  if (!/^\d+$/.test(value ?? "") || number < 1_000) return "";
  if (/\.ms$|_ms$/.test(name)) return format.duration(number / 1_000);
  return /bytes/.test(name) ? format.bytes(number) : "";
}

// Words in `backticks` are code.
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
}

export const valueText = (value) =>
  value === null || value === undefined ? "(secret)" : value === "" ? "(empty)" : value;
