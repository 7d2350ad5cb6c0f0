// Who reads: consumer groups and subscriptions, with how far each is behind.

import { Badge } from "./badge.js";
import { Filter } from "./field.js";
import * as format from "./format.js";
import { Heading, Tabs } from "./heading.js";
import { Icon } from "./icon.js";
import { NewSubscription } from "./new_subscription.js";
import { Empty, Loaded } from "./notice.js";
import { useResource } from "./resource.js";
import { changeQuery, href } from "./router.js";
import { Table } from "./table.js";
import { html, useState } from "./vendor/htm-preact.js";

export function Consumers({ kind, query }) {
  const isGroups = kind === "groups";
  const groups = useResource(isGroups ? "/api/v1/consumer-groups" : null, { every_ms: 5_000 });
  const subscriptions = useResource(isGroups ? null : "/api/v1/subscriptions", { every_ms: 5_000 });
  const wanted = (query.q ?? "").toLowerCase();
  return html`
    <${Heading} title="Consumers">${
      !isGroups &&
      html`<button type="button" class="button primary"
      onClick=${() => changeQuery({ new: "1" }, { replace: true })}><${Icon}
      name="plus" />New subscription</button>`
    }<//>
    <${Tabs} label="Kinds of consumers" tabs=${[
      ["Groups", href(["groups"]), isGroups],
      ["Subscriptions", href(["subscriptions"]), !isGroups],
    ]} />
    <div class="toolbar"><${Filter} label=${isGroups ? "Filter groups" : "Filter subscriptions"}
      value=${query.q ?? ""}
      onChange=${(q) => changeQuery({ q }, { replace: true })} /></div>
    ${
      isGroups
        ? html`<${Loaded} resource=${groups}>${(data) => shownGroups(data.groups, wanted)}<//>`
        : html`<${Loaded} resource=${subscriptions}>
          ${(data) => shownSubscriptions(data.subscriptions, wanted)}<//>`
    }
    ${query.new && !isGroups && html`<${NewSubscription}
      onClose=${() => changeQuery({ new: null }, { replace: true })} />`}`;
}

function shownGroups(groups, wanted) {
  if (!groups.length) {
    return html`<${Empty} title="No consumer groups">
      <p>A Kafka consumer with a <code>group.id</code> appears here when it joins or commits.</p><//>`;
  }
  const rows = groups.filter((each) => each.name.toLowerCase().includes(wanted));
  return rows.length
    ? html`<${GroupTable} rows=${rows} />`
    : html`<${Empty} title="No group has such a name" />`;
}

function shownSubscriptions(subscriptions, wanted) {
  if (!subscriptions.length) {
    return html`<${Empty} title="No subscriptions">
      <p>A subscription delivers a topic's messages to its members one by one, and each is
      acknowledged on its own.</p><//>`;
  }
  const rows = subscriptions.filter((each) => each.name.toLowerCase().includes(wanted));
  return rows.length
    ? html`<${SubscriptionTable} rows=${rows} />`
    : html`<${Empty} title="No subscription has such a name" />`;
}

const GROUP_COLUMNS = [
  {
    id: "name",
    title: "Group",
    width: "minmax(0, 2fr)",
    sort: (row) => row.name,
    title_of: (row) => row.name,
    render: (row) => html`<span class="strong">${row.name}</span>`,
  },
  {
    id: "state",
    title: "State",
    width: "minmax(80px, 1fr)",
    sort: (row) => row.state,
    render: (row) => html`<${Badge} state=${row.state} />`,
  },
  {
    id: "members",
    title: "Members",
    align: "end",
    wideOnly: true,
    width: "80px",
    sort: (row) => row.member_count,
    render: (row) => format.count(row.member_count),
  },
  {
    id: "topics",
    title: "Topics",
    wideOnly: true,
    width: "minmax(0, 1.6fr)",
    title_of: (row) => row.topics?.join(", "),
    render: (row) => row.topics?.join(", ") || html`<span class="faint">none</span>`,
  },
  {
    id: "lag",
    title: "Lag",
    align: "end",
    width: "minmax(60px, 0.7fr)",
    sort: (row) => row.lag,
    render: (row) => format.count(row.lag),
  },
];

export function GroupTable({ rows }) {
  const [sort, setSort] = useState({ by: "name", down: false });
  return html`<${Table} label="Consumer groups" columns=${GROUP_COLUMNS} rows=${rows}
    rowKey=${(row) => row.name} sort=${sort}
    onSort=${setSort} link=${(row) => href(["groups", row.name])} />`;
}

const SUBSCRIPTION_COLUMNS = [
  {
    id: "name",
    title: "Subscription",
    width: "minmax(0, 2fr)",
    sort: (row) => row.name,
    title_of: (row) => row.name,
    render: (row) => html`<span class="strong">${row.name}</span>`,
  },
  {
    id: "state",
    title: "State",
    width: "minmax(70px, 0.8fr)",
    sort: (row) => row.state,
    render: (row) => html`<${Badge} state=${row.state} />`,
  },
  {
    id: "topic",
    title: "Topic",
    wideOnly: true,
    width: "minmax(0, 1.4fr)",
    sort: (row) => row.topic,
    render: (row) => row.topic,
  },
  {
    id: "mode",
    title: "Mode",
    wideOnly: true,
    width: "90px",
    sort: (row) => row.mode,
    render: (row) => row.mode,
  },
  {
    id: "members",
    title: "Members",
    align: "end",
    wideOnly: true,
    width: "80px",
    sort: (row) => row.member_count,
    render: (row) => format.count(row.member_count),
  },
  {
    id: "unacknowledged",
    title: "Unacknowledged",
    align: "end",
    wideOnly: true,
    width: "118px",
    sort: (row) => row.unacknowledged,
    render: (row) => format.count(row.unacknowledged),
  },
  {
    id: "lag",
    title: "Lag",
    align: "end",
    width: "minmax(60px, 0.7fr)",
    sort: (row) => row.lag,
    render: (row) => format.count(row.lag),
  },
];

export function SubscriptionTable({ rows }) {
  const [sort, setSort] = useState({ by: "name", down: false });
  return html`<${Table} label="Subscriptions" columns=${SUBSCRIPTION_COLUMNS} rows=${rows}
    rowKey=${(row) => row.name} sort=${sort}
    onSort=${setSort} link=${(row) => href(["subscriptions", row.name])} />`;
}
