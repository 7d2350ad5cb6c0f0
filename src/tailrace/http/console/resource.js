// What a page shows of the API: loaded, loaded again, and kept, so that going back is instant.
//
// A resource is read again every so often while the page is looked at, at once when somebody comes back to
// it, and when the broker answers again. The last answers are kept, a bounded number of them.

import { connection, get } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./vendor/htm-preact.js";

const KEPT_MAX = 60;
const kept = new Map(); // path -> data, the one used last at the end

// {data, error, isLoading, reload} of a path; a path of null is not loaded. How often may depend on what was
// loaded: `every_ms` is a number, or a function of the data that stays the same one.
export function useResource(path, { every_ms = 0 } = {}) {
  const [state, setState] = useState({ path, data: kept.get(path), error: null });
  const load = useRef(() => {});

  useEffect(() => {
    if (path === null) return undefined;
    let timer = 0;
    let running = null;
    let hasEnded = false;

    load.current = async () => {
      clearTimeout(timer);
      running?.abort();
      const own = (running = new AbortController());
      try {
        const data = await get(path, { signal: own.signal });
        if (own.signal.aborted) return;
        keep(path, data);
        setState({ path, data, error: null });
      } catch (error) {
        if (own.signal.aborted) return;
        if (!error.isOffline && error.status === 404) kept.delete(path);
        setState({ path, data: kept.get(path), error });
      }
      const wait_ms = typeof every_ms === "function" ? every_ms(kept.get(path)) : every_ms;
      if (wait_ms && !hasEnded && !document.hidden) timer = setTimeout(load.current, wait_ms);
    };

    const wake = () => !document.hidden && every_ms && load.current();
    const unwatch = connection.watch((isOnline) => isOnline && load.current());
    document.addEventListener("visibilitychange", wake);
    load.current();
    return () => {
      hasEnded = true;
      clearTimeout(timer);
      running?.abort();
      unwatch();
      document.removeEventListener("visibilitychange", wake);
    };
  }, [path, every_ms]);

  const current = state.path === path ? state : { data: kept.get(path), error: null };
  const reload = useCallback(() => load.current(), []);
  return { ...current, isLoading: current.data === undefined && !current.error, reload };
}

function keep(path, data) {
  kept.delete(path);
  kept.set(path, data);
  if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value);
}
