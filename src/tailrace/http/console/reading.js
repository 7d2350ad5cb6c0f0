// Reading a page of a topic's messages: from an end, a place, a time, or before and after what is shown.
//
// A place in several partitions is a cursor, "0:120,1:98": an offset for each, as the API's `offsets`. The
// API reads forward, and no more bytes at once than the node allows; going back reads each partition before
// its offset and merges them by time, so that nothing is shown twice or left out, whatever compaction has
// taken out and however large the messages are. Past PARTITIONS_MAX that would be too many requests, and a
// partition has to be chosen first.

import { get, path, query } from "./api.js";

export const PAGE = 100;
export const PARTITIONS_MAX = 32;
const SEARCHED_LAST = 10_000;
const SEARCH_READS_MAX = 10;

// {records (oldest first), first: {p: offset}, next: {p: offset}, scanned, count (of all that were found)}
export async function readPage(topic, place, signal) {
  const read = (values) => get(path`/api/v1/topics/${topic.name}/records` + query(values), { signal });
  if (place.before) return readBefore(read, topic, cursorOf(place.before));
  const filters = { contains: place.contains, key: place.key };
  const start = place.after ? { offsets: place.after } : { partition: place.partition, ...startOf(place) };
  const found =
    isSearch(place) && start.offset === -PAGE
      ? await searchNewest(read, place.partition, filters)
      : await readWhole(read, { ...start, limit: PAGE, ...filters });
  const next = found.next_offsets;
  return {
    records: found.records,
    first: firstOf(found.records, place.after ? cursorOf(place.after) : next),
    next,
    scanned: found.scanned,
    count: found.count ?? found.records.length,
  };
}

// The newest messages, or as many of them as are answered at once: of large ones the answer stops before the
// end, and then it is asked for no more than it had.
async function readWhole(read, values) {
  let found = await read(values);
  for (let count = PAGE; values.offset === -PAGE && isCut(found, count); ) {
    count = Math.max(1, Math.min(found.records.length, count - 1));
    found = await read({ ...values, offset: -count, limit: count });
  }
  return found;
}

// The newest messages that a search finds. The API finds the oldest ones first, so it is asked for all that
// are found among the newest messages, and for those among ten times as many if that is no page yet. What is
// too large to be read is left out: the first step never is, since a read gives a message at least.
async function searchNewest(read, partition, filters) {
  let found = null;
  for (let width = SEARCH_READS_MAX; width <= SEARCHED_LAST; width *= 10) {
    const wider = await searchLast(read, { partition, offset: -width, limit: width }, filters);
    if (found && !wider.isWhole) break;
    found = wider;
    if (!found.isWhole || found.count >= PAGE || found.scanned < width) break;
  }
  return found;
}

// What is found from a place to the end, the newest page of it.
async function searchLast(read, start, filters) {
  let part = await read({ ...start, ...filters });
  const ends = Object.entries(part.high_watermarks);
  const isAtEnd = () => ends.every(([partition, end]) => part.next_offsets[partition] >= end);
  let { records, scanned } = part;
  let count = records.length;
  for (let reads = 1; !isAtEnd() && reads < SEARCH_READS_MAX && ends.length <= PARTITIONS_MAX; reads += 1) {
    const offsets = cursorText(Object.entries(part.next_offsets));
    part = await read({ offsets, limit: start.limit, ...filters });
    records = [...records, ...part.records].slice(-PAGE);
    scanned += part.scanned;
    count += part.records.length;
  }
  const { next_offsets } = part;
  return { records: records.slice(-PAGE), next_offsets, scanned, count, isWhole: isAtEnd() };
}

const isCut = ({ records, next_offsets, high_watermarks }, count) =>
  count > 1 &&
  records.length < count &&
  Object.entries(next_offsets).some(([partition, offset]) => offset < high_watermarks[partition]);

export const isSearch = (place) => Boolean(place.contains || place.key);

function startOf(place) {
  if (place.offset !== undefined) return { offset: place.offset };
  if (place.ts !== undefined) return { ts: place.ts };
  if (place.from === "oldest") return { offset: "earliest" };
  return { offset: -PAGE };
}

async function readBefore(read, topic, cursor) {
  const places = { ...cursor };
  const reads = Object.entries(cursor).map(async ([partition, end]) => {
    const start = topic.partition_details[partition]?.start_offset ?? 0;
    let found = await readLast(read, partition, { start, end });
    if (!found.length && end - PAGE > start) {
      const gap = await endOfRecords(read, partition, { start, end });
      found = await readLast(read, partition, { start, end: gap });
    }
    if (!found.length) places[partition] = start; // nothing is left before it
    return found;
  });
  const records = merge(await Promise.all(reads)).slice(-PAGE);
  return { records, first: firstOf(records, places), next: cursor, scanned: null, count: records.length };
}

// The messages at the last offsets before `end`: fewer of them if so many are not answered at once.
async function readLast(read, partition, { start, end }) {
  let width = Math.min(PAGE, end - start);
  while (width > 0) {
    const found = await read({ partition, offset: end - width, limit: width });
    const records = found.records.filter((record) => record.offset < end);
    if (width === 1 || found.next_offsets[partition] >= end) return records;
    width = Math.max(1, Math.min(records.length, width - 1));
  }
  return [];
}

// Where the gap before `end` begins, to a page: by steps of 1, 2, 4, ... pages back, then by halves.
async function endOfRecords(read, partition, { start, end }) {
  const isEmptyFrom = async (offset) => {
    const { records } = await read({ partition, offset, limit: 1 });
    return !records.length || records[0].offset >= end;
  };
  let empty = end;
  let held = Math.max(start, end - PAGE);
  for (let width = PAGE; await isEmptyFrom(held); ) {
    if (held === start) return start;
    empty = held;
    width *= 2;
    held = Math.max(start, end - width);
  }
  while (empty - held > PAGE) {
    const middle = Math.floor((held + empty) / 2);
    if (await isEmptyFrom(middle)) empty = middle;
    else held = middle;
  }
  return empty;
}

// By time, and always in the order of each partition, whatever the clocks of producers say.
function merge(lists) {
  const heads = lists.filter((list) => list.length).map((list) => ({ list, at: 0 }));
  const merged = [];
  while (heads.length) {
    let least = 0;
    for (let number = 1; number < heads.length; number += 1) {
      if (timeOf(heads[number]) < timeOf(heads[least])) least = number;
    }
    const head = heads[least];
    merged.push(head.list[head.at]);
    head.at += 1;
    if (head.at === head.list.length) heads.splice(least, 1);
  }
  return merged;
}

const timeOf = ({ list, at }) => list[at].timestamp;

// The first offset shown of each partition; where none is shown, the place where it would be.
function firstOf(records, places) {
  const first = { ...places };
  for (const { partition, offset } of records.toReversed()) first[partition] = offset;
  return first;
}

// ---- what lies beyond the page

// The cursor for older messages, or null if there are none.
export function olderCursor(topic, page) {
  const pairs = Object.entries(page.first);
  const hasOlder = pairs.some(
    ([partition, offset]) => offset > (topic.partition_details[partition]?.start_offset ?? 0),
  );
  return hasOlder && pairs.length <= PARTITIONS_MAX ? cursorText(pairs) : null;
}

// The cursor for newer messages, or null if there are none yet.
export function newerCursor(topic, page) {
  const pairs = Object.entries(page.next);
  const hasNewer = pairs.some(
    ([partition, offset]) => offset < (topic.partition_details[partition]?.end_offset ?? 0),
  );
  return hasNewer && pairs.length <= PARTITIONS_MAX ? cursorText(pairs) : null;
}

const cursorText = (pairs) => pairs.map(([partition, offset]) => `${partition}:${offset}`).join(",");

function cursorOf(text) {
  const pairs = text.split(",").map((pair) => pair.split(":").map(Number));
  return Object.fromEntries(pairs.filter((pair) => pair.length === 2 && pair.every(Number.isSafeInteger)));
}
