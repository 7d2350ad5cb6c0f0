// Transactions: which are open, for how long and where, those that hang, and ending one.

import { path, post } from "./api.js";
import { Badge } from "./badge.js";
import { Command } from "./copy.js";
import { Dialog } from "./dialog.js";
import { Choice } from "./field.js";
import * as format from "./format.js";
import { Facts, Heading } from "./heading.js";
import { Empty, FormError, Loaded } from "./notice.js";
import { useResource } from "./resource.js";
import { changeQuery } from "./router.js";
import { Table } from "./table.js";
import { tellUser } from "./toast.js";
import { html, useState } from "./vendor/htm-preact.js";

const LISTS = [
  ["open", "Open"],
  ["all", "All ids"],
];

export function Transactions({ query }) {
  const found = useResource("/api/v1/transactions", { every_ms: 2_000 });
  const [shown, setShown] = useState(null);
  const [hanging, setHanging] = useState(null);
  const list = query.show === "all" ? "all" : "open";
  return html`
    <${Heading} title="Transactions">
      <${Choice} label="Transactions shown" options=${LISTS} value=${list}
        onChange=${(show) => changeQuery({ show: show === "all" ? show : null }, { replace: true })} />
    <//>
    <${Loaded} resource=${found}>${(data) => html`
      <${Hanging} rows=${data.hanging} onAbort=${setHanging} />
      <${Ids} rows=${data.transactions} list=${list} onShow=${setShown} />`}<//>
    ${shown && html`<${Shown} row=${shown} onClose=${() => setShown(null)} onDone=${found.reload} />`}
    ${hanging && html`<${AbortHanging} row=${hanging} onClose=${() => setHanging(null)}
      onDone=${found.reload} />`}`;
}

const isOpen = (row) => row.open_ms !== null;
const isAbortable = (row) => row.state === "Ongoing";

// The table needs the oldest first: it is the one that readers wait for.
function Ids({ rows, list, onShow }) {
  const [sort, setSort] = useState({ by: "open", down: true });
  const wanted = list === "all" ? rows : rows.filter(isOpen);
  if (!wanted.length) {
    return html`<${Empty} title=${list === "all" ? "No transactional id is known" : "No transaction is open"}>
      <p>Producers with a transactional.id write to several partitions all together or not at all, and
        so does one request to /api/v1/transactions.</p>
      <div class="steps"><${Command} text="tailrace txn list" /></div><//>`;
  }
  return html`<${Table} label="Transactions" columns=${columnsOf(onShow)} rows=${wanted}
    rowKey=${(row) => row.transactional_id} sort=${sort} onSort=${setSort} />`;
}

function columnsOf(onShow) {
  return [
    {
      id: "id",
      title: "Transactional id",
      width: "minmax(0, 2fr)",
      sort: (row) => row.transactional_id,
      title_of: (row) => row.transactional_id,
      render: (row) => html`<span class="mono">${row.transactional_id}</span>`,
    },
    {
      id: "state",
      title: "State",
      width: "150px",
      sort: (row) => row.state,
      render: (row) => html`<${Badge} state=${row.state} tone=${toneOf(row)} />`,
    },
    {
      id: "open",
      title: "Open for",
      width: "100px",
      align: "end",
      sort: (row) => row.open_ms,
      render: (row) => (isOpen(row) ? format.duration(row.open_ms / 1000) : format.UNKNOWN),
    },
    {
      id: "producer",
      title: "Producer",
      width: "110px",
      align: "end",
      wideOnly: true,
      sort: (row) => row.producer_id,
      render: producerOf,
    },
    {
      id: "partitions",
      title: "Partitions",
      width: "100px",
      align: "end",
      wideOnly: true,
      sort: (row) => row.partition_count,
      render: (row) => format.count(row.partition_count),
    },
    {
      id: "show",
      title: "",
      width: "100px",
      align: "end",
      render: (row) => html`<button type="button" class="button small" onClick=${() => onShow(row)}
        aria-label="${isAbortable(row) ? "Abort" : "Show"} ${row.transactional_id}">
        ${isAbortable(row) ? "Abort…" : "Show"}</button>`,
    },
  ];
}

// Past half of its timeout a transaction is worth a look.
function toneOf(row) {
  if (!isOpen(row)) return "quiet";
  return row.open_ms > row.timeout_ms / 2 ? "warn" : "ok";
}

const producerOf = (row) => `${row.producer_id} / ${row.producer_epoch}`;

function Hanging({ rows, onAbort }) {
  if (!rows.length) return null;
  return html`<section class="section"><header><h2>Hanging</h2><${Badge} state="no coordinator ends these"
      tone="bad" /></header>
    <p class="note">Readers of committed records wait at the first offset of each.</p>
    ${rows.map((row) => html`<article class="card run" key=${placeOf(row)} aria-label="Hangs in ${placeOf(row)}">
      <header><h3 class="mono">${placeOf(row)}</h3>
        <button type="button" class="button small" onClick=${() => onAbort(row)}>Abort…</button></header>
      <${Facts} facts=${[
        ["First offset", format.count(row.first_offset)],
        ["Producer / epoch", producerOf(row)],
      ]} /></article>`)}
  </section>`;
}

const placeOf = (row) => `${row.topic}-${row.partition}`;

function Shown({ row, onClose, onDone }) {
  const name = row.transactional_id;
  const found = useResource(path`/api/v1/transactions/${name}`);
  return html`<${Dialog} title=${name} onClose=${onClose}>
    <${Loaded} resource=${found} rows=${3}>${(data) => html`
      <${Facts} facts=${[
        ["State", data.state],
        ["Open for", isOpen(data) ? format.duration(data.open_ms / 1000) : format.UNKNOWN],
        ["Timeout", format.duration(data.timeout_ms / 1000)],
        ["Producer / epoch", producerOf(data)],
      ]} />
      ${data.partitions.length > 0 && html`<ul class="note">${data.partitions.map(
        (each) => html`<li key=${placeOf(each)}><span class="mono">${placeOf(each)}</span>: ${beginsAt(each)}
          </li>`,
      )}</ul>`}`}<//>
    ${
      isAbortable(row)
        ? html`<${Abort} onClose=${onClose} onDone=${onDone} what="The transaction of ${name}"
          note="None of its records becomes visible. Its producer is fenced: it cannot write until it begins again."
          perform=${() => post(path`/api/v1/transactions/${name}/abort`, { started_ms: row.started_ms })} />`
        : html`<footer><button type="button" class="button" data-first onClick=${onClose}>Close</button></footer>`
    }<//>`;
}

function beginsAt({ first_offset, error }) {
  if (error) return error;
  return first_offset === null ? "no record yet" : `from offset ${format.count(first_offset)}`;
}

function AbortHanging({ row, onClose, onDone }) {
  const { topic, partition, first_offset } = row;
  return html`<${Dialog} title="Abort in ${placeOf(row)}" onClose=${onClose}>
    <${Abort} onClose=${onClose} onDone=${onDone} what="The transaction in ${placeOf(row)}"
      note="The transaction of producer ${row.producer_id} that begins at offset ${first_offset} ends in this
        partition. None of its records becomes visible."
      perform=${() => post("/api/v1/hanging-transactions/abort", { topic, partition, first_offset })} /><//>`;
}

function Abort({ what, note, perform, onClose, onDone }) {
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await perform();
      tellUser(`${what} is aborted`);
      onDone();
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<form onSubmit=${submit}>
    <p class="note">${note}</p>
    <${FormError} error=${error} />
    <footer><button type="button" class="button" data-first onClick=${onClose}>Cancel</button>
      <button class="button danger">Abort</button></footer>
  </form>`;
}
