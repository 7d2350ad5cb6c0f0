// What a page shows when it has nothing to show: it loads, it is empty, it failed, or the node lacks it.

import { html } from "./vendor/htm-preact.js";

// The data of a resource if there is some, else the reason why not.
export function Loaded({ resource, rows = 6, children }) {
  const { data, error, isLoading, reload } = resource;
  if (error && (data === undefined || error.status === 404))
    return html`<${Failure} error=${error} retry=${reload} />`;
  if (isLoading) return html`<${Skeleton} rows=${rows} />`;
  return html`<${Stale} resources=${[resource]} />${children(data)}`;
}

// Says that something on the page is old, and why. That the broker is away is said above every page.
export function Stale({ resources }) {
  const old = resources.find(({ data, error }) => data !== undefined && error && !error.isOffline);
  if (!old) return null;
  return html`<p class="form-error" role="alert">This is how it was. ${sentence(old.error.message)}</p>`;
}

export function Skeleton({ rows = 6 }) {
  const widths = [72, 58, 66, 49, 61, 54, 70, 45];
  return html`<div class="skeleton" role="status" aria-label="Loading">
    ${Array.from({ length: rows }, (_, at) => html`<span
      style=${{ width: `${widths[at % widths.length]}%` }} />`)}
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><h3>${title}</h3>${children}</div>`;
}

export function Failure({ error, retry }) {
  if (error.isAbsent) {
    return html`<${Empty} title="Not offered here"><p>This node does not serve this part of the API.</p><//>`;
  }
  return html`<div class="failure" role="alert">
    <h3>${title(error)}</h3>
    <p>${sentence(error.message)}</p>
    ${retry && html`<button type="button" class="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

// One line inside a form or a dialog.
export function FormError({ error }) {
  return error ? html`<p class="form-error" role="alert">${sentence(error.message)}</p>` : null;
}

// With a capital letter, unless it begins with a name.
const sentence = (text) => text.replace(/^[a-z]+(?=[ ,])/, (word) => word[0].toUpperCase() + word.slice(1));

function title(error) {
  if (error.status === 0) return "No answer";
  if (error.status === 404) return "Not found";
  if (error.status >= 500) return "The broker could not do this";
  return "This did not work";
}
