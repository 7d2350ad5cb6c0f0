// Lines over time, drawn by uPlot, with the newest figure above and the same told in words for who cannot
// see it.
//
// `lines` is [{label, values, tone}]: numbers or null for each moment, the newest last. `end_ms` and
// `interval_ms` say when. All charts of a page share one cursor.

import { bytes, compact } from "./format.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";

const HEIGHT = 148;
const LETTER = 6.5; // pixels
const LABEL_SPACE = 46; // between labels such as 09:41
const SECONDS_SPACE = 68; // the same for 09:41:30
const LINE_SPACE = 22; // of the other axis: two lines or more fit
const FONT = "11px system-ui, sans-serif";
const TONES = ["--accent", "--second"];
const TIME_STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200]; // seconds
// There is no half a record, and sizes are marked at round ones.
const WHOLE_STEPS = Array.from({ length: 45 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));
const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

export function Chart({ title, lines, end_ms, interval_ms, format, note, current }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [hovered, setHovered] = useState(null);
  const theme = useTheme();
  const latest = useRef({});
  const data = [timesOf(lines[0]?.values ?? [], end_ms, interval_ms), ...lines.map((line) => line.values)];
  latest.current = { format };

  useEffect(() => {
    const options = optionsOf(lines, box.current.clientWidth, latest, (at) => setHovered(at));
    plot.current = new uPlot(options, data, box.current);
    const observer = new ResizeObserver(() => {
      const width = box.current?.clientWidth;
      if (width) plot.current.setSize({ width, height: HEIGHT });
    });
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
    };
  }, [theme, lines.length]);
  useEffect(() => plot.current.setData(data), [end_ms, lines.map((line) => line.values.length).join()]);

  const at = hovered ?? -1;
  const shown = (line) => (at < 0 ? newest(line.values) : line.values[at]);
  return html`<figure class="chart">
    <figcaption>
      <h3>${title}</h3>
      <dl>${lines.map(
        (line, number) => html`<div>
        ${lines.length > 1 && html`<dt><i class="tone-${number}"></i>${line.label}</dt>`}
        <dd>${format(at < 0 && current ? current[number] : shown(line))}</dd></div>`,
      )}</dl>
      <span class="chart-note">${at >= 0 ? timeText(data[0][at]) : (note ?? "")}</span>
    </figcaption>
    <div ref=${box} class="chart-plot" role="img" aria-label=${describe(title, lines, format)}></div>
  </figure>`;
}

const newest = (values) => values.findLast((value) => value !== null && value !== undefined) ?? null;

function timesOf(values, end_ms, interval_ms) {
  return values.map((_, at) => (end_ms - (values.length - 1 - at) * interval_ms) / 1_000);
}

const timeText = (seconds) => new Date(seconds * 1_000).toLocaleTimeString([], { hour12: false });

// What the picture shows, in a sentence.
function describe(title, lines, format) {
  const parts = lines.map((line) => {
    const known = line.values.filter((value) => value !== null && value !== undefined);
    if (!known.length) return `${line.label}: nothing measured`;
    return `${line.label}: now ${format(known.at(-1))}, lowest ${format(least(known))}, highest ${format(most(known))}`;
  });
  return `${title}. ${parts.join("; ")}`;
}

const least = (values) => values.reduce((one, other) => Math.min(one, other), Infinity);
const most = (values) => values.reduce((one, other) => Math.max(one, other), -Infinity);

function optionsOf(lines, width, latest, onHover) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const grid = { stroke: colour("--grid"), width: 1 };
  const steps = new Map([
    [bytes, BINARY_STEPS],
    [compact, WHOLE_STEPS],
  ]).get(latest.current.format);
  const axis = { stroke: colour("--ink-3"), font: FONT, ticks: { show: false }, grid };
  return {
    width: width || 300,
    height: HEIGHT,
    padding: [8, 4, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 }, sync: { key: "console" } },
    scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.15 : 1] } },
    axes: [
      { ...axis, size: 24, space: labelSpace, incrs: TIME_STEPS, values: timeLabels },
      {
        ...axis,
        size: 62,
        space: LINE_SPACE,
        ...(steps ? { incrs: steps } : {}),
        values: (_plot, ticks) => ticks.map((tick) => (tick === null ? "" : latest.current.format(tick))),
      },
    ],
    series: [
      {},
      ...lines.map((line, number) => ({
        label: line.label,
        stroke: colour(TONES[number]),
        fill: number === 0 ? colour("--accent-wash") : undefined,
        width: 1.6,
        points: { show: true, size: 4, filter: lonely },
      })),
    ],
    hooks: { setCursor: [(plot) => onHover(plot.cursor.idx ?? null)] },
  };
}

// Points that no line reaches, because nothing was measured before and after.
function lonely(plot, series) {
  const values = plot.data[series];
  const isGap = (at) => values[at] === null || values[at] === undefined;
  return values.flatMap((_, at) => (!isGap(at) && isGap(at - 1) && isGap(at + 1) ? [at] : []));
}

// Labels of less than a minute have seconds, and need more room.
function labelSpace(_plot, _axis, first, last, width) {
  const step = TIME_STEPS.find((each) => (each * width) / (last - first) >= LABEL_SPACE);
  return step < 60 ? SECONDS_SPACE : LABEL_SPACE;
}

// A label stands in the middle under its mark: one that would be cut off at the edge says nothing.
const timeLabels = (plot, ticks) => {
  const width = plot.bbox.width / devicePixelRatio;
  return ticks.map((tick) => {
    const text = clock(tick);
    return plot.valToPos(tick, "x") > width - (text.length * LETTER) / 2 ? "" : text;
  });
};

const clock = (seconds) => {
  const at = new Date(seconds * 1_000);
  const text = [at.getHours(), at.getMinutes()].map((each) => String(each).padStart(2, "0")).join(":");
  return at.getSeconds() ? `${text}:${String(at.getSeconds()).padStart(2, "0")}` : text;
};

function useTheme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  useEffect(() => tailraceTheme.watch(() => setTheme(document.documentElement.dataset.theme)), []);
  return theme;
}
