// All topics: filtered as one types, sorted by any column, with what runs through each of them.

import { post, query as queryText } from "./api.js";
import { Dialog } from "./dialog.js";
import { Field, Filter } from "./field.js";
import * as format from "./format.js";
import { Heading } from "./heading.js";
import { Icon } from "./icon.js";
import { Empty, FormError, Loaded } from "./notice.js";
import { useResource } from "./resource.js";
import { changeQuery, go, href } from "./router.js";
import { meaning } from "./setting.js";
import { Sparkline } from "./sparkline.js";
import { Table } from "./table.js";
import { tellUser } from "./toast.js";
import { html, useMemo, useState } from "./vendor/htm-preact.js";

export function Topics({ query }) {
  const isInternal = query.internal === "true";
  const topics = useResource(`/api/v1/topics${queryText({ internal: isInternal ? "true" : "" })}`, {
    every_ms: 10_000,
  });
  const metrics = useResource("/api/v1/metrics/topics", { every_ms: 5_000 });
  const rows = useMemo(() => join(topics.data, metrics.data), [topics.data, metrics.data]);
  const wanted = (query.q ?? "").toLowerCase();
  const shown = useMemo(() => rows.filter((row) => row.name.toLowerCase().includes(wanted)), [rows, wanted]);
  const sort = { by: query.sort ?? "name", down: query.down === "true" };
  const onSort = ({ by, down }) => changeQuery({ sort: by, down: down ? "true" : null }, { replace: true });
  const showInternal = (event) =>
    changeQuery({ internal: event.target.checked ? "true" : null }, { replace: true });
  const create = (isOpen) => changeQuery({ new: isOpen ? "1" : null }, { replace: true });
  return html`
    <${Heading} title="Topics">
      <button type="button" class="button primary" onClick=${() => create(true)}><${Icon}
        name="plus" />New topic</button>
    <//>
    <div class="toolbar">
      <${Filter} label="Filter topics" value=${query.q ?? ""}
        onChange=${(q) => changeQuery({ q }, { replace: true })} />
      <label class="check"><input type="checkbox" checked=${isInternal}
        onChange=${showInternal} />Internal topics</label>
      <span class="end faint" role="status">${topics.data && counted(shown.length, rows.length)}</span>
    </div>
    <${Loaded} resource=${topics}>${() =>
      shown.length
        ? html`<${Table} label="Topics" columns=${COLUMNS} rows=${shown} rowKey=${(row) => row.name}
          sort=${sort} onSort=${onSort}
          link=${(row) => href(["topics", row.name])} />`
        : html`<${None} isFiltered=${rows.length > 0} create=${() => create(true)} />`}<//>
    ${query.new && html`<${NewTopic} onClose=${() => create(false)} />`}`;
}

const counted = (shown, all) =>
  shown === all ? format.plural(all, "topic") : `${format.count(shown)} of ${format.plural(all, "topic")}`;

function join(list, metrics) {
  const figures = new Map((metrics?.topics ?? []).map((each) => [each.name, each]));
  return (list?.topics ?? []).map((topic) => ({ ...topic, ...figures.get(topic.name) }));
}

const COLUMNS = [
  {
    id: "name",
    title: "Name",
    width: "minmax(0, 2.4fr)",
    sort: (row) => row.name,
    title_of: (row) => row.name,
    render: (row) => html`<span class="strong">${row.name}</span>`,
  },
  {
    id: "partitions",
    title: "Partitions",
    width: "90px",
    align: "end",
    wideOnly: true,
    sort: (row) => row.partitions,
    render: (row) => format.count(row.partitions),
  },
  {
    id: "records",
    title: "Records",
    align: "end",
    width: "minmax(70px, 0.8fr)",
    sort: (row) => row.records,
    render: (row) => format.compact(row.records),
    title_of: (row) => format.count(row.records),
  },
  {
    id: "bytes",
    title: "Size",
    align: "end",
    wideOnly: true,
    width: "minmax(80px, 0.8fr)",
    sort: (row) => row.bytes,
    render: (row) => format.bytes(row.bytes),
  },
  {
    id: "rate",
    title: "In",
    align: "end",
    width: "80px",
    sort: (row) => row.records_in_per_s,
    render: (row) => format.perSecond(row.records_in_per_s),
  },
  {
    id: "trend",
    title: "Trend",
    align: "end",
    width: "96px",
    wideOnly: true,
    render: (row) => html`<${Sparkline} values=${row.sparkline} />`,
  },
];

function None({ isFiltered, create }) {
  if (isFiltered)
    return html`<${Empty} title="No topic has such a name"><p>The filter looks at any part of the name.</p>
      <//>`;
  return html`<${Empty} title="No topics yet">
    <p>A topic is made here, by any Kafka client, or by the first record sent to it.</p>
    <button type="button" class="button primary" onClick=${create}>New topic</button><//>`;
}

// What the broker takes for a field that is left empty: "4 (broker default)".
function useDefaults() {
  const { data } = useResource("/api/v1/configs");
  const values = new Map((data?.configs ?? []).map((each) => [each.name, each.value]));
  return (name) => {
    const value = values.get(name);
    return value === undefined ? "broker default" : `${meaning(name, value) || value} (broker default)`;
  };
}

function NewTopic({ onClose }) {
  const usual = useDefaults();
  const [values, setValues] = useState({
    name: "",
    partitions: "",
    replication_factor: "",
    retention: "",
    policy: "",
  });
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const set = (name) => (event) => setValues({ ...values, [name]: event.target.value });
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const topic = await post("/api/v1/topics", topicBody(values));
      for (const warning of topic.warnings ?? []) tellUser(warning, { tone: "warn" });
      tellUser(`Topic ${topic.name} is there`);
      onClose();
      go(href(["topics", topic.name]));
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<${Dialog} title="New topic" onClose=${onClose}>
    <form onSubmit=${submit}>
      <${Field} label="Name" hint="Letters, digits, dot, dash and underscore"><input data-first required
        maxlength="249" spellcheck="false"
        autocomplete="off" value=${values.name} onInput=${set("name")} /><//>
      <div class="fields">
        <${Field} label="Partitions"><input type="number" min="1" placeholder=${usual("num.partitions")}
          value=${values.partitions} onInput=${set("partitions")} /><//>
        <${Field} label="Replication factor"><input type="number" min="1" placeholder=${usual("default.replication.factor")}
          value=${values.replication_factor} onInput=${set("replication_factor")} /><//>
      </div>
      <div class="fields">
        <${Field} label="Retention time"><select value=${values.retention} onChange=${set("retention")}>
          <option value="">${usual("log.retention.ms")}</option>
          ${RETENTIONS.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select><//>
        <${Field} label="Cleanup policy"><select value=${values.policy} onChange=${set("policy")}>
          <option value="">${usual("log.cleanup.policy")}</option>
          ${POLICIES.map((each) => html`<option value=${each}>${each}</option>`)}</select><//>
      </div>
      <${FormError} error=${error} />
      <footer><button type="button" class="button" onClick=${onClose}>Cancel</button>
        <button class="button primary" disabled=${isBusy}>Create topic</button></footer>
    </form>
  <//>`;
}

const HOUR_MS = 3_600_000;
const RETENTIONS = [
  [HOUR_MS, "1 hour"],
  [24 * HOUR_MS, "1 day"],
  [168 * HOUR_MS, "7 days"],
  [720 * HOUR_MS, "30 days"],
  [-1, "no limit"],
];
const POLICIES = ["delete", "compact", "compact,delete"];

function topicBody(values) {
  const configs = {};
  if (values.retention !== "") configs["retention.ms"] = String(values.retention);
  if (values.policy) configs["cleanup.policy"] = values.policy;
  const number = (text) => (text === "" ? null : Number(text));
  return {
    name: values.name.trim(),
    partitions: number(values.partitions),
    replication_factor: number(values.replication_factor),
    configs,
  };
}
