// The first page: how the cluster is in one sentence, what runs through it, and which topics are busy.

import { Badge, toneOf } from "./badge.js";
import { Chart } from "./chart.js";
import { Command } from "./copy.js";
import * as format from "./format.js";
import { cut } from "./history.js";
import { Empty, Failure, Skeleton, Stale } from "./notice.js";
import { useResource } from "./resource.js";
import { href } from "./router.js";
import { Sparkline } from "./sparkline.js";
import { Table } from "./table.js";
import { html, useEffect } from "./vendor/htm-preact.js";

const SHOWN_MINUTES = 15;
const TOP_COUNT = 8;

export function Overview() {
  const cluster = useResource("/api/v1/cluster", { every_ms: 10_000 });
  const health = useResource("/api/v1/cluster/health", { every_ms: 5_000 });
  const brokers = useResource("/api/v1/metrics/brokers", { every_ms: 2_500 });
  const topics = useResource("/api/v1/metrics/topics", { every_ms: 5_000 });
  useEffect(() => {
    document.title = "Overview · Tailrace";
  }, []);
  return html`
    <${Health} health=${health} cluster=${cluster.data} />
    <${Stale} resources=${[health, cluster, brokers, topics]} />
    <${Findings} findings=${health.data?.findings ?? []} />
    <${Flow} brokers=${brokers} />
    <${TopTopics} topics=${topics} cluster=${cluster.data} />`;
}

function Health({ health, cluster }) {
  const { data, error } = health;
  const isKnown = data && !error; // how the node was before it fell silent is no news of how it is
  const summary = isKnown ? data.summary : error ? unknownHealth(error) : "Looking…";
  return html`<header class="health ${isKnown ? toneOf(data.status) : ""}">
    <i aria-hidden="true"></i>
    <div><h1>${summary}</h1>${cluster && html`<p>${facts(cluster)}</p>`}</div>
  </header>`;
}

const unknownHealth = (error) => (error.status === 0 ? "The broker does not answer" : "The broker answers");

function facts(cluster) {
  const own = cluster.nodes?.find((node) => node.is_this) ?? cluster.nodes?.[0];
  return [
    format.plural(cluster.nodes?.length ?? 1, "node"),
    `${format.plural(cluster.topics, "topic")} with ${format.plural(cluster.partitions, "partition")}`,
    format.plural(cluster.groups, "group"),
    format.plural(cluster.subscriptions, "subscription"),
    own && `up ${format.duration(own.uptime_s)}`,
    `version ${cluster.version}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

function Findings({ findings }) {
  const bad = findings.filter((finding) => finding.status !== "ok");
  const fine = findings.filter((finding) => finding.status === "ok");
  if (!findings.length) return null;
  return html`<section class="section" aria-label="Checks">
    ${bad.length > 0 && html`<${FindingList} findings=${bad} />`}
    ${
      fine.length > 0 &&
      html`<details><summary>
        ${format.plural(fine.length, "check")} ${fine.length === 1 ? "is" : "are"} fine</summary>
      <${FindingList} findings=${fine} /></details>`
    }
  </section>`;
}

function FindingList({ findings }) {
  return html`<ul class="findings">${findings.map(
    (finding) => html`<li class=${toneOf(finding.status)}>
    <${Badge} state=${finding.check} tone=${toneOf(finding.status)} />
    <div>${finding.found}${finding.advice && html`<small>${finding.advice}</small>`}</div>
  </li>`,
  )}</ul>`;
}

function Flow({ brokers }) {
  const broker = brokers.data?.brokers?.[0];
  if (!broker) {
    if (brokers.error?.isAbsent) return null;
    return brokers.error
      ? html`<${Failure} error=${brokers.error} retry=${brokers.reload} />`
      : html`<${Skeleton} rows=${5} />`;
  }
  return html`<div class="charts">${overviewCharts(broker, SHOWN_MINUTES)}</div>`;
}

function overviewCharts(broker, minutes) {
  const past = cut(broker.history, minutes);
  const time = { end_ms: past.end_ms, interval_ms: past.interval_ms };
  const pair = (name) => [
    { label: "in", values: past.values(`${name}_in_per_s`) },
    { label: "out", values: past.values(`${name}_out_per_s`) },
  ];
  const one = (label, name) => [{ label, values: past.values(name) }];
  const now = (...names) => names.map((name) => broker[name]);
  return html`
    <${Chart} title="Records per second" lines=${pair("records")} ...${time} format=${format.rate}
      current=${now("records_in_per_s", "records_out_per_s")} note=${past.note} />
    <${Chart} title="Bytes per second" lines=${pair("bytes")} ...${time} format=${format.bytes}
      current=${now("bytes_in_per_s", "bytes_out_per_s")} />
    <${Chart} title="Produce, 99th percentile" lines=${one("p99", "produce_p99_ms")} ...${time}
      format=${format.milliseconds}
      current=${now("produce_p99_ms")} />
    <${Chart} title="Consumer lag" lines=${one("records", "lag")} ...${time} format=${format.compact}
      current=${now("lag")} />
    <${Chart} title="Disk" lines=${one("bytes", "disk_bytes")} ...${time} format=${format.bytes}
      current=${now("disk_bytes")}
      note="${format.bytes(broker.disk_free_bytes)} free" />
    <${Chart} title="Memory" lines=${one("bytes", "memory_bytes")} ...${time} format=${format.bytes}
      current=${now("memory_bytes")}
      note="${format.percent(broker.cpu_share)} of a core" />`;
}

function TopTopics({ topics, cluster }) {
  if (cluster && !cluster.topics) return html`<${FirstSteps} cluster=${cluster} />`;
  if (!topics.data) return null;
  const busiest = topics.data.topics
    .filter((each) => !each.name.startsWith("__"))
    .sort(
      (one, other) =>
        (other.records_in_per_s ?? 0) - (one.records_in_per_s ?? 0) || other.records - one.records,
    )
    .slice(0, TOP_COUNT);
  if (!busiest.length) return null;
  return html`<section class="section">
    <header><h2>Busiest topics</h2><a href=${href(["topics"])}>All topics</a></header>
    <${Table} label="Busiest topics" rows=${busiest} rowKey=${(row) => row.name}
      link=${(row) => href(["topics", row.name])}
      columns=${COLUMNS} />
  </section>`;
}

const COLUMNS = [
  {
    id: "topic",
    title: "Topic",
    width: "minmax(0, 2fr)",
    render: (row) => html`<span class="strong">${row.name}</span>`,
  },
  {
    id: "records",
    title: "Records",
    align: "end",
    wideOnly: true,
    render: (row) => format.count(row.records),
  },
  { id: "bytes", title: "Size", align: "end", wideOnly: true, render: (row) => format.bytes(row.bytes) },
  {
    id: "in",
    title: "In",
    align: "end",
    width: "86px",
    render: (row) => format.perSecond(row.records_in_per_s),
  },
  {
    id: "out",
    title: "Out",
    align: "end",
    width: "86px",
    wideOnly: true,
    render: (row) => format.perSecond(row.records_out_per_s),
  },
  {
    id: "line",
    title: "Trend",
    align: "end",
    width: "96px",
    render: (row) => html`<${Sparkline} values=${row.sparkline} />`,
  },
];

function FirstSteps({ cluster }) {
  const address = cluster.nodes?.find((node) => node.is_this)?.kafka;
  const where = address ? ` -b ${address}` : "";
  return html`<${Empty} title="No topics yet">
    <p>Send a first record, or <a
      href=${href(["topics"], { new: 1 })}>create a topic</a>. Any Kafka client works too${address && html`: it
      connects to <code>${address}</code>`}.</p>
    <div class="steps">
      <${Command} text=${`tailrace produce hello 'first message'${where}`} />
      <${Command} text=${`tailrace tail hello${where}`} />
    </div>
  <//>`;
}
