// Moving a group: where to, what that would mean for each partition, and then, when its name is typed,
// doing it. A preview that is not true any more is shown anew instead of being done.

import { path, put } from "./api.js";
import { Dialog } from "./dialog.js";
import { Field } from "./field.js";
import * as format from "./format.js";
import { FormError } from "./notice.js";
import { Table } from "./table.js";
import { tellUser } from "./toast.js";
import { html, useState } from "./vendor/htm-preact.js";

const GOALS = [
  ["earliest", "the oldest record"],
  ["latest", "the end: skip what is there"],
  ["time", "a time"],
  ["offset", "an offset"],
  ["shift", "records back or ahead"],
];
const SHOWN_MAX = 500;

export function Reset({ group, onClose, onDone }) {
  const topics = [...new Set(group.offsets.map((each) => each.topic))];
  const [goal, setGoal] = useState({ kind: "earliest", value: "", topic: "" });
  const [preview, setPreview] = useState(null);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const change = (changes) => {
    setGoal({ ...goal, ...changes });
    setPreview(null);
    setTyped("");
  };
  const ask = (isDry) => put(path`/api/v1/consumer-groups/${group.group}/offsets`, bodyOf(goal, isDry));
  const run = async (work) => {
    setBusy(true);
    setError(null);
    try {
      await work();
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  const look = async () => setPreview((await ask(true)).offsets);
  const perform = async () => {
    const { offsets } = await ask(true);
    if (!isStale(preview, offsets, goal)) {
      finish(await ask(false));
      return;
    }
    setPreview(offsets);
    setTyped("");
    throw new Error("The group or its topics have moved since you looked. This is what would be done now.");
  };
  const finish = (answer) => {
    tellUser(`${group.group} goes on elsewhere in ${format.plural(answer.offsets.length, "partition")}`);
    onDone();
    onClose();
  };
  const submit = (event) => {
    event.preventDefault();
    if (isBusy) return;
    if (preview === null) run(look);
    else if (typed === group.group) run(perform);
  };
  return html`<${Dialog} kind="wide" title="Reset offsets" onClose=${onClose}><form onSubmit=${submit}>
    ${
      group.members.length > 0 &&
      html`<p class="form-error">The group has ${format.plural(group.members.length, "member")}. You can
      look at what a reset would do; to do it, stop its consumers first.</p>`
    }
    <div class="fields">
      <${Field} label="Go on at"><select data-first value=${goal.kind}
        onChange=${(event) => change({ kind: event.target.value, value: "" })}>
        ${GOALS.map(([kind, text]) => html`<option value=${kind}>${text}</option>`)}</select><//>
      <${GoalField} goal=${goal} change=${change} />
      <${Field} label="Topic"><select value=${goal.topic}
        onChange=${(event) => change({ topic: event.target.value })}>
        <option value="">all that are committed</option>${topics.map((topic) => html`<option value=${topic}>
        ${topic}</option>`)}</select><//>
    </div>
    <${FormError} error=${error} />
    ${preview && html`<${Preview} moves=${preview} />`}
    ${
      preview &&
      !group.members.length &&
      html`<${Field} label=${html`Type <code>${group.group}</code> to reset it`}>
      <input autocomplete="off" spellcheck="false" value=${typed}
        onInput=${(event) => setTyped(event.target.value)} /><//>`
    }
    <footer><button type="button" class="button" onClick=${onClose}>Cancel</button>
      ${
        preview === null
          ? html`<button class="button primary" disabled=${isBusy}>Preview</button>`
          : html`<button class="button danger"
            disabled=${isBusy || typed !== group.group || group.members.length > 0}>Reset offsets</button>`
      }
    </footer>
  </form><//>`;
}

function GoalField({ goal, change }) {
  const set = (event) => change({ value: event.target.value });
  if (goal.kind === "time") {
    return html`<${Field} label="Time"><input required type="datetime-local" step="1" value=${goal.value}
      onInput=${set} /><//>`;
  }
  if (goal.kind === "offset")
    return html`<${Field} label="Offset"><input required type="number" min="0" value=${goal.value}
      onInput=${set} /><//>`;
  if (goal.kind === "shift") {
    return html`<${Field} label="Records" hint="Less than 0 goes back"><input required type="number"
      value=${goal.value} onInput=${set} /><//>`;
  }
  return null;
}

function bodyOf({ kind, value, topic }, dry_run) {
  const goals = {
    time: () => ({ time: new Date(value).getTime() }),
    offset: () => ({ offset: Number(value) }),
    shift: () => ({ shift: Number(value) }),
  };
  return { to: goals[kind]?.() ?? kind, ...(topic ? { topics: [topic] } : {}), dry_run };
}

// Whether other moves would be made than those that were shown. The end of a log moves all the time, and who
// goes to the end wants to be at it.
function isStale(shown, now, { kind }) {
  const textOf = (moves) =>
    JSON.stringify(
      moves.map((move) => [move.topic, move.partition, move.before, kind === "latest" || move.after]),
    );
  return textOf(shown) !== textOf(now);
}

const COLUMNS = [
  { id: "topic", title: "Topic", width: "minmax(0, 1.6fr)", render: (row) => row.topic },
  { id: "partition", title: "Part.", align: "end", width: "44px", render: (row) => row.partition },
  { id: "before", title: "Now", align: "end", render: (row) => format.count(row.before) },
  {
    id: "after",
    title: "Then",
    align: "end",
    render: (row) => html`<span class="strong">${format.count(row.after)}</span>`,
    title_of: (row) => (row.clamped ? "what was asked for lies outside the log" : null),
  },
  {
    id: "change",
    title: "Change",
    align: "end",
    wideOnly: true,
    render: (row) => signed(row.after - (row.before ?? row.start_offset)),
  },
  { id: "lag", title: "Lag then", align: "end", render: (row) => format.count(row.lag) },
];

const signed = (value) => (value > 0 ? `+${format.count(value)}` : format.count(value));

function Preview({ moves }) {
  const lag = moves.reduce((sum, move) => sum + move.lag, 0);
  const clamped = moves.filter((move) => move.clamped).length;
  return html`<section class="section" aria-label="Preview">
    <p class="note">
    ${format.plural(moves.length, "partition")} would move; ${format.plural(lag, "record")} would wait to be read.${
      clamped
        ? ` In ${format.plural(clamped, "partition")} the place lies outside the log, and the nearer end is taken.`
        : ""
    }</p>
    <div class="scroll"><${Table} label="Preview of the reset" columns=${COLUMNS}
      rows=${moves.slice(0, SHOWN_MAX)} rowKey=${(row) => `${row.topic}:${row.partition}`} /></div>
    ${moves.length > SHOWN_MAX && html`<p class="faint">The first ${SHOWN_MAX} are shown.</p>`}
  </section>`;
}
