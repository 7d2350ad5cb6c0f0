// The runs of pipelines: how far each is, and stopping one.

import { path, post } from "./api.js";
import { Badge } from "./badge.js";
import { Command } from "./copy.js";
import { Dialog } from "./dialog.js";
import * as format from "./format.js";
import { Facts, Heading } from "./heading.js";
import { Empty, FormError, Loaded } from "./notice.js";
import { useResource } from "./resource.js";
import { tellUser } from "./toast.js";
import { html, useState } from "./vendor/htm-preact.js";

export function Pipelines() {
  const runs = useResource("/api/v1/pipelines", { every_ms: 2_000 });
  const [stopped, setStopped] = useState(null);
  return html`
    <${Heading} title="Pipelines" />
    <${Loaded} resource=${runs}>${({ pipelines }) =>
      pipelines.length
        ? pipelines.map((run) => html`<${Run} key=${run.id} run=${run} onStop=${() => setStopped(run)} />`)
        : html`<${Empty} title="No pipeline has run yet">
          <p>A pipeline moves a topic's records with Spark: into a lake, or back out of it.</p>
          <div class="steps"><${Command} text="tailrace up --demo --pipelines" /></div><//>`}<//>
    ${stopped && html`<${Stop} run=${stopped} onClose=${() => setStopped(null)} onDone=${runs.reload} />`}`;
}

function Run({ run, onStop }) {
  const state = run.stale ? "lost" : run.state;
  const progress = run.progress ?? {};
  return html`<article class="card run" aria-label="Run of ${run.name}">
    <header><h2>${run.name}</h2><${Badge} state=${state} />
      <span class="faint">
      ${run.pipeline === run.name ? "" : `${run.pipeline} · `}${run.id} · ${run.host}</span>
      ${state === "running" && html`<button type="button" class="button small"
        onClick=${onStop}>Stop…</button>`}</header>
    <${Facts} facts=${factsOf(run, progress, state)} />
    <${Missing} name=${run.name} progress=${progress} />
    ${progress.note && html`<p class="note">${progress.note}</p>`}
    ${run.error && html`<p class="error">${run.error}</p>`}
  </article>`;
}

const RANGES_SHOWN = 20;

// What a lake lacks for good, as told by its runs.
function Missing({ name, progress }) {
  const ranges = progress.missing ?? [];
  if (!ranges.length) return null;
  const offsets = Object.values(progress.missing_offsets ?? {})
    .flatMap((partitions) => Object.values(partitions))
    .reduce((sum, count) => sum + count, 0);
  const more = ranges.length - RANGES_SHOWN;
  return html`<div class="missing" role="note"><p class="error">
    ${format.count(offsets)} offsets are missing from the lake: they were deleted before they were archived.</p>
    <ul>${ranges.slice(0, RANGES_SHOWN).map(
      (range) => html`<li key=${`${range.topic}-${range.partition}-${range.first_offset}`}>
        ${range.topic}-${range.partition}: ${format.count(range.first_offset)} to
        ${" "}${format.count(range.last_offset)}</li>`,
    )}${more > 0 && html`<li>and more ranges: tailrace pipeline status ${name} shows them</li>`}</ul>
  </div>`;
}

function factsOf(run, progress, state) {
  const isRunning = state === "running";
  return [
    ["Batches", format.count(progress.batch)],
    ["Rows", format.count(progress.rows)],
    isRunning && ["Rows per second", format.rate(progress.rows_per_s)],
    ["Lag", format.count(progress.lag)],
    isRunning &&
      progress.eta_s !== null &&
      progress.eta_s !== undefined && ["Caught up in", format.duration(progress.eta_s)],
    progress.bytes ? ["Written", format.bytes(progress.bytes)] : null,
    progress.watermark ? ["Watermark", progress.watermark] : null,
    ["Started", format.ago(run.started_at)],
    ["Last heard", format.ago(run.at)],
  ].filter(Boolean);
}

function Stop({ run, onClose, onDone }) {
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await post(path`/api/v1/pipelines/${run.id}/stop`);
      tellUser(`${run.name} stops after the batch under way`);
      onDone();
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Dialog} title="Stop ${run.name}" onClose=${onClose}><form onSubmit=${submit}>
    <p class="note">The run ends after the batch under way. It goes on from there when it is started again.</p>
    <${FormError} error=${error} />
    <footer><button type="button" class="button" onClick=${onClose}>Cancel</button><button data-first
      class="button danger">Stop</button></footer>
  </form><//>`;
}
