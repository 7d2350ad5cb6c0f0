// A live tail: what is written to a topic, as it is written, newest first.
//
// The last RECORDS_MAX messages are held and no more. The broker says how many it left out where this page
// reads too slowly; while paused, what passes is counted and not shown, here until the broker has heard of
// the pause. A tail that breaks connects again by itself.

import { path, query, socketAddress } from "./api.js";
import { useEffect, useRef, useState } from "./vendor/htm-preact.js";

export const RECORDS_MAX = 500;
const SHOW_EVERY_MS = 100;
const CALM_MAX = 3; // arrivals at once that are worth a highlight each
const AGAIN_FIRST_MS = 500;
const AGAIN_LAST_MS = 8_000;

// {records, skipped, count, state: "connecting" | "open" | "lost" | "ended", reason}
export function useTail(topic, filters, isPaused) {
  const [state, setState] = useState(start);
  const socket = useRef(null);
  const paused = useRef(isPaused);
  paused.current = isPaused;
  const address = socketAddress(path`/api/v1/topics/${topic}/tail` + query(filters));

  useEffect(() => {
    let wait_ms = AGAIN_FIRST_MS;
    let timer = 0;
    let shower = 0;
    let hasEnded = false;
    let news = { records: [], skipped: 0 };
    setState(start);

    const show = () => {
      shower = 0;
      const { records, skipped } = news;
      news = { records: [], skipped: 0 };
      setState((old) => ({
        ...old,
        records: [...records.reverse(), ...old.records].slice(0, RECORDS_MAX),
        count: old.count + records.length,
        skipped: old.skipped + skipped,
        isCalm: records.length <= CALM_MAX,
      }));
    };
    const take = (message) => {
      if (message.record && paused.current) news.skipped += 1;
      else if (message.record) news.records.push(message.record);
      if (news.records.length > RECORDS_MAX) news.records.shift();
      if (message.skipped) news.skipped += message.skipped;
      if (message.end) end(message.end);
      shower ||= setTimeout(show, SHOW_EVERY_MS);
    };
    const end = (reason) => {
      hasEnded = true;
      setState((old) => ({ ...old, state: "ended", reason }));
    };
    const connect = () => {
      const own = (socket.current = new WebSocket(address));
      own.onopen = () => {
        wait_ms = AGAIN_FIRST_MS;
        if (paused.current) own.send(JSON.stringify({ pause: true }));
        setState((old) => ({ ...old, state: "open" }));
      };
      own.onmessage = (event) => {
        const message = JSON.parse(event.data);
        if (message.error) end(message.error.message);
        else take(message);
      };
      own.onclose = (event) => {
        if (hasEnded || own !== socket.current) return;
        if (event.code === 1008) {
          end(event.reason || "the broker refused the tail");
          return;
        }
        setState((old) => ({ ...old, state: "lost" }));
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
  const clear = () => setState((old) => ({ ...old, records: [], count: 0, skipped: 0 }));
  return { ...state, clear };
}

const start = () => ({ records: [], skipped: 0, count: 0, state: "connecting", reason: "", isCalm: true });
