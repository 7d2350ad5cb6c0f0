// What ran through a topic over the last while, as far as it was measured.

import { path } from "./api.js";
import { Chart } from "./chart.js";
import * as format from "./format.js";
import { cut } from "./history.js";
import { useResource } from "./resource.js";
import { html } from "./vendor/htm-preact.js";

const SHOWN_MINUTES = 60;
const LINES = [
  ["in", "records_in_per_s"],
  ["out", "records_out_per_s"],
];

export function TopicChart({ name }) {
  const { data } = useResource(path`/api/v1/metrics/topics/${name}`, { every_ms: 5_000 });
  if (!data?.history) return null;
  const past = cut(data.history, SHOWN_MINUTES);
  const known = LINES.filter(([, series]) => data.history.series?.[series]);
  if (!known.length) return null;
  return html`<div class="charts one"><${Chart} title="Records per second"
    lines=${known.map(([label, series]) => ({ label, values: past.values(series) }))}
    end_ms=${past.end_ms} interval_ms=${past.interval_ms} format=${format.rate} note=${past.note}
      current=${known.map(([, series]) => data[series])} /></div>`;
}
