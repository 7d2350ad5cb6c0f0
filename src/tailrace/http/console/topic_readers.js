// Who reads a topic: its consumer groups and its subscriptions.

import { GroupTable, SubscriptionTable } from "./consumers.js";
import { Empty, Loaded } from "./notice.js";
import { useResource } from "./resource.js";
import { html } from "./vendor/htm-preact.js";

export function TopicReaders({ name }) {
  const groups = useResource("/api/v1/consumer-groups", { every_ms: 5_000 });
  const subscriptions = useResource("/api/v1/subscriptions", { every_ms: 5_000 });
  return html`
    <section class="section"><header><h2>Consumer groups</h2></header>
      <${Loaded} resource=${groups} rows=${3}>${(data) => {
        const rows = data.groups
          .filter((group) => group.topics.includes(name))
          .map((group) => ({ ...group, lag: group.lag_by_topic[name] }));
        return rows.length
          ? html`<${GroupTable} rows=${rows} />`
          : html`<${Empty} title="No group reads this topic">
            <p>A group appears here when a consumer joins it or commits an offset.</p><//>`;
      }}<//>
    </section>
    <section class="section"><header><h2>Subscriptions</h2></header>
      <${Loaded} resource=${subscriptions} rows=${3}>${(data) => {
        const rows = data.subscriptions.filter((each) => each.topic === name);
        return rows.length
          ? html`<${SubscriptionTable} rows=${rows} />`
          : html`<${Empty} title="No subscription of this topic" />`;
      }}<//>
    </section>`;
}
