// A rate over the last while, small enough for a row of a table.

import { perSecond } from "./format.js";
import { html } from "./vendor/htm-preact.js";

const WIDTH = 88;
const HEIGHT = 22;
const EDGE = 2;

export function Sparkline({ values, what = "records in" }) {
  const known = (values ?? []).map((value) => value ?? 0);
  if (known.length < 2) return html`<span class="faint">–</span>`;
  const most = Math.max(...known, 0);
  const label = `${what}: ${perSecond(known.at(-1))} now, at most ${perSecond(most)}`;
  const x = (at) => (at / (known.length - 1)) * WIDTH;
  const y = (value) => HEIGHT - EDGE - (most ? (value / most) * (HEIGHT - 2 * EDGE) : 0);
  const line = known.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return html`<svg class="sparkline ${most ? "" : "is-flat"}" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img"
    aria-label=${label}
    preserveAspectRatio="none"><title>${label}</title>
    <polygon points="0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}" /><polyline points=${line} /></svg>`;
}
