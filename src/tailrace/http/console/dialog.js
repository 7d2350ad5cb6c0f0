// Dialogs: the browser's own <dialog>, which keeps the focus inside and closes with Esc.

import { Icon } from "./icon.js";
import { FormError } from "./notice.js";
import { html, render, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";

// A dialog is drawn beside the page and not within it: a <dialog> that is moved in the document, as a page
// may do when what is above it loads, stops being modal.
export function Dialog(properties) {
  const place = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    place.current = document.createElement("div");
    document.body.append(place.current);
    return () => {
      render(null, place.current);
      place.current.remove();
      if (before?.isConnected) before.focus?.();
    };
  }, []);
  useLayoutEffect(() => render(html`<${Box} ...${properties} />`, place.current));
  return null;
}

function Box({ title, onClose, children, kind = "" }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    box.current.showModal();
    (box.current.querySelector("[data-first]") ?? box.current).focus();
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${box} class="dialog ${kind}" tabindex="-1" aria-label=${title} onCancel=${onCancel}
      onMouseDown=${(event) => event.target === box.current && onClose()}>
    <div class="dialog-body">
      <header><h2>${title}</h2>
        <button type="button" class="button ghost square" onClick=${onClose} aria-label="Close"><${Icon}
          name="close" /></button>
      </header>
      ${children}
    </div>
  </dialog>`;
}

// Something that cannot be undone: the name has to be typed. `perform` may throw an ApiError, which is
// shown.
export function ConfirmByName({ title, name, action, perform, onClose, children }) {
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    if (typed !== name || isBusy) return;
    setBusy(true);
    try {
      await perform();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      ${children}
      <label class="field"><span>Type <code>${name}</code> to go on</span>
        <input data-first autocomplete="off" spellcheck="false" value=${typed}
          onInput=${(event) => setTyped(event.target.value)} />
      </label>
      <${FormError} error=${error} />
      <footer>
        <button type="button" class="button" onClick=${onClose}>Cancel</button>
        <button class="button danger" disabled=${typed !== name || isBusy}>
        ${isBusy ? "Working…" : action}</button>
      </footer>
    </form>
  <//>`;
}
