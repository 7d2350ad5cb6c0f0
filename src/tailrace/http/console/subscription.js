// One subscription: its lag, members, partitions and dead letters, and replaying it.

import { path, post, remove } from "./api.js";
import { Badge } from "./badge.js";
import { ConfirmByName, Dialog } from "./dialog.js";
import * as format from "./format.js";
import { Heading } from "./heading.js";
import { Icon } from "./icon.js";
import { LagChart } from "./lag.js";
import { Replay } from "./move.js";
import { Failure, FormError, Loaded, Skeleton, Stale } from "./notice.js";
import { useResource } from "./resource.js";
import { go, href } from "./router.js";
import { Table } from "./table.js";
import { tellUser } from "./toast.js";
import { html, useState } from "./vendor/htm-preact.js";

const SHOWN_MAX = 100; // dead letters

export function Subscription({ name }) {
  const subscription = useResource(path`/api/v1/subscriptions/${name}`, { every_ms: 3_000 });
  const [dialog, setDialog] = useState("");
  const close = () => setDialog("");
  const trail = [["Consumers", href(["subscriptions"])]];
  const { data, error } = subscription;
  if (!data) {
    return html`<${Heading} title=${name} trail=${trail} />${error ? html`<${Failure} error=${error}
      retry=${subscription.reload} />` : html`<${Skeleton} />`}`;
  }
  return html`
    <${Heading} title=${name} trail=${trail} badge=${html`<${Badge} state=${data.state} />`}
      facts=${factsOf(data)}>
      <button type="button" class="button" onClick=${() => setDialog("replay")}><${Icon}
        name="undo" />Replay</button>
      <button type="button" class="button danger square" aria-label="Delete subscription"
        title="Delete subscription" onClick=${() => setDialog("delete")}><${Icon} name="trash" /></button>
    <//>
    <${Stale} resources=${[subscription]} />
    ${data.reason && html`<p class="form-error">Paused: ${data.reason}</p>`}
    <${LagChart} address=${path`/api/v1/metrics/subscriptions/${name}`} lag=${data.lag} />
    <div class="columns">
      <section class="section"><header><h2>Members</h2></header><${Members} members=${data.members} />
      </section>
      <section class="section"><header><h2>Settings</h2></header><${Settings} data=${data} /></section>
    </div>
    <section class="section"><header><h2>Partitions</h2></header>
      <${Table} label="Partitions" columns=${PARTITION_COLUMNS} rows=${data.partitions}
        rowKey=${(row) => `${row.topic}:${row.partition}`}
        link=${placeOf} /></section>
    <${DeadLetters} name=${name} topic=${data.dead_letter_topic} reload=${subscription.reload} />
    ${dialog === "replay" && html`<${Replay} name=${name} onClose=${close} onDone=${subscription.reload} />`}
    ${dialog === "delete" && html`<${DeleteSubscription} name=${name} onClose=${close} />`}`;
}

function factsOf(data) {
  return [
    ["Lag", format.count(data.lag)],
    ["In flight", format.count(data.in_flight)],
    ["Unacknowledged", format.count(data.unacknowledged)],
    ["Delivered", format.count(data.delivered)],
    ["Redelivered", format.count(data.redelivered)],
    ["Acknowledged", format.count(data.acknowledged)],
    ["Dead letters", format.count(data.dead)],
    ["Topic", html`<a href=${href(["topics", data.topic])}>${data.topic}</a>`],
  ];
}

function Members({ members }) {
  if (!members?.length) return html`<p class="note">No members now.</p>`;
  return html`<${Table} label="Members" rows=${members} rowKey=${(row) => row.name} columns=${[
    {
      id: "name",
      title: "Member",
      width: "minmax(0, 2fr)",
      title_of: (row) => row.name,
      render: (row) => html`<span class="strong">${row.name}</span>`,
    },
    { id: "held", title: "In flight", align: "end", render: (row) => format.count(row.held) },
    { id: "credit", title: "Credit", align: "end", render: (row) => format.count(row.credit) },
  ]} />`;
}

function Settings({ data }) {
  const rows = [
    ["mode", data.mode],
    ...Object.entries(data.configs ?? {}).filter(([name]) => name !== "mode"),
    ["created", format.moment(data.created_ms)],
  ];
  return html`<div class="card"><dl class="pairs">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>
    ${String(value)}</dd>`)}</dl></div>`;
}

function placeOf({ topic, partition, position, end_offset }) {
  return href(["topics", topic, "messages"], { partition, offset: position === end_offset ? null : position });
}

const PARTITION_COLUMNS = [
  {
    id: "topic",
    title: "Topic",
    width: "minmax(0, 1.6fr)",
    render: (row) => html`<span class="strong">${row.topic}</span>`,
  },
  { id: "partition", title: "Partition", align: "end", width: "76px", render: (row) => row.partition },
  {
    id: "position",
    title: "Position",
    align: "end",
    wideOnly: true,
    render: (row) => format.count(row.position),
  },
  {
    id: "beyond",
    title: "Acknowledged beyond",
    align: "end",
    wideOnly: true,
    render: (row) => format.count(row.acknowledged_beyond),
  },
  {
    id: "flight",
    title: "In flight",
    align: "end",
    wideOnly: true,
    render: (row) => format.count(row.in_flight),
  },
  {
    id: "lag",
    title: "Lag",
    align: "end",
    render: (row) => (row.error ? html`<${Badge} state=${row.error} tone="bad" />` : format.count(row.lag)),
  },
];

// ---- dead letters

// Those that were redriven are not shown.
function DeadLetters({ name, topic, reload }) {
  const address = `${path`/api/v1/subscriptions/${name}/dead-letters`}?limit=${SHOWN_MAX}`;
  const letters = useResource(address, { every_ms: 5_000 });
  const [isAsking, setAsking] = useState(false);
  const left = letters.data?.dead_letters.length ?? 0;
  return html`<section class="section">
    <header><h2>Dead letters</h2>${left > 0 && html`<button type="button" class="button small"
      onClick=${() => setAsking(true)}><${Icon} name="redo" />Redrive</button>`}</header>
    <${Loaded} resource=${letters} rows=${3}>${(data) => html`<${Letters} letters=${data.dead_letters}
      hadSome=${data.dead > 0} topic=${topic} />`}<//>
    ${
      isAsking &&
      html`<${Redrive} name=${name} left=${left} onClose=${() => setAsking(false)} onDone=${() => {
        reload();
        letters.reload();
      }} />`
    }
  </section>`;
}

// `hadSome`: since the node started, which is all that it knows of those that are gone.
function Letters({ letters, hadSome, topic }) {
  if (!letters.length) {
    return html`<p class="note">
    ${hadSome ? "None left: all were redriven." : "None."}</p>`;
  }
  return html`<${Table} label="Dead letters" rows=${letters} rowKey=${(row) => row.offset}
    columns=${LETTER_COLUMNS}
    link=${({ offset }) => href(["topics", topic, "messages"], { partition: 0, offset, open: `0:${offset}` })} />`;
}

const LETTER_COLUMNS = [
  {
    id: "time",
    title: "Time",
    width: "172px",
    wideOnly: true,
    render: (row) => format.shortMoment(row.timestamp),
  },
  {
    id: "key",
    title: "Key",
    width: "minmax(0, 0.7fr)",
    render: (row) => html`<span class="mono">${row.key ?? "null"}</span>`,
  },
  {
    id: "value",
    title: "Value",
    width: "minmax(0, 2fr)",
    wideOnly: true,
    render: (row) => html`<span class="mono">${row.value ?? "null"}</span>`,
  },
  {
    id: "reason",
    title: "Reason",
    width: "minmax(0, 1.2fr)",
    title_of: (row) => row.reason,
    render: (row) => row.reason ?? "",
  },
  {
    id: "count",
    title: "Deliveries",
    align: "end",
    width: "80px",
    render: (row) => format.count(row.delivery_count),
  },
];

function Redrive({ name, left, onClose, onDone }) {
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      const answer = await post(path`/api/v1/subscriptions/${name}/redrive`, { count: null });
      tellUser(`${format.plural(answer.redriven, "message")} will be delivered again`);
      onDone();
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Dialog} title="Redrive dead letters" onClose=${onClose}><form onSubmit=${submit}>
    <p class="note">
    ${left < SHOWN_MAX ? format.plural(left, "message") : "All of them"} will be
      delivered to ${name} again, as if for the first time. What still fails becomes a dead letter again.</p>
    <${FormError} error=${error} />
    <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button data-first
      class="button primary">Redrive</button></footer>
  </form><//>`;
}

// ---- deleting

function DeleteSubscription({ name, onClose }) {
  const perform = async () => {
    await remove(path`/api/v1/subscriptions/${name}`);
    tellUser(`Subscription ${name} is deleted`);
    go(href(["subscriptions"]));
  };
  return html`<${ConfirmByName} title="Delete subscription" name=${name} action="Delete subscription"
    perform=${perform} onClose=${onClose}>
    <p class="note">What it remembers of who acknowledged what goes; the topic stays as it is.</p>
  <//>`;
}
