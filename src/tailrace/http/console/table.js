// Tables that stay fast with ten thousand rows: only the rows in view exist, and the page itself scrolls.
//
// A column is {id, title, width, render(row), align: "end", sort(row), wideOnly}. Rows have one height, so
// that where each of them is follows from its number. A row with `link` can be clicked anywhere; the link
// itself is in its first cell, where screen readers and the keyboard find it.

import { Icon } from "./icon.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";

const ROW_HEIGHT = 40;
const AROUND = 12; // rows beyond the edges, so that a quick scroll shows no gap
const NARROW = matchMedia("(max-width: 720px)");

export function Table({ label, columns, rows, rowKey, link, sort, onSort, rowHeight = ROW_HEIGHT }) {
  const isNarrow = useNarrow();
  const shown = columns.filter((column) => !(isNarrow && column.wideOnly));
  const sorted = useMemo(() => sortRows(rows, columns, sort), [rows, sort?.by, sort?.down]);
  const body = useRef(null);
  const [first, last] = useWindow(body, sorted.length, rowHeight);
  const template = { "--columns": shown.map((column) => column.width ?? "minmax(0, 1fr)").join(" ") };
  return html`<div class="table" role="table" aria-label=${label} aria-rowcount=${sorted.length + 1}
    style=${template}>
    <div class="table-head" role="rowgroup"><div class="table-row" role="row" aria-rowindex="1">
      ${shown.map((column) => html`<${Head} key=${column.id} column=${column} sort=${sort}
        onSort=${onSort} />`)}
    </div></div>
    <div ref=${body} class="table-body" role="rowgroup" style=${{ height: `${sorted.length * rowHeight}px` }}>
      ${sorted.slice(first, last).map((row, at) => {
        const number = first + at;
        const place = { transform: `translateY(${number * rowHeight}px)`, height: `${rowHeight}px` };
        return html`<div key=${rowKey(row)} role="row" class="table-row ${link ? "is-link" : ""}"
          style=${place} aria-rowindex=${number + 2}>
          ${shown.map(
            (
              column,
              nth,
            ) => html`<div key=${column.id} role="cell" class="cell ${column.align ?? ""}"
              title=${column.title_of?.(row)}>
            ${link && nth === 0 ? html`<a class="row-link" href=${link(row)}>
            ${column.render(row)}</a>` : column.render(row)}</div>`,
          )}
        </div>`;
      })}
    </div>
  </div>`;
}

function Head({ column, sort, onSort }) {
  const isSorted = sort?.by === column.id;
  const direction = isSorted ? (sort.down ? "descending" : "ascending") : "none";
  if (!column.sort || !onSort) {
    return html`<div role="columnheader" class="cell ${column.align ?? ""}">${column.title}</div>`;
  }
  const click = () => onSort({ by: column.id, down: isSorted ? !sort.down : column.align === "end" });
  return html`<div role="columnheader" class="cell ${column.align ?? ""}" aria-sort=${direction}>
    <button type="button" class="sort ${isSorted ? "is-on" : ""}" onClick=${click}>${column.title}
      ${isSorted && html`<${Icon} name=${sort.down ? "down" : "up"} />`}</button>
  </div>`;
}

function sortRows(rows, columns, sort) {
  const value = sort && columns.find((column) => column.id === sort.by)?.sort;
  if (!value) return rows;
  const sign = sort.down ? -1 : 1;
  return [...rows].sort((one, other) => sign * compare(value(one), value(other)));
}

const letters = new Intl.Collator("en", { numeric: true });

function compare(one, other) {
  if (typeof one === "string" && typeof other === "string") return letters.compare(one, other);
  return (one ?? -Infinity) - (other ?? -Infinity) || 0;
}

// Which rows are in view: [first, last).
function useWindow(body, total, rowHeight) {
  const [range, setRange] = useState([0, Math.min(total, 40)]);
  const update = useRef(() => {});
  update.current = () => {
    if (!body.current) return;
    const top = -body.current.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / rowHeight) - AROUND);
    const last = Math.min(total, Math.ceil((top + innerHeight) / rowHeight) + AROUND);
    setRange((old) => (old[0] === first && old[1] === last ? old : [first, Math.max(first, last)]));
  };
  useLayoutEffect(() => update.current(), [total, rowHeight]);
  useEffect(() => {
    let frame = 0;
    const later = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => update.current());
    };
    const observer = new ResizeObserver(later);
    observer.observe(document.body);
    addEventListener("scroll", later, { passive: true, capture: true }); // of the page, or of a box in it
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      observer.disconnect();
      removeEventListener("scroll", later, { capture: true });
      removeEventListener("resize", later);
    };
  }, []);
  return range;
}

export function useNarrow() {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const update = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", update);
    return () => NARROW.removeEventListener("change", update);
  }, []);
  return isNarrow;
}
