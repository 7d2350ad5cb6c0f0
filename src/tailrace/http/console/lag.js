// Lag over time of a group or a subscription, as far as it was measured.

import { Chart } from "./chart.js";
import * as format from "./format.js";
import { cut } from "./history.js";
import { useResource } from "./resource.js";
import { html } from "./vendor/htm-preact.js";

const SHOWN_MINUTES = 60;

export function LagChart({ address, lag }) {
  const past = useResource(address, { every_ms: 5_000 });
  if (!past.data?.lag?.length) return null;
  const { end_ms, interval_ms, note, values } = cut(
    { ...past.data, series: { lag: past.data.lag } },
    SHOWN_MINUTES,
  );
  return html`<div class="charts one"><${Chart} title="Lag"
    lines=${[{ label: "records", values: values("lag") }]} end_ms=${end_ms}
    interval_ms=${interval_ms} format=${format.compact} current=${[lag]} note=${note} /></div>`;
}
