// The cluster: its nodes, the settings of this node, and how the console looks.

import { root } from "./api.js";
import { Badge } from "./badge.js";
import { Choice, Filter } from "./field.js";
import * as format from "./format.js";
import { Heading } from "./heading.js";
import { Empty, Loaded } from "./notice.js";
import { useResource } from "./resource.js";
import { changeQuery } from "./router.js";
import { meaning, prose, valueText } from "./setting.js";
import { Table } from "./table.js";
import { html, useEffect, useState } from "./vendor/htm-preact.js";

export function Cluster({ query }) {
  const cluster = useResource("/api/v1/cluster", { every_ms: 5_000 });
  const settings = useResource("/api/v1/configs");
  return html`
    <${Heading} title="Cluster"><a class="button" href="${root}/openapi.json" target="_blank"
      rel="noopener">REST API</a><//>
    <${Loaded} resource=${cluster} rows=${4}>${(data) => html`<${Nodes} cluster=${data} />`}<//>
    <section class="section"><header><h2>Appearance</h2></header><div><${Theme} /></div></section>
    <section class="section">
      <header><h2>Settings of this node</h2></header>
      <div class="toolbar"><${Filter} label="Filter settings" value=${query.q ?? ""}
        onChange=${(q) => changeQuery({ q }, { replace: true })} /></div>
      <${Loaded} resource=${settings}>${(data) => html`<${Settings} settings=${data.configs}
        wanted=${(query.q ?? "").toLowerCase()} />`}<//>
    </section>`;
}

const COLUMNS = [
  {
    id: "node",
    title: "Node",
    width: "minmax(70px, 0.6fr)",
    render: (row) =>
      html`<span class="strong">${row.node_id}</span>${row.is_this ? html` <span
        class="faint">this</span>` : ""}`,
  },
  {
    id: "kafka",
    title: "Kafka",
    render: (row) => html`<span class="mono">${row.kafka || format.UNKNOWN}</span>`,
  },
  {
    id: "native",
    title: "Native",
    wideOnly: true,
    render: (row) => html`<span class="mono">${row.native || format.UNKNOWN}</span>`,
  },
  {
    id: "http",
    title: "HTTP",
    wideOnly: true,
    render: (row) => html`<span class="mono">${row.http || format.UNKNOWN}</span>`,
  },
  {
    id: "version",
    title: "Version",
    width: "80px",
    wideOnly: true,
    render: (row) => row.version ?? format.UNKNOWN,
  },
  { id: "uptime", title: "Up", width: "90px", align: "end", render: (row) => format.duration(row.uptime_s) },
];

function Nodes({ cluster }) {
  const facts = [
    ["Cluster id", cluster.cluster_id],
    ["Controller", `node ${cluster.controller_id}`],
    ["Engine", cluster.engine],
    ["fsync", cluster.fsync],
    ["Data directory", cluster.data_dir || "none: in memory"],
    ["Topics", format.count(cluster.topics)],
    ["Partitions", format.count(cluster.partitions)],
    [
      "Under-replicated",
      html`<${Badge} state=${format.count(cluster.under_replicated)}
        tone=${cluster.under_replicated ? "warn" : "ok"} />`,
    ],
    [
      "Leaderless",
      html`<${Badge} state=${format.count(cluster.offline)} tone=${cluster.offline ? "bad" : "ok"} />`,
    ],
  ];
  return html`<section class="section">
    <${Table} label="Nodes" columns=${COLUMNS} rows=${cluster.nodes} rowKey=${(row) => row.node_id} />
    <div class="card"><dl class="pairs spread">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>
    ${value}</dd></div>`)}</dl></div>
  </section>`;
}

function Theme() {
  const [choice, setChoice] = useState(tailraceTheme.choice);
  useEffect(() => tailraceTheme.watch(setChoice), []);
  return html`<${Choice} label="Theme" value=${choice} onChange=${(each) => tailraceTheme.choose(each)}
    options=${[
      ["auto", "As the system", "auto"],
      ["light", "Light", "sun"],
      ["dark", "Dark", "moon"],
    ]} />`;
}

function Settings({ settings, wanted }) {
  const shown = settings.filter((each) => `${each.name} ${each.doc}`.toLowerCase().includes(wanted));
  if (!shown.length) return html`<${Empty} title="No setting like that" />`;
  return html`<div class="settings">${shown.map(
    (
      each,
    ) => html`<div class="setting is-plain ${each.source === "default" ? "" : "is-own"}" key=${each.name}>
    <div><div class="setting-name">${each.name}</div><p>${prose(each.doc)}</p></div>
    <div class="setting-value">${valueText(each.value)}<small>${sourceText(each)}</small></div>
  </div>`,
  )}</div>`;
}

function sourceText({ name, value, source, default: usual }) {
  const from = source === "default" ? "default" : `set; default ${valueText(usual)}`;
  const meant = meaning(name, value);
  return meant ? `${meant} · ${from}` : from;
}
