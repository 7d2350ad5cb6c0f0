// The messages of a topic: sought by place, time or text, page by page, or live as they are written.
//
// The whole view is in the address: ?partition=0&offset=5, ?ts=..., ?from=oldest, ?contains=..., ?live=1,
// ?open=0:5.

import { Choice, SearchField, Select } from "./field.js";
import * as format from "./format.js";
import { Icon } from "./icon.js";
import { idOf, MessageDrawer, MessageHead, MessageLine } from "./message.js";
import { Empty, Failure, Skeleton } from "./notice.js";
import { isSearch, newerCursor, olderCursor, PARTITIONS_MAX, readPage } from "./reading.js";
import { changeQuery } from "./router.js";
import { cameCalmly, RECORDS_MAX, useTail } from "./tail.js";
import { html, useCallback, useEffect, useMemo, useState } from "./vendor/htm-preact.js";

const LISTED_PARTITIONS = 200;
const NOWHERE = { from: null, offset: null, ts: null, before: null, after: null, order: null };

export function Messages({ topic, query }) {
  const isLive = query.live === "1";
  return html`
    <${Toolbar} topic=${topic} query=${query} isLive=${isLive} />
    ${isLive ? html`<${Live} topic=${topic} query=${query} />` : html`<${Pages} topic=${topic}
      query=${query} />`}`;
}

// ---- what to look at

function Toolbar({ topic, query, isLive }) {
  const seek = seekOf(query);
  const [wanted, setWanted] = useState(seek);
  useEffect(() => setWanted(seek), [seek]);
  const choose = (kind) => {
    setWanted(kind);
    if (kind === "newest") changeQuery({ ...NOWHERE });
    if (kind === "oldest") changeQuery({ ...NOWHERE, from: "oldest" });
  };
  const kinds = [
    ["newest", "Newest"],
    ["oldest", "Oldest"],
    ["offset", "Offset"],
    ["time", "Time"],
  ];
  return html`<div class="toolbar">
    <${PartitionField} topic=${topic} value=${query.partition ?? ""} />
    ${!isLive && html`<${Choice} label="Where to read" options=${kinds} value=${wanted}
      onChange=${choose} />`}
    ${!isLive && wanted === "offset" && html`<${OffsetField} query=${query} />`}
    ${!isLive && wanted === "time" && html`<${TimeField} query=${query} />`}
    <${SearchField} isFirst label="Search key and value" value=${query.contains ?? ""}
      onChange=${(contains) => changeQuery({ contains, before: null, after: null })} />
    <${SearchField} label="Exact key" value=${query.key ?? ""}
      onChange=${(key) => changeQuery({ key, before: null, after: null })} />
    <span class="end"><button type="button" class="button" aria-pressed=${isLive ? "true" : "false"}
      onClick=${() => changeQuery({ ...NOWHERE, live: isLive ? null : "1" })}><${Icon}
      name="play" />Live</button></span>
  </div>`;
}

function seekOf(query) {
  if (query.before || query.after) return "page"; // none of the choices: pages were turned since
  if (query.offset !== undefined) return "offset";
  if (query.ts !== undefined) return "time";
  return query.from === "oldest" ? "oldest" : "newest";
}

function PartitionField({ topic, value }) {
  const change = (partition) => changeQuery({ partition, before: null, after: null, offset: null });
  if (topic.partitions > LISTED_PARTITIONS) {
    return html`<input type="number" aria-label="Partition" placeholder="All partitions" min="0"
      max=${topic.partitions - 1} value=${value}
      onChange=${(event) => change(event.target.value)} />`;
  }
  const options = [
    ["", "All partitions"],
    ...topic.partition_details.map((part) => [part.partition, `Partition ${part.partition}`]),
  ];
  return html`<${Select} label="Partition" value=${value} onChange=${change} options=${options} />`;
}

function OffsetField({ query }) {
  const submit = (event) => {
    event.preventDefault();
    const offset = new FormData(event.target).get("offset");
    if (offset !== "") changeQuery({ ...NOWHERE, offset, partition: query.partition ?? "0" });
  };
  return html`<form class="toolbar" onSubmit=${submit}>
    <input name="offset" type="number" min="0" aria-label="Offset" placeholder="Offset"
      value=${query.offset ?? ""} />
    <button class="button">Go</button></form>`;
}

function TimeField({ query }) {
  const submit = (event) => {
    event.preventDefault();
    const at = new Date(new FormData(event.target).get("time"));
    if (!Number.isNaN(at.getTime())) changeQuery({ ...NOWHERE, ts: at.getTime() });
  };
  const value = /^\d+$/.test(query.ts ?? "")
    ? format.moment(Number(query.ts)).slice(0, 19).replace(" ", "T")
    : "";
  return html`<form class="toolbar" onSubmit=${submit}>
    <input name="time" type="datetime-local" step="1" aria-label="Time" value=${value} /><button
      class="button">Go</button></form>`;
}

// ---- page by page

function Pages({ topic, query }) {
  const place = useMemo(
    () => query,
    [JSON.stringify({ ...query, open: null, produce: null, like: null, order: null })],
  );
  const [state, setState] = useState({ page: null, error: null });
  const [turn, setTurn] = useState(0);
  const refresh = useCallback(() => setTurn((old) => old + 1), []);
  useEffect(() => {
    const running = new AbortController();
    readPage(topic, place, running.signal).then(
      (page) => setState({ page, error: null }),
      (error) => !running.signal.aborted && setState({ page: null, error }),
    );
    return () => running.abort();
  }, [topic.name, place, turn]);
  useEffect(() => {
    addEventListener("tailrace-produced", refresh);
    return () => removeEventListener("tailrace-produced", refresh);
  }, []);

  const { page, error } = state;
  const isNewestFirst = (query.order ?? usualOrder(query)) === "newest";
  const shown = useMemo(
    () => (page && isNewestFirst ? [...page.records].reverse() : (page?.records ?? [])),
    [page, isNewestFirst],
  );
  return html`
    ${
      error
        ? html`<${Failure} error=${error} retry=${refresh} />`
        : page === null
          ? html`<${Skeleton} rows=${10} />`
          : shown.length
            ? html`<div class="messages ${widthOf(shown)}"><${MessageHead} />${shown.map(
                (record) => html`<${MessageLine} key=${idOf(record)}
          record=${record} isOpen=${query.open === idOf(record)} />`,
              )}</div>`
            : html`<${Nothing} topic=${topic} place=${place} />`
    }
    ${page && html`<${Paging} topic=${topic} place=${place} page=${page}
      order=${isNewestFirst ? "newest" : "oldest"} refresh=${refresh} />`}
    <${Opened} topic=${topic} query=${query} records=${shown} />`;
}

const usualOrder = (query) =>
  query.from === "oldest" || query.offset !== undefined || query.ts !== undefined ? "oldest" : "newest";

function Paging({ topic, place, page, order, refresh }) {
  const older = isSearch(place) ? null : olderCursor(topic, page);
  const newer = newerCursor(topic, page);
  const turn = (changes) => {
    changeQuery({ ...NOWHERE, order, ...changes });
    scrollTo({ top: 0 });
  };
  const swap = () => changeQuery({ order: order === "newest" ? "oldest" : "newest" }, { replace: true });
  const isTooMany = !place.partition && topic.partitions > PARTITIONS_MAX;
  return html`<div class="paging">
    <span role="status">
    ${pageText(place, page)}${isTooMany ? " Choose a partition to turn pages." : ""}</span>
    <span class="end">
      <button type="button" class="button small" onClick=${swap}><${Icon}
        name=${order === "newest" ? "down" : "up"} />
          ${order === "newest" ? "Newest first" : "Oldest first"}</button>
      <button type="button" class="button small" onClick=${refresh}>Refresh</button>
      ${!isSearch(place) && html`<button type="button" class="button small" disabled=${!older}
        onClick=${() => turn({ before: older })}>Older</button>`}
      <button type="button" class="button small" disabled=${!newer} onClick=${() => turn({ after: newer })}>
      ${isSearch(place) ? "Search on" : "Newer"}</button>
    </span>
  </div>`;
}

function pageText(place, page) {
  const shown = page.records.length;
  if (!isSearch(place) || page.scanned === null) return `${format.plural(shown, "message")}.`;
  const found = format.plural(page.count, "message");
  const which = page.count > shown ? `The newest ${shown} of ${found},` : found;
  return `${which} among ${format.count(page.scanned)} that were searched.`;
}

function Nothing({ topic, place }) {
  const isEmpty = topic.partition_details.every((part) => part.start_offset === part.end_offset);
  if (isEmpty) {
    return html`<${Empty} title="No messages yet"><p>They appear here when somebody writes.</p>
      <button type="button" class="button primary"
        onClick=${() => changeQuery({ produce: "1" })}>Produce a message</button><//>`;
  }
  if (isSearch(place)) {
    return html`<${Empty} title="Nothing found here"><p>The search reads a part of the topic at a time.</p>
      ${place.from !== "oldest" && !place.after && html`<button type="button" class="button"
        onClick=${() => changeQuery({ ...NOWHERE, from: "oldest" })}>Search from the oldest</button>`}<//>`;
  }
  return html`<${Empty} title="No messages here">
    <p>There are some elsewhere in the topic: look at the newest or the oldest.</p><//>`;
}

function Opened({ topic, query, records }) {
  if (!/^\d+:\d+$/.test(query.open ?? "")) return null;
  return html`<${MessageDrawer} key=${query.open} topic=${topic.name} id=${query.open} records=${records}
    onClose=${() => changeQuery({ open: null })} />`;
}

// Messages of today show the time alone, and need less room for it.
const widthOf = (records) => (records.every((record) => format.isToday(record.timestamp)) ? "is-today" : "");

// ---- live

function Live({ topic, query }) {
  const [isPaused, setPaused] = useState(false);
  const filters = { partition: query.partition, contains: query.contains, key: query.key };
  const tail = useTail(topic.name, filters, isPaused);
  return html`
    <div class="live-line">
      <span class="pulse ${tail.state === "open" && !isPaused ? "" : "off"}" role="status"><i></i>
      ${liveText(tail, isPaused)}</span>
      <span class="faint">
      ${countText(tail)}</span>
      <span class="buttons">
        <button type="button" class="button small" aria-pressed=${isPaused ? "true" : "false"}
          onClick=${() => setPaused(!isPaused)}>
          <${Icon} name=${isPaused ? "play" : "pause"} />${isPaused ? "Go on" : "Pause"}</button>
        <button type="button" class="button small" onClick=${tail.clear}>Clear</button>
      </span>
    </div>
    ${
      tail.records.length
        ? html`<div class="messages ${widthOf(tail.records)}" data-live><${MessageHead} />${tail.records.map(
            (record) => html`<${MessageLine} key=${idOf(record)} record=${record}
          isOpen=${query.open === idOf(record)} isNew=${cameCalmly(record)} />`,
          )}</div>`
        : html`<${Empty} title=${tail.state === "ended" ? "The tail has ended" : "Waiting for messages"}>
          <p>${tail.state === "ended" ? tail.reason : "What is written from now on appears here."}</p><//>`
    }
    <${Opened} topic=${topic} query=${query} records=${tail.records} />`;
}

function countText({ count, skipped, hasGap }) {
  const seen = `${format.plural(count, "message")} seen`;
  const missed = skipped ? `, ${format.count(skipped)} skipped` : "";
  const shown = count > RECORDS_MAX ? `; the last ${RECORDS_MAX} are shown` : "";
  return seen + missed + shown + (hasGap ? "; the connection broke, and what came meanwhile is missing" : "");
}

function liveText(tail, isPaused) {
  if (tail.state === "ended") return `Ended: ${tail.reason}`;
  if (tail.state === "lost") return "Connecting again…";
  if (tail.state === "connecting") return "Connecting…";
  return isPaused ? "Paused" : "Live";
}
