// The measured past of a broker, a topic or a group, cut to the time that is shown.

import * as format from "./format.js";

const SPAN_MS_MIN = 2 * 60_000;

export const RANGES = [
  ["5", "5 min"],
  ["15", "15 min"],
  ["60", "1 h"],
];

// {end_ms, interval_ms, note, values(name)} of a "history" of the API: so many minutes of it, with null
// where nothing was measured yet, so that a young broker's figures come in from the right.
export function cut(history, minutes) {
  const interval_ms = history?.interval_ms ?? 5_000;
  const series = history?.series ?? {};
  const samples = (span_ms) => Math.max(2, Math.round(span_ms / interval_ms));
  const measured = Math.max(0, ...Object.values(series).map((values) => values.length));
  const shown = Math.min(samples(minutes * 60_000), Math.max(measured, samples(SPAN_MS_MIN)));
  return {
    end_ms: history?.end_ms ?? 0,
    interval_ms,
    note: `last ${format.duration((shown * interval_ms) / 1_000)}`,
    values: (name) => {
      const known = (series[name] ?? []).slice(-shown);
      return [...Array(shown - known.length).fill(null), ...known];
    },
  };
}
