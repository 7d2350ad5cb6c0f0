// One message: a line of a list, and all of it in a drawer with ways to take it elsewhere.

import { get, path, query } from "./api.js";
import { CopyButton } from "./copy.js";
import { Dialog } from "./dialog.js";
import * as format from "./format.js";
import { Icon } from "./icon.js";
import { Failure, Skeleton } from "./notice.js";
import { Payload } from "./payload.js";
import { useResource } from "./resource.js";
import { changeQuery } from "./router.js";
import * as snippet from "./snippet.js";
import { html, useEffect, useState } from "./vendor/htm-preact.js";

const PREVIEW_CHARS = 300;
const SPOKEN_CHARS = 80;

export const idOf = (record) => `${record.partition}:${record.offset}`;

export function MessageHead() {
  return html`<div class="message messages-head" aria-hidden="true"><span>Time</span><span
    class="number">Part.</span>
    <span class="number">Offset</span><span>Key</span><span>Value</span></div>`;
}

export function MessageLine({ record, isOpen, isNew }) {
  const key = record.key ?? null;
  const open = () => changeQuery({ open: idOf(record) });
  return html`<button type="button" class="message ${isNew ? "is-new" : ""}" onClick=${open}
    aria-current=${isOpen ? "true" : null}
      aria-label="Message ${record.offset} of partition ${record.partition}: ${spoken(record.value)}">
    <span class="time" title=${format.moment(record.timestamp)}>${format.shortMoment(record.timestamp)}</span>
    <span class="number partition">${record.partition}</span>
    <span class="number offset">${record.offset}</span>
    <span class="key ${key === null ? "is-null" : ""}">${preview(key, record.key_encoding, "null")}</span>
    <span class="value">${preview(record.value ?? null, record.value_encoding, "null (tombstone)")}</span>
  </button>`;
}

const spoken = (value) => (value === null ? "tombstone" : value.slice(0, SPOKEN_CHARS));

// The beginning of a text on one line; what would look like nothing is named.
function preview(text, encoding, ifNull) {
  const shown = text?.slice(0, PREVIEW_CHARS).replace(/\s+/g, " ");
  const name = text === null ? ifNull : text === "" ? "empty" : shown === " " ? "blank" : null;
  if (name) return html`<span class="null">${name}</span>`;
  return encoding === "base64" ? `base64 ${shown}` : shown;
}

// The message `partition:offset`, out of the list if it is in there, else read.
export function MessageDrawer({ topic, id, records, onClose }) {
  const [partition, offset] = id.split(":").map(Number);
  const known = records.find((each) => idOf(each) === id);
  const [state, setState] = useState({ record: known, error: null });
  useEffect(() => {
    if (known) {
      setState({ record: known, error: null });
      return undefined;
    }
    const running = new AbortController();
    readMessage(topic, partition, offset, running.signal).then(
      (record) => setState({ record, error: null }),
      (error) => !running.signal.aborted && setState({ record: undefined, error }),
    );
    return () => running.abort();
  }, [topic, id]);
  return html`<${Dialog} kind="drawer" title="Message ${offset}" onClose=${onClose}>
    ${
      state.record
        ? html`<${Details} record=${state.record} />`
        : state.error
          ? html`<${Failure} error=${state.error} />`
          : html`<${Skeleton} />`
    }
  <//>`;
}

export async function readMessage(topic, partition, offset, signal) {
  const found = await get(path`/api/v1/topics/${topic}/records` + query({ partition, offset, limit: 1 }), {
    signal,
  });
  const record = found.records[0];
  if (record?.offset !== offset)
    throw new Error(
      `Partition ${partition} has no message at offset ${offset}: it was compacted, or is not written yet.`,
    );
  return record;
}

function Details({ record }) {
  const cluster = useResource("/api/v1/cluster");
  const address = cluster.data?.nodes?.find((node) => node.is_this)?.kafka ?? "";
  const again = () => changeQuery({ open: null, produce: "1", like: idOf(record) });
  return html`
    <dl class="pairs">
      <dt>Topic</dt><dd>${record.topic}</dd>
      <dt>Partition</dt><dd>${record.partition}</dd>
      <dt>Offset</dt><dd>${format.count(record.offset)}</dd>
      <dt>Time</dt><dd>${format.moment(record.timestamp)} <span class="faint">
      ${format.zone(record.timestamp)}, ${format.ago(record.timestamp)}</span></dd>
    </dl>
    <div class="buttons" role="group" aria-label="Copy as"><span class="faint">Copy as</span>
      <${CopyButton} label="CLI" title="Copy a command that shows this message"
        text=${() => snippet.commandLine(record, address)} />
      <${CopyButton} label="curl" title="Copy a curl command that reads this message"
        text=${() => snippet.curl(record)} />
      <${CopyButton} label="Python" title="Copy Python that reads this message"
        text=${() => snippet.python(record, address)} />
      <${CopyButton} label="JSON" title="Copy the message as JSON, as produce takes it"
        text=${() => JSON.stringify(record)} />
      <button type="button" class="button small" onClick=${again}><${Icon} name="redo" />Send again…</button>
    </div>
    <${Payload} title="Key" text=${record.key ?? null} encoding=${record.key_encoding}>
      ${record.key && html`<${CopyButton} label="Copy" text=${record.key} />`}<//>
    <${Payload} title="Value" text=${record.value ?? null} encoding=${record.value_encoding}>
      ${record.value && html`<${CopyButton} label="Copy" text=${record.value} />`}<//>
    <${Headers} headers=${record.headers ?? []} />`;
}

const word = (text) => html`<em class="faint">${text}</em>`; // and not a text that somebody wrote

function Headers({ headers }) {
  if (!headers.length) return html`<p class="faint">No headers</p>`;
  return html`<section class="section"><h3>Headers</h3><div class="payload"><dl class="pairs mono">
    ${headers.map(({ name, value, encoding }) => html`<dt>${name || word("empty")}</dt><dd>
    ${value || word(value === "" ? "empty" : "null")}${encoding ? ` (${encoding})` : ""}</dd>`)}
  </dl></div></section>`;
}
