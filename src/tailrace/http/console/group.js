// One consumer group: its members, how far it is in each partition, and moving it elsewhere.

import { path, remove } from "./api.js";
import { Badge } from "./badge.js";
import { ConfirmByName } from "./dialog.js";
import * as format from "./format.js";
import { Heading } from "./heading.js";
import { Icon } from "./icon.js";
import { LagChart } from "./lag.js";
import { Reset } from "./move.js";
import { Empty, Failure, Skeleton, Stale } from "./notice.js";
import { useResource } from "./resource.js";
import { changeQuery, go, href } from "./router.js";
import { Table } from "./table.js";
import { tellUser } from "./toast.js";
import { html, useMemo, useState } from "./vendor/htm-preact.js";

export function Group({ name, query }) {
  const group = useResource(path`/api/v1/consumer-groups/${name}`, { every_ms: 3_000 });
  const [isDeleting, setDeleting] = useState(false);
  const trail = [["Consumers", href(["groups"])]];
  const { data, error } = group;
  if (!data) {
    return html`<${Heading} title=${name} trail=${trail} />${error ? html`<${Failure} error=${error}
      retry=${group.reload} />` : html`<${Skeleton} />`}`;
  }
  const reset = (isOpen) => changeQuery({ reset: isOpen ? "1" : null }, { replace: !isOpen });
  return html`
    <${Heading} title=${name} trail=${trail} badge=${html`<${Badge} state=${data.state} />`}
      facts=${factsOf(data)}>
      <button type="button" class="button" onClick=${() => reset(true)}><${Icon}
        name="undo" />Reset offsets</button>
      <button type="button" class="button danger square" aria-label="Delete group" title="Delete group"
        onClick=${() => setDeleting(true)}><${Icon} name="trash" /></button>
    <//>
    <${Stale} resources=${[group]} />
    <${LagChart} address=${path`/api/v1/metrics/groups/${name}`} lag=${data.lag} />
    <${Offsets} offsets=${data.offsets} members=${data.members} />
    <${Members} members=${data.members} />
    ${query.reset && html`<${Reset} group=${data} onClose=${() => reset(false)} onDone=${group.reload} />`}
    ${isDeleting && html`<${DeleteGroup} name=${name} onClose=${() => setDeleting(false)} />`}`;
}

function factsOf(group) {
  return [
    ["Lag", format.count(group.lag)],
    ["Members", format.count(group.member_count)],
    ["Partitions", format.count(group.offsets.length)],
    ["Topics", format.count(new Set(group.offsets.map((each) => each.topic)).size)],
    ["Assignor", group.protocol || format.UNKNOWN],
  ];
}

function Offsets({ offsets, members }) {
  const [sort, setSort] = useState({ by: "lag", down: true });
  const names = useMemo(
    () => new Map(members.map((each) => [each.member_id, each.client_id || each.member_id])),
    [members],
  );
  if (!offsets.length) return html`<${Empty} title="Nothing committed yet" />`;
  const columns = [
    {
      id: "topic",
      title: "Topic",
      width: "minmax(0, 1.6fr)",
      sort: (row) => row.topic,
      render: (row) => html`<span class="strong">${row.topic}</span>`,
    },
    {
      id: "partition",
      title: "Partition",
      align: "end",
      width: "76px",
      sort: (row) => row.partition,
      render: (row) => row.partition,
    },
    {
      id: "committed",
      title: "Committed",
      align: "end",
      wideOnly: true,
      sort: (row) => row.committed,
      render: (row) => format.count(row.committed),
    },
    {
      id: "end",
      title: "End",
      align: "end",
      wideOnly: true,
      sort: (row) => row.end_offset,
      render: (row) => format.count(row.end_offset),
    },
    { id: "lag", title: "Lag", align: "end", sort: (row) => row.lag, render: (row) => format.count(row.lag) },
    {
      id: "member",
      title: "Member",
      wideOnly: true,
      width: "minmax(0, 1.3fr)",
      title_of: (row) => row.member_id,
      render: (row) => names.get(row.member_id) ?? html`<span class="faint">none</span>`,
    },
  ];
  return html`<section class="section"><header><h2>Offsets</h2></header>
    <${Table} label="Offsets" columns=${columns} rows=${offsets}
      rowKey=${(row) => `${row.topic}:${row.partition}`} sort=${sort} onSort=${setSort}
      link=${placeOf} />
  </section>`;
}

// Where the group goes on, which is not before the log begins; at its end there is nothing to show but the
// newest.
function placeOf({ topic, partition, committed, start_offset, end_offset }) {
  const place = committed === null ? null : Math.max(committed, start_offset);
  return href(["topics", topic, "messages"], { partition, offset: place === end_offset ? null : place });
}

const MEMBER_COLUMNS = [
  {
    id: "client",
    title: "Client",
    width: "minmax(0, 1.4fr)",
    sort: (row) => row.client_id,
    title_of: (row) => row.member_id,
    render: (row) => html`<span class="strong">${row.client_id || row.member_id}</span>`,
  },
  { id: "host", title: "Host", sort: (row) => row.host, render: (row) => row.host },
  {
    id: "instance",
    title: "Instance",
    wideOnly: true,
    render: (row) => row.instance_id ?? html`<span class="faint">none</span>`,
  },
  {
    id: "partitions",
    title: "Partitions",
    align: "end",
    sort: (row) => row.partitions.length,
    title_of: assigned,
    render: (row) => format.count(row.partitions.length),
  },
];

function assigned(row) {
  return row.partitions
    .slice(0, 40)
    .map((each) => `${each.topic} ${each.partition}`)
    .join(", ");
}

function Members({ members }) {
  const [sort, setSort] = useState({ by: "client", down: false });
  return html`<section class="section"><header><h2>Members</h2></header>
    ${
      members.length
        ? html`<${Table} label="Members" columns=${MEMBER_COLUMNS} rows=${members}
          rowKey=${(row) => row.member_id} sort=${sort} onSort=${setSort} />`
        : html`<p class="note">No members now. Its offsets are kept.</p>`
    }
  </section>`;
}

function DeleteGroup({ name, onClose }) {
  const perform = async () => {
    await remove(path`/api/v1/consumer-groups/${name}`);
    tellUser(`Group ${name} is deleted`);
    go(href(["groups"]));
  };
  return html`<${ConfirmByName} title="Delete group" name=${name} action="Delete group" perform=${perform}
    onClose=${onClose}>
    <p class="note">Its committed offsets go. Consumers that join under this name later begin where their${" "}
      <code>auto.offset.reset</code> says.</p>
  <//>`;
}
