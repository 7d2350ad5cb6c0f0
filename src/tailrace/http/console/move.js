// Moving a group or a subscription: where to, what that would mean for each partition, and then, when its
// name is typed, doing it. A preview that is not true any more is shown anew instead of being done.

import { path, post, put } from "./api.js";
import { Dialog } from "./dialog.js";
import { Field } from "./field.js";
import * as format from "./format.js";
import { FormError } from "./notice.js";
import { Table } from "./table.js";
import { tellUser } from "./toast.js";
import { html, useState } from "./vendor/htm-preact.js";

const SHOWN_MAX = 500;

// ---- the dialog

// `fields(goal, change)` asks where to go, beginning with `first`; `ask(goal, isDry)` gives the moves, of a
// dry run or of the real one. `fixed(move, goal)` is what must still be so when it is done. `refusal` says
// why it cannot be done, if it cannot; it can be looked at then too.
function Move(properties) {
  const { title, name, action, first, fields, ask, fixed, refusal, summary, columns } = properties;
  const { onClose, onDone } = properties;
  const [goal, setGoal] = useState(first);
  const [preview, setPreview] = useState(null);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const change = (changes) => {
    setGoal({ ...goal, ...changes });
    setPreview(null);
    setTyped("");
  };
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
  const look = async () => setPreview(await ask(goal, true));
  const perform = async () => {
    const moves = await ask(goal, true);
    if (textOf(preview) === textOf(moves)) {
      onDone(await ask(goal, false), goal);
      onClose();
      return;
    }
    setPreview(moves);
    setTyped("");
    throw new Error(`${name} or its topics have moved since you looked. This is what would be done now.`);
  };
  const textOf = (moves) => JSON.stringify(moves.map((move) => fixed(move, goal)));
  const submit = (event) => {
    event.preventDefault();
    if (isBusy) return;
    if (preview === null) run(look);
    else if (typed === name && !refusal) run(perform);
  };
  return html`<${Dialog} kind="wide" title=${title} onClose=${onClose}><form onSubmit=${submit}>
    ${refusal && html`<p class="form-error">${refusal}</p>`}
    <div class="fields">${fields(goal, change)}</div>
    <${FormError} error=${error} />
    ${preview && html`<${Preview} title=${title} moves=${preview} summary=${summary} columns=${columns} />`}
    ${
      preview &&
      !refusal &&
      html`<${Field} label=${html`Type <code>${name}</code> to go on`}>
      <input autocomplete="off" spellcheck="false" value=${typed}
        onInput=${(event) => setTyped(event.target.value)} /><//>`
    }
    <footer><button type="button" class="button" onClick=${onClose}>Cancel</button>
      ${
        preview === null
          ? html`<button class="button primary" disabled=${isBusy}>Preview</button>`
          : html`<button class="button danger"
            disabled=${isBusy || typed !== name || Boolean(refusal)}>${action}</button>`
      }
    </footer>
  </form><//>`;
}

function Preview({ title, moves, summary, columns }) {
  return html`<section class="section" aria-label="Preview">
    <p class="note">${format.plural(moves.length, "partition")} would move; ${summary(moves)}</p>
    <div class="scroll"><${Table} label="Preview: ${title}" columns=${columns}
      rows=${moves.slice(0, SHOWN_MAX)} rowKey=${(row) => `${row.topic}:${row.partition}`} /></div>
    ${moves.length > SHOWN_MAX && html`<p class="faint">The first ${SHOWN_MAX} are shown.</p>`}
  </section>`;
}

const PLACE_COLUMNS = [
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
];

// ---- where to

function GoalChoice({ goals, goal, change }) {
  return html`<${Field} label="Start at"><select data-first value=${goal.kind}
    onChange=${(event) => change({ kind: event.target.value, value: "" })}>
    ${goals.map(([kind, text]) => html`<option value=${kind}>${text}</option>`)}</select><//>`;
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

const millisecondsOf = ({ value }) => new Date(value).getTime();

// ---- a group, which must have no members

const GROUP_GOALS = [
  ["earliest", "earliest: the oldest record"],
  ["latest", "latest: after the newest record"],
  ["time", "a time"],
  ["offset", "an offset"],
  ["shift", "records back or ahead"],
];

export function Reset({ group, onClose, onDone }) {
  const topics = [...new Set(group.offsets.map((each) => each.topic))];
  const ask = async (goal, isDry) =>
    (await put(path`/api/v1/consumer-groups/${group.name}/offsets`, bodyOf(goal, isDry))).offsets;
  const finish = (moves) => {
    tellUser(`${group.name} starts elsewhere in ${format.plural(moves.length, "partition")}`);
    onDone();
  };
  const fields = (goal, change) => html`
    <${GoalChoice} goals=${GROUP_GOALS} goal=${goal} change=${change} />
    <${GoalField} goal=${goal} change=${change} />
    <${Field} label="Topic"><select value=${goal.topic}
      onChange=${(event) => change({ topic: event.target.value })}>
      <option value="">all that are committed</option>${topics.map((topic) => html`<option value=${topic}>
      ${topic}</option>`)}</select><//>`;
  return html`<${Move} title="Reset offsets" name=${group.name} action="Reset offsets"
    first=${{ kind: "earliest", value: "", topic: "" }} fields=${fields} ask=${ask} fixed=${fixedOfGroup}
    refusal=${refusalOf(group)} summary=${lagText} columns=${GROUP_COLUMNS} onClose=${onClose}
    onDone=${finish} />`;
}

function refusalOf({ members }) {
  return members.length
    ? `The group has ${format.plural(members.length, "member")}. You can look at what a reset would do;
      to do it, stop its consumers first.`
    : "";
}

function bodyOf(goal, dry_run) {
  const goals = {
    time: () => ({ time: millisecondsOf(goal) }),
    offset: () => ({ offset: Number(goal.value) }),
    shift: () => ({ shift: Number(goal.value) }),
  };
  const { kind, topic } = goal;
  return { to: goals[kind]?.() ?? kind, ...(topic ? { topics: [topic] } : {}), dry_run };
}

// The end of a log moves all the time, and who goes to the end wants to be at it.
const fixedOfGroup = (move, { kind }) => [
  move.topic,
  move.partition,
  move.before,
  kind === "latest" || move.after,
];

function lagText(moves) {
  const lag = moves.reduce((sum, move) => sum + move.lag, 0);
  const clamped = moves.filter((move) => move.clamped).length;
  const outside = clamped
    ? ` In ${format.plural(clamped, "partition")} the place lies outside the log, and the nearer end is taken.`
    : "";
  return `${format.plural(lag, "record")} would wait to be read.${outside}`;
}

const GROUP_COLUMNS = [
  ...PLACE_COLUMNS,
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

// ---- a subscription, whose members go on from there

const REPLAY_GOALS = [
  ["earliest", "earliest: the oldest message"],
  ["latest", "latest: after the newest message"],
  ["time", "a time"],
];

export function Replay({ name, onClose, onDone }) {
  const ask = async (goal, dry_run) =>
    (await post(path`/api/v1/subscriptions/${name}/replay`, { to: placeOf(goal), dry_run })).offsets;
  const finish = (_, { kind }) => {
    tellUser(`${name} is replayed from ${kind === "time" ? "that time" : kind}`);
    onDone();
  };
  const fields = (goal, change) => html`
    <${GoalChoice} goals=${REPLAY_GOALS} goal=${goal} change=${change} />
    <${GoalField} goal=${goal} change=${change} />`;
  return html`<${Move} title="Replay" name=${name} action="Replay" first=${{ kind: "earliest", value: "" }}
    fields=${fields} ask=${ask} fixed=${fixedOfSubscription} summary=${againText} columns=${REPLAY_COLUMNS}
    onClose=${onClose} onDone=${finish} />`;
}

const placeOf = (goal) => (goal.kind === "time" ? `time:${millisecondsOf(goal)}` : goal.kind);

// Members may be at work, so the cursor moves all the time; the end does too.
const fixedOfSubscription = ({ partition, after, end_offset }) => [partition, after === end_offset || after];

function againText(moves) {
  const sum = (name) => moves.reduce((total, move) => total + move[name], 0);
  const passed = format.count(sum("passed_over"));
  return `${format.plural(sum("again"), "message")} would be redelivered, ${passed} would be skipped.`;
}

const [TOPIC, ...PLACES] = PLACE_COLUMNS;

const REPLAY_COLUMNS = [
  { ...TOPIC, wideOnly: true }, // there is but one
  ...PLACES,
  { id: "again", title: "Redelivered", align: "end", render: (row) => format.count(row.again) },
  { id: "passed", title: "Skipped", align: "end", render: (row) => format.count(row.passed_over) },
];
