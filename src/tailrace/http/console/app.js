// The frame around every page: where one can go, whether the broker answers, and which page the address
// means.

import { connection, logOut } from "./api.js";
import { useUpgrade } from "./build.js";
import { Cluster } from "./cluster.js";
import { Consumers } from "./consumers.js";
import { Group } from "./group.js";
import { Icon, Mark } from "./icon.js";
import { Keys, showKeys } from "./keys.js";
import { later } from "./later.js";
import { Metrics } from "./metrics.js";
import { Empty } from "./notice.js";
import { Overview } from "./overview.js";
import { useResource } from "./resource.js";
import { href, useRoute } from "./router.js";
import { Subscription } from "./subscription.js";
import { Toasts } from "./toast.js";
import { Topic } from "./topic.js";
import { Topics } from "./topics.js";
import { html, render, useEffect, useErrorBoundary, useState } from "./vendor/htm-preact.js";

const Pipelines = later(() => import("./pipelines.js").then((module) => module.Pipelines));
const Transactions = later(() => import("./transactions.js").then((module) => module.Transactions));

const PLACES = [
  ["Overview", "overview", [], [""]],
  ["Topics", "topics", ["topics"], ["topics"]],
  ["Consumers", "consumers", ["groups"], ["groups", "subscriptions"]],
  ["Transactions", "transactions", ["transactions"], ["transactions"]],
  ["Pipelines", "pipelines", ["pipelines"], ["pipelines"]],
  ["Metrics", "charts", ["charts"], ["charts"]],
  ["Cluster", "cluster", ["cluster"], ["cluster"]],
];

function App() {
  const route = useRoute();
  const here = route.segments[0] ?? "";
  return html`
    <a class="skip" href="#content">Skip to the content</a>
    <${Banner} />
    <div class="shell">
      <nav class="side" aria-label="Pages">
        <a class="brand" href=${href([])}><${Mark} />Tailrace</a>
        ${PLACES.map(
          ([title, icon, segments, names]) => html`<a class="place" key=${title} href=${href(segments)}
          aria-current=${names.includes(here) ? "page" : null}><${Icon} name=${icon} />${title}</a>`,
        )}
        <${SideFoot} />
      </nav>
      <main id="content" tabindex="-1"><${Page} key=${pageKey(route)} route=${route} /></main>
    </div>
    <${Keys} /><${Toasts} />`;
}

// A page keeps its state while only its query or its tab changes.
const pageKey = ({ segments }) => segments.slice(0, 2).join("/");

function Page({ route }) {
  const [failure, reset] = useErrorBoundary((error) => console.error(error));
  if (failure) {
    return html`<div class="page"><div class="failure" role="alert"><h3>This page has a fault</h3>
      <p>${String(failure.message ?? failure)}</p>
      <button class="button" onClick=${() => {
        reset();
        location.reload();
      }}>Load it again</button></div></div>`;
  }
  return html`<div class="page">${choose(route)}</div>`;
}

function choose({ segments, query }) {
  const [place = "", name, tab] = segments;
  if (place === "") return html`<${Overview} />`;
  if (place === "topics") {
    return name === undefined
      ? html`<${Topics} query=${query} />`
      : html`<${Topic} name=${name} tab=${tab} query=${query} />`;
  }
  if (place === "groups" && name !== undefined) return html`<${Group} name=${name} query=${query} />`;
  if (place === "subscriptions" && name !== undefined) return html`<${Subscription} name=${name} />`;
  if (place === "groups" || place === "subscriptions")
    return html`<${Consumers} kind=${place} query=${query} />`;
  if (place === "transactions") return html`<${Transactions} query=${query} />`;
  if (place === "pipelines") return html`<${Pipelines} />`;
  if (place === "charts") return html`<${Metrics} query=${query} />`;
  if (place === "cluster") return html`<${Cluster} query=${query} />`;
  return html`<${Empty} title="There is no such page"><p><a href=${href([])}>Go to the overview</a></p><//>`;
}

function Banner() {
  const [isOnline, setOnline] = useState(connection.isOnline);
  useEffect(() => connection.watch(setOnline), []);
  const isOld = useUpgrade();
  if (!isOnline)
    return html`<div class="banner" role="alert"><i>
    </i>The broker does not answer. Trying again by itself…</div>`;
  if (!isOld) return null;
  return html`<div class="banner" role="status">The node has another console than this one.
    <button type="button" class="button small" onClick=${() => location.reload()}>Load it</button></div>`;
}

function SideFoot() {
  const [choice, setChoice] = useState(tailraceTheme.choice);
  useEffect(() => tailraceTheme.watch(setChoice), []);
  const { choices } = tailraceTheme;
  const next = choices[(choices.indexOf(choice) + 1) % choices.length];
  const icon = { auto: "auto", light: "sun", dark: "moon" }[choice];
  const who = useResource("/api/v1/whoami").data;
  return html`<div class="side-foot">
    <div>
      <button type="button" class="button ghost square" onClick=${() => tailraceTheme.choose(next)}
        aria-label="Theme: ${choice}. Change to ${next}" title="Theme: ${choice}"><${Icon} name=${icon} />
          </button>
      <button type="button" class="button ghost square" onClick=${showKeys} aria-label="Keyboard shortcuts"
        title="Keyboard shortcuts (?)"><${Icon} name="keyboard" /></button>
    </div>
    ${who?.csrf && html`<button type="button" class="button small" title="Logged in as ${who.principal}"
      onClick=${logOut}>Log out</button>`}
  </div>`;
}

render(html`<${App} />`, document.getElementById("app"));
