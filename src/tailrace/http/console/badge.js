// A word with a dot: the state of something, told by the word first and by the colour second.

import { html } from "./vendor/htm-preact.js";

const TONES = {
  ok: "ok",
  healthy: "ok",
  stable: "ok",
  active: "ok",
  running: "ok",
  finished: "ok",
  warning: "warn",
  degraded: "warn",
  paused: "warn",
  preparingrebalance: "warn",
  completingrebalance: "warn",
  problem: "bad",
  unhealthy: "bad",
  failed: "bad",
  lost: "bad",
  dead: "bad",
  stale: "bad",
};

export const toneOf = (state) =>
  TONES[
    String(state)
      .toLowerCase()
      .replace(/[\s_-]/g, "")
  ] ?? "quiet";

export function Badge({ state, tone }) {
  return html`<span class="badge ${tone ?? toneOf(state)}"><i></i>${state}</span>`;
}
