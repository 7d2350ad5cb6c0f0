// The form that sends a message, and where it went. It stays open: one message is seldom the last.

import { path, post } from "./api.js";
import { Dialog } from "./dialog.js";
import { Choice, Field } from "./field.js";
import { Icon } from "./icon.js";
import { readMessage } from "./message.js";
import { FormError } from "./notice.js";
import { href, useRoute } from "./router.js";
import { html, useEffect, useState } from "./vendor/htm-preact.js";

const ENCODINGS = [
  ["text", "Text"],
  ["json", "JSON"],
  ["base64", "Base64"],
  ["null", "Tombstone"],
];
const BLANK = { key: "", hasKey: false, value: "", encoding: "text", partition: "", headers: [] };

export function Produce({ topic, onClose }) {
  const { query } = useRoute();
  const [values, setValues] = useState(BLANK);
  const [sent, setSent] = useState(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const change = (changes) => setValues((old) => ({ ...old, ...changes }));
  useEffect(() => {
    if (query.like) readLike(topic.name, query.like).then(change, setError);
  }, [query.like]);
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return; // Ctrl+Enter asks no button whether it may
    setBusy(true);
    setError(null);
    try {
      const answer = await post(path`/api/v1/topics/${topic.name}/records`, { records: [recordOf(values)] });
      setSent(answer.offsets[0]);
      dispatchEvent(new Event("tailrace-produced"));
    } catch (failure) {
      setError(failure);
      setSent(null);
    }
    setBusy(false);
  };
  const press = (event) =>
    event.key === "Enter" &&
    (event.ctrlKey || event.metaKey) &&
    !event.repeat &&
    event.currentTarget.requestSubmit();
  const typeKey = (event) =>
    change({ key: event.target.value, hasKey: event.target.value !== "", keyEncoding: undefined });
  return html`<${Dialog} title="Produce to ${topic.name}" onClose=${onClose}><form onSubmit=${submit}
    onKeyDown=${press}>
    <div class="fields">
      <${Field} label=${values.keyEncoding ? "Key, as base64" : "Key"}><input data-first
        placeholder=${values.hasKey ? "empty" : "none"} spellcheck="false" autocomplete="off"
        value=${values.key} onInput=${typeKey} /><//>
      <${Field} label="Partition"><input type="number" min="0" max=${topic.partitions - 1}
        placeholder="by key" value=${values.partition}
        onInput=${(event) => change({ partition: event.target.value })} /><//>
    </div>
    <div class="row-between"><span class="faint">The value is</span><${Choice} label="The value is"
      options=${ENCODINGS} value=${values.encoding} onChange=${(encoding) => change({ encoding })} /></div>
    ${values.encoding !== "null" && html`<${Field} label="Value"><textarea rows="7" spellcheck="false"
      value=${values.value} onInput=${(event) => change({ value: event.target.value })}></textarea><//>`}
    <${HeaderFields} headers=${values.headers} onChange=${(headers) => change({ headers })} />
    <${FormError} error=${error} />
    ${
      sent &&
      html`<p role="status" class="note">Stored in partition ${sent.partition} at offset ${sent.offset}.${" "}
      <a href=${addressOf(topic.name, sent)}>Show it</a></p>`
    }
    <footer><button type="button" class="button" onClick=${onClose}>Close</button>
      <button class="button primary" disabled=${isBusy} title="Ctrl+Enter"><${Icon}
        name="send" />Send</button></footer>
  </form><//>`;
}

function addressOf(topic, { partition, offset }) {
  return href(["topics", topic, "messages"], { partition, offset, open: `${partition}:${offset}` });
}

function HeaderFields({ headers, onChange }) {
  const set = (at, changes) =>
    onChange(headers.map((each, number) => (number === at ? { ...each, ...changes } : each)));
  return html`<div class="field"><span>Headers</span>
    ${headers.map(
      (header, at) => html`<div class="header-row">
      <input aria-label="Name of header ${at + 1}" placeholder="name" value=${header.name}
        onInput=${(event) => set(at, { name: event.target.value })} />
      <input aria-label="Value of header ${at + 1}" placeholder="value" value=${header.value}
        onInput=${(event) => set(at, { value: event.target.value, encoding: undefined })} />
      <button type="button" class="button ghost square" aria-label="Remove header ${at + 1}"
        onClick=${() => onChange(headers.filter((_, number) => number !== at))}><${Icon} name="close" />
          </button>
    </div>`,
    )}
    <div><button type="button" class="button small"
      onClick=${() => onChange([...headers, { name: "", value: "", isAdded: true }])}><${Icon} name="plus" />Header</button>
        </div>
  </div>`;
}

// What the form says as a record of the API; throws what is wrong with it.
function recordOf({ key, hasKey, value, encoding, partition, headers, keyEncoding }) {
  const record = {
    key: hasKey ? key : null,
    value: encoding === "null" ? null : value,
    headers: headers
      .filter((each) => !each.isAdded || each.name !== "" || each.value !== "") // a row that was left blank
      .map(({ name, value: text, encoding: kind }) => ({
        name,
        value: text,
        ...(kind ? { encoding: kind } : {}),
      })),
  };
  if (keyEncoding) record.key_encoding = keyEncoding;
  if (partition !== "") record.partition = Number(partition);
  if (encoding === "base64") record.encoding = "base64";
  if (encoding === "json") checkJson(value); // and sent as it was typed: parsing would round large numbers
  return record;
}

function checkJson(text) {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`The value is not JSON: ${error.message}`);
  }
}

// The fields of a message that is sent again: its bytes as they are.
async function readLike(topic, id) {
  const [partition, offset] = id.split(":").map(Number);
  const record = await readMessage(topic, partition, offset);
  return {
    key: record.key ?? "",
    hasKey: record.key !== null,
    keyEncoding: record.key_encoding,
    value: record.value ?? "",
    encoding: record.value === null ? "null" : (record.value_encoding ?? "text"),
    headers: record.headers ?? [],
  };
}
