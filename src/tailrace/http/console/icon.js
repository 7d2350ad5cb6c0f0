// The few pictures of the console, drawn with lines in the colour of the text around them.

import { html } from "./vendor/htm-preact.js";

const PATHS = {
  overview: "M3 12.500h3l2-6 4 10 2.500-7 1 3H17",
  topics: "M4 5.500h12M4 10h12M4 14.500h8",
  consumers: "M10 4v7m0 0-3-3m3 3 3-3M4 13v2.500h12V13",
  transactions: "M5 4.500v11M15 4.500v11M5 10h7m-2.500-2.500L12 10l-2.500 2.500",
  pipelines: "M3 6h5c4 0 3 8 7 8h2m-3-3 3 3-3 3M3 14h3",
  charts: "M4 4v12h12M7.500 13V9m3.500 4V6m3.500 7v-2.500",
  cluster: "M4 4.500h12v4.500H4zM4 11.500h12V16H4zM6.800 6.800h.01M6.800 13.800h.01",
  search: "M9 14.500a5.500 5.500 0 1 0 0-11 5.500 5.500 0 0 0 0 11zm4-1.500 4 4",
  key: "M7 13.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zm3.500-3.500H17v3m-3-3v2",
  plus: "M10 4.500v11M4.500 10h11",
  close: "m5.500 5.500 9 9m0-9-9 9",
  copy: "M7.500 7.500h8v8h-8zM12.500 4.500h-8v8",
  check: "m4.500 10.500 3.500 3.500 7.500-8",
  pause: "M7.500 5.500v9m5-9v9",
  play: "M7 5.200v9.600l8-4.800z",
  trash: "M4.500 6h11M8.500 6V4h3v2M6 6l.7 10h6.600L14 6",
  edit: "m5 15 .6-3L13 4.600l2.400 2.400L8 14.400z",
  undo: "M5 8h7a3.500 3.500 0 0 1 0 7H8M5 8l3-3M5 8l3 3",
  send: "m4 10 12-6-4.500 12.500-2.500-5z",
  sun: "M10 13.200a3.200 3.200 0 1 0 0-6.400 3.200 3.200 0 0 0 0 6.400zM10 2.500v1.500m0 12v1.500M2.500 10H4m12 0h1.500M4.700 4.700l1 1m8.600 8.600 1 1m0-10.600-1 1m-8.600 8.600-1 1",
  moon: "M15.500 11.800A6 6 0 0 1 8.200 4.500a6 6 0 1 0 7.300 7.300z",
  auto: "M10 4v12a6 6 0 0 0 0-12zm0 0a6 6 0 0 0 0 12",
  keyboard: "M3 6h14v8.500H3zM6 9h.01M9 9h.01M12 9h.01M14.500 9h.01M7 12h6",
  right: "m8 5 5 5-5 5",
  up: "m5 12 5-5 5 5",
  down: "m5 8 5 5 5-5",
  redo: "M15 8H8a3.500 3.500 0 0 0 0 7h4m3-7-3-3m3 3-3 3",
};

export function Icon({ name, label }) {
  return html`<svg class="icon" viewBox="0 0 20 20" role=${label ? "img" : null} aria-label=${label}
    aria-hidden=${label ? null : "true"} focusable="false"><path d=${PATHS[name]} /></svg>`;
}

export function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
    <path d="M4 9c4-3.500 8-3.500 12 0s8 3.500 12 0" />
    <path d="M4 16.500c4-3.500 8-3.500 12 0s8 3.500 12 0" opacity=".7" />
    <path d="M4 24c4-3.500 8-3.500 12 0s8 3.500 12 0" opacity=".4" />
  </svg>`;
}
