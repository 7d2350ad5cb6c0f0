// Pages that are loaded when they are opened: the first load has a bound, and few visitors open them.
// `console_files.py` lists their modules, so that the page does not load them ahead.

import { Skeleton } from "./notice.js";
import { html, useEffect, useState } from "./vendor/htm-preact.js";

// A component that is loaded when it is first shown; a module that cannot be had is the page's fault.
export function later(load) {
  let found = null;
  return function Later(properties) {
    const [state, setState] = useState({ page: found });
    useEffect(() => {
      if (found) return undefined;
      let isShown = true;
      load().then(
        (page) => {
          found = page;
          if (isShown) setState({ page });
        },
        (failure) => isShown && setState({ failure }),
      );
      return () => {
        isShown = false;
      };
    }, []);
    if (state.failure) throw state.failure;
    return state.page ? html`<${state.page} ...${properties} />` : html`<${Skeleton} />`;
  };
}
