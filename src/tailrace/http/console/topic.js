// One topic: its figures, and tabs for its messages, partitions, settings and readers.

import { path, remove } from "./api.js";
import { ConfirmByName } from "./dialog.js";
import * as format from "./format.js";
import { Heading, Tabs } from "./heading.js";
import { Icon } from "./icon.js";
import { Messages } from "./messages.js";
import { Failure, Skeleton, Stale } from "./notice.js";
import { Partitions } from "./partitions.js";
import { Produce } from "./produce.js";
import { useResource } from "./resource.js";
import { changeQuery, go, href } from "./router.js";
import { tellUser } from "./toast.js";
import { TopicConfig } from "./topic_config.js";
import { TopicReaders } from "./topic_readers.js";
import { html, useState } from "./vendor/htm-preact.js";

const TABS = [
  ["Messages", "messages"],
  ["Partitions", "partitions"],
  ["Config", "config"],
  ["Consumers", "consumers"],
];

// Thousands of partitions are a large answer, and are asked for less often.
const howOften = (topic) => (topic?.partitions > 1_000 ? 30_000 : 5_000);

export function Topic({ name, tab = "messages", query }) {
  const topic = useResource(path`/api/v1/topics/${name}`, { every_ms: howOften });
  const metrics = useResource(path`/api/v1/metrics/topics/${name}`, { every_ms: 5_000 });
  const [isDeleting, setDeleting] = useState(false);
  const trail = [["Topics", href(["topics"])]];
  if (topic.error && !topic.data) {
    return html`<${Heading} title=${name} trail=${trail} /><${Failure} error=${topic.error}
      retry=${topic.reload} />`;
  }
  const facts = topic.data ? factsOf(topic.data, metrics.data) : [];
  return html`
    <${Heading} title=${name} trail=${trail} facts=${facts}>
      <button type="button" class="button primary" onClick=${() => changeQuery({ produce: "1" })}><${Icon}
        name="send" />Produce</button>
      <button type="button" class="button danger square" aria-label="Delete topic" title="Delete topic"
        onClick=${() => setDeleting(true)}><${Icon} name="trash" /></button>
    <//>
    <${Stale} resources=${[topic, metrics]} />
    <${Tabs} label="Parts of the topic"
      tabs=${TABS.map(([text, each]) => [text, href(["topics", name, each]), each === tab])} />
    ${topic.data ? chosen(tab, { name, topic, query }) : html`<${Skeleton} rows=${8} />`}
    ${query.produce && topic.data && html`<${Produce} topic=${topic.data}
      onClose=${() => changeQuery({ produce: null, like: null }, { replace: true })} />`}
    ${isDeleting && html`<${DeleteTopic} name=${name} onClose=${() => setDeleting(false)} />`}`;
}

function chosen(tab, { name, topic, query }) {
  if (tab === "partitions") return html`<${Partitions} topic=${topic.data} reload=${topic.reload} />`;
  if (tab === "config") return html`<${TopicConfig} name=${name} />`;
  if (tab === "consumers") return html`<${TopicReaders} name=${name} />`;
  return html`<${Messages} topic=${topic.data} query=${query} />`;
}

function factsOf(topic, metrics) {
  const parts = topic.partition_details ?? [];
  const sum = (value) => parts.reduce((total, part) => total + (value(part) ?? 0), 0);
  return [
    ["Partitions", format.count(topic.partitions)],
    ["Records", format.count(sum((part) => part.end_offset - part.start_offset))],
    ["Size", format.bytes(sum((part) => part.bytes))],
    ["In", format.perSecond(metrics?.records_in_per_s)],
    ["Out", format.perSecond(metrics?.records_out_per_s)],
    ["Replicas", format.count(topic.replication_factor)],
    ["Cleanup policy", topic.configs?.["cleanup.policy"] ?? format.UNKNOWN],
  ].filter(([, value]) => value !== format.UNKNOWN);
}

function DeleteTopic({ name, onClose }) {
  const perform = async () => {
    await remove(path`/api/v1/topics/${name}`);
    tellUser(`Topic ${name} is deleted`);
    go(href(["topics"]));
  };
  return html`<${ConfirmByName} title="Delete topic" name=${name} action="Delete topic" perform=${perform}
    onClose=${onClose}>
    <p class="note">All its records go, with the offsets that groups have committed and its
      subscriptions. This cannot be undone.</p>
  <//>`;
}
