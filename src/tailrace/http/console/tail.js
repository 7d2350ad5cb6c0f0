// A live tail: what is written to a topic, as it is written, newest first.
//
// The last RECORDS_MAX messages are held and no more. The broker says how many it left out where this page
// reads too slowly; while paused, what passes is counted and not shown, here until the broker has heard of
// the pause. A tail that breaks, or whose node stops, connects again by itself; what was written meanwhile is
// not shown, and `hasGap` says so.

import { path, query, refusalOf, socketAddress } from "./api.js";
import { useEffect, useRef, useState } from "./vendor/htm-preact.js";

export const RECORDS_MAX = 500;
const SHOW_EVERY_MS = 100;
const REST = 3; // times as long as drawing took: the page has to answer to its reader meanwhile
const REST_MS_MAX = 1_000;
const CALM_MAX = 3; // arrivals at once that are worth a highlight each
const AGAIN_FIRST_MS = 500;
const AGAIN_LAST_MS = 8_000;
const DONE = 1000; // codes of a WebSocket's end
const REFUSED = 1008;

const calm = new WeakSet(); // records that came alone, or nearly so
export const cameCalmly = (record) => calm.has(record);

// {records, skipped, count, hasGap, state: "connecting" | "open" | "lost" | "ended", reason}
export function useTail(topic, filters, isPaused) {
  const [state, setState] = useState(start);
  const socket = useRef(null);
  const paused = useRef(isPaused);
  paused.current = isPaused;
  const address = path`/api/v1/topics/${topic}/tail` + query(filters);

  useEffect(() => {
    let wait_ms = AGAIN_FIRST_MS;
    let timer = 0;
    let shower = 0;
    let rest_ms = SHOW_EVERY_MS;
    let hasEnded = false;
    let news = noNews();
    setState(start);

    const show = () => {
      shower = 0;
      const { records, count, skipped } = news;
      const began_ms = performance.now();
      news = noNews();
      // The second frame begins when the first, with what is shown now, is drawn.
      requestAnimationFrame(() =>
        requestAnimationFrame(() => {
          rest_ms = Math.max(SHOW_EVERY_MS, Math.min((performance.now() - began_ms) * REST, REST_MS_MAX));
        }),
      );
      if (count <= CALM_MAX) for (const record of records) calm.add(record);
      setState((old) => ({
        ...old,
        records: [...records.reverse(), ...old.records].slice(0, RECORDS_MAX),
        count: old.count + count,
        skipped: old.skipped + skipped,
      }));
    };
    const take = (message) => {
      if (message.record && paused.current) news.skipped += 1;
      else if (message.record) {
        news.count += 1;
        news.records.push(message.record);
        if (news.records.length > RECORDS_MAX) news.records.shift();
      }
      if (message.skipped) news.skipped += message.skipped;
      shower ||= setTimeout(show, rest_ms);
    };
    const end = (reason) => {
      hasEnded = true;
      setState((old) => ({ ...old, state: "ended", reason }));
    };
    const connect = () => {
      const own = (socket.current = new WebSocket(socketAddress(address)));
      let wasOpen = false;
      let reason = "";
      own.onopen = () => {
        wasOpen = true;
        wait_ms = AGAIN_FIRST_MS;
        if (paused.current) own.send(JSON.stringify({ pause: true }));
        setState((old) => ({ ...old, state: "open", hasGap: old.hasGap || old.state === "lost" }));
      };
      own.onmessage = (event) => {
        const message = JSON.parse(event.data);
        if (message.end) reason = message.end;
        else take(message);
      };
      own.onclose = async (event) => {
        if (hasEnded) return;
        const why = wasOpen ? endOf(event, reason) : await refusalOf(address);
        if (hasEnded) return;
        if (why) {
          end(why);
          return;
        }
        setState((old) => ({ ...old, state: old.state === "connecting" ? "connecting" : "lost" }));
        timer = setTimeout(connect, wait_ms);
        wait_ms = Math.min(wait_ms * 1.7, AGAIN_LAST_MS);
      };
    };
    connect();
    return () => {
      hasEnded = true;
      clearTimeout(timer);
      clearTimeout(shower);
      socket.current?.close();
    };
  }, [address]);

  useEffect(() => {
    if (socket.current?.readyState === WebSocket.OPEN)
      socket.current.send(JSON.stringify({ pause: isPaused }));
  }, [isPaused]);
  const clear = () => setState((old) => ({ ...old, records: [], count: 0, skipped: 0, hasGap: false }));
  return { ...state, clear };
}

const start = () => ({ records: [], skipped: 0, count: 0, hasGap: false, state: "connecting", reason: "" });
const noNews = () => ({ records: [], count: 0, skipped: 0 });

// Why a tail is over for good, or "" if it is worth another try.
function endOf({ code, reason: refusal }, reason) {
  if (code === REFUSED) return refusal || "the broker refused the tail";
  return code === DONE ? reason : ""; // a node that stops says so as well, and comes back
}
