// Whether the node still serves the console that is open here. A tab that stays open for days outlives its
// node's upgrade, and its old pages then meet new answers.
//
// The page names its build in the address of everything it loads. It is asked for again when the broker
// answers after a silence, when somebody comes back to the tab, and now and then.

import { connection, root } from "./api.js";
import { useEffect, useState } from "./vendor/htm-preact.js";

const CHECK_EVERY_MS = 5 * 60_000;
const OWN = /assets\/[^/]+\//.exec(import.meta.url)?.[0] ?? "";

export function useUpgrade() {
  const [isOld, setOld] = useState(false);
  useEffect(() => {
    const check = async () => {
      if (!document.hidden && connection.isOnline && (await isReplaced())) setOld(true);
    };
    const timer = setInterval(check, CHECK_EVERY_MS);
    const unwatch = connection.watch(check);
    document.addEventListener("visibilitychange", check);
    return () => {
      clearInterval(timer);
      unwatch();
      document.removeEventListener("visibilitychange", check);
    };
  }, []);
  return isOld;
}

async function isReplaced() {
  try {
    const response = await fetch(`${root}/`, { cache: "no-cache", signal: AbortSignal.timeout(10_000) });
    const page = response.ok ? await response.text() : "";
    return page.includes("/assets/") && !page.includes(OWN);
  } catch {
    return false; // the next check may know
  }
}
