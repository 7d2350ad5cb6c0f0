// Which page is shown: the path and the query are the whole state of it, so that every view has a link.
//
// Links are plain <a href>; a click on one of ours changes the address without loading the page again. What
// is not a page of the console (/metrics, /openapi.json, /api) is left to the browser.

import { root } from "./api.js";
import { useEffect, useState } from "./vendor/htm-preact.js";

const PAGES = new Set(["", "topics", "groups", "subscriptions", "transactions", "pipelines", "charts", "cluster"]);
const watchers = new Set();

// {segments: ["topics", "orders"], query: {offset: "5"}} of the address as it is now.
function read() {
  const path = location.pathname.startsWith(root) ? location.pathname.slice(root.length) : location.pathname;
  return {
    segments: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(location.search)),
  };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// The address of a page: href(["topics", name], {offset: 5}).
export function href(segments, query = {}) {
  const given = Object.entries(query).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return `${root}/${segments.map(encodeURIComponent).join("/")}${search}`;
}

export function go(address, { replace = false } = {}) {
  const before = location.pathname;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  if (!replace && location.pathname !== before) scrollTo(0, 0);
  tell();
}

// Some of the query is different now; null takes a parameter away.
export function changeQuery(changes, { replace = false } = {}) {
  const { segments, query } = read();
  go(href(segments, { ...query, ...changes }), { replace });
}

export function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const update = () => setRoute(read());
    watchers.add(update);
    return () => watchers.delete(update);
  }, []);
  return route;
}

function tell() {
  for (const watcher of [...watchers]) watcher();
}

function isPage(url) {
  if (url.origin !== location.origin || !url.pathname.startsWith(`${root}/`)) return false;
  return PAGES.has(url.pathname.slice(root.length + 1).split("/")[0]);
}

addEventListener("popstate", tell);
document.addEventListener("click", (event) => {
  if (
    event.defaultPrevented ||
    event.button ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey
  ) {
    return;
  }
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download") || !isPage(new URL(link.href))) return;
  if (link.hash) return; // a place on this page: the browser goes there, and takes the focus along
  event.preventDefault();
  if (link.href !== location.href) go(link.href);
});
