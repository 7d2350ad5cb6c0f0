"""What all pages share: the frame, the style, tables, and facts as a table.

A page is to be kept or passed on, so it asks nobody for anything: style and plots are in it, there is no
script, and its policy forbids all else. It follows the reader's choice of light or dark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape

from tailrace.model.text import size_of

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --quiet: #60646c; --line: #d9d9e0; --paper: #fcfcfd;
  --met: #2b7f5c; --missed: #c4432b; --track: #e8e8ec; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --quiet: #b0b4ba; --line: #43484e;
  --paper: #111113; --met: #4cb38a; --missed: #ec6f59; --track: #2e3135; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; } h3 .quiet { font-weight: normal; }
p, caption, .quiet { color: var(--quiet); } a { color: inherit; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; font-weight: normal; padding: .35rem .75rem .35rem 0;
  border-bottom: 1px solid var(--line); }
thead th { color: var(--quiet); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.met { color: var(--met); } .missed { color: var(--missed); font-weight: 600; }
svg { display: block; } .wide { width: 100%; min-width: 34rem; height: auto; }
td.bar { width: 40%; } .share { width: 100%; min-width: 4rem; height: 10px; border-radius: 2px; }
.track { fill: var(--track); } .goal { stroke: var(--ink); }
rect.met, circle.met { fill: var(--met); } rect.missed { fill: var(--missed); }
.plot text { font-size: 12px; fill: var(--ink); } .plot .quiet { fill: var(--quiet); }
.range { stroke: var(--met); stroke-width: 2; } .grid { stroke: var(--line); }
pre { overflow-x: auto; } code { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
""".strip()


def document(title: str, *, heading: str, measured_at: datetime, body: str, row: Mapping[str, object]) -> str:
    """A whole page around its body, which is HTML already; `row` is the report for programs."""
    when = f"{measured_at:%Y-%m-%d %H:%M %Z}".strip()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}, {escape(when)}</title>
<style>
{_STYLE}
</style>
</head>
<body>
<h1>{escape(heading)}</h1>
<p>{escape(title)}, <time datetime="{measured_at.isoformat()}">{escape(when)}</time></p>
{body}
<details>
<summary>As JSON</summary>
<pre>{escape(json.dumps(row, indent=2))}</pre>
</details>
</body>
</html>
"""


def facts(found: Mapping[str, object]) -> str:
    """A line for each."""
    rows = (
        f'<th scope="row">{escape(key.replace("_", " "))}</th><td>{_fact(key, value)}</td>'
        for key, value in found.items()
    )
    return table("", rows)


def _fact(key: str, value: object) -> str:
    if value is None:
        return '<span class="quiet">not there</span>'
    if key.endswith("_bytes") and isinstance(value, int):
        return size_of(value)
    return escape(str(value))


def table(head: str, rows: Iterable[str]) -> str:
    """Head and rows are cells, HTML already."""
    top = f"<thead><tr>{head}</tr></thead>\n" if head else ""
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table>\n{top}<tbody>\n{body}\n</tbody>\n</table></div>'
