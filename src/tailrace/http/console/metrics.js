// What the brokers measured over the last hour. The same and more is at /metrics, for Prometheus.

import { root } from "./api.js";
import { Chart } from "./chart.js";
import { Choice } from "./field.js";
import * as format from "./format.js";
import { Facts, Heading } from "./heading.js";
import { cut, RANGES } from "./history.js";
import { Loaded } from "./notice.js";
import { useResource } from "./resource.js";
import { changeQuery } from "./router.js";
import { html } from "./vendor/htm-preact.js";

const CHARTS = [
  [
    "Records per second",
    [
      ["in", "records_in_per_s"],
      ["out", "records_out_per_s"],
    ],
    format.rate,
  ],
  [
    "Bytes per second",
    [
      ["in", "bytes_in_per_s"],
      ["out", "bytes_out_per_s"],
    ],
    format.bytes,
  ],
  ["Produce, 99th percentile", [["p99", "produce_p99_ms"]], format.milliseconds],
  ["Consumer lag", [["records", "lag"]], format.compact],
  ["Disk", [["bytes", "disk_bytes"]], format.bytes],
  ["Memory", [["bytes", "memory_bytes"]], format.bytes],
  ["Processor", [["share of a core", "cpu_share"]], format.percent],
];

export function Metrics({ query }) {
  const brokers = useResource("/api/v1/metrics/brokers", { every_ms: 2_500 });
  const minutes = RANGES.some(([each]) => each === query.minutes) ? query.minutes : "15";
  return html`
    <${Heading} title="Metrics">
      <${Choice} label="Time shown" options=${RANGES} value=${minutes}
        onChange=${(each) => changeQuery({ minutes: each }, { replace: true })} />
      <a class="button" href="${root}/metrics" target="_blank" rel="noopener">For Prometheus</a>
    <//>
    <${Loaded} resource=${brokers}>${(data) =>
      data.brokers.map(
        (broker) => html`<${Broker} key=${broker.node_id} broker=${broker}
      minutes=${Number(minutes)} isOnly=${data.brokers.length === 1} />`,
      )}<//>`;
}

function Broker({ broker, minutes, isOnly }) {
  const past = cut(broker.history, minutes);
  return html`<section class="section">
    ${!isOnly && html`<header><h2>Node ${broker.node_id}</h2></header>`}
    <${Facts} facts=${factsOf(broker)} />
    <div class="charts two">${CHARTS.map(([title, lines, text]) => {
      const known = lines.map(([label, name]) => ({ label, values: past.values(name) }));
      return html`<${Chart} key=${title} title=${title} lines=${known} end_ms=${past.end_ms}
        interval_ms=${past.interval_ms} format=${text}
        current=${lines.map(([, name]) => broker[name])} />`;
    })}</div>
  </section>`;
}

function factsOf(broker) {
  const { kafka, native, http } = broker.connections ?? {};
  return [
    ["Records in", format.compact(broker.records_in_total)],
    ["Records out", format.compact(broker.records_out_total)],
    ["Requests", format.perSecond(broker.requests_per_s)],
    ["Errors", format.perSecond(broker.errors_per_s)],
    ["Produce, median", format.milliseconds(broker.produce_p50_ms)],
    ["Flush, p99", format.milliseconds(broker.flush_p99_ms)],
    ["Loop lag", format.milliseconds(broker.loop_lag_ms)],
    [
      "Connections",
      `${format.count(kafka)} Kafka, ${format.count(native)} native, ${format.count(http)} HTTP`,
    ],
    ["Live streams", format.count(broker.streams)],
    ["Disk free", format.bytes(broker.disk_free_bytes)],
  ];
}
