// The partitions of a topic: offsets, leader and replicas of each. More can be added.

import { patch, path } from "./api.js";
import { Badge } from "./badge.js";
import { Dialog } from "./dialog.js";
import { Field } from "./field.js";
import * as format from "./format.js";
import { FormError } from "./notice.js";
import { href } from "./router.js";
import { Table } from "./table.js";
import { tellUser } from "./toast.js";
import { TopicChart } from "./topic_chart.js";
import { html, useState } from "./vendor/htm-preact.js";

export function Partitions({ topic, reload }) {
  const [sort, setSort] = useState({ by: "partition", down: false });
  const [isAdding, setAdding] = useState(false);
  const behind = topic.partition_details.filter((part) => part.isr.length < part.replicas.length).length;
  const leaderless = topic.partition_details.filter((part) => part.leader < 0).length;
  return html`
    <${TopicChart} name=${topic.name} />
    <div class="toolbar">
      <span class="faint">
      ${format.plural(topic.partitions, "partition")}${behind ? `, ${behind} under-replicated` : ""}${
        leaderless ? `, ${leaderless} leaderless` : ""
      }</span>
      <span class="end"><button type="button" class="button"
        onClick=${() => setAdding(true)}>Add partitions</button></span>
    </div>
    <${Table} label="Partitions" columns=${COLUMNS} rows=${topic.partition_details}
      rowKey=${(row) => row.partition} sort=${sort}
      onSort=${setSort}
      link=${(row) => href(["topics", topic.name, "messages"], { partition: row.partition })} />
    ${isAdding && html`<${AddPartitions} topic=${topic} reload=${reload}
      onClose=${() => setAdding(false)} />`}`;
}

const records = (row) => (row.end_offset === null ? null : row.end_offset - row.start_offset);

const COLUMNS = [
  {
    id: "partition",
    title: "Partition",
    width: "minmax(66px, 0.7fr)",
    sort: (row) => row.partition,
    render: (row) => html`<span class="strong">${row.partition}</span>`,
  },
  {
    id: "start",
    title: "Start offset",
    align: "end",
    wideOnly: true,
    sort: (row) => row.start_offset,
    render: (row) => format.count(row.start_offset),
  },
  {
    id: "end",
    title: "End offset",
    align: "end",
    sort: (row) => row.end_offset,
    render: (row) => format.count(row.end_offset),
  },
  {
    id: "records",
    title: "Records",
    align: "end",
    sort: records,
    render: (row) => format.count(records(row)),
  },
  {
    id: "bytes",
    title: "Size",
    align: "end",
    wideOnly: true,
    sort: (row) => row.bytes,
    render: (row) => format.bytes(row.bytes),
  },
  {
    id: "leader",
    title: "Leader",
    align: "end",
    wideOnly: true,
    sort: (row) => row.leader,
    render: (row) => (row.leader < 0 ? html`<${Badge} state="leaderless" tone="bad" />` : row.leader),
  },
  {
    id: "copies",
    title: "In-sync replicas",
    align: "end",
    wideOnly: true,
    sort: (row) => row.isr.length,
    render: (row) => `${row.isr.length} of ${row.replicas.length}`,
  },
];

function AddPartitions({ topic, reload, onClose }) {
  const [wanted, setWanted] = useState(topic.partitions + 1);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await patch(path`/api/v1/topics/${topic.name}`, { partitions: Number(wanted) });
      tellUser(`${topic.name} has ${wanted} partitions now`);
      reload();
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Dialog} title="Add partitions" onClose=${onClose}><form onSubmit=${submit}>
    <p class="note">Partitions can only be added. Keys may go to other partitions from then on,
      so the order of a key's records holds before and after, and not across.</p>
    <${Field} label="Total partitions"><input data-first type="number" min=${topic.partitions + 1}
      value=${wanted}
      onInput=${(event) => setWanted(event.target.value)} /><//>
    <${FormError} error=${error} />
    <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button
      class="button primary">Add</button></footer>
  </form><//>`;
}
