"""A report as one HTML page, to be kept or passed on: figures beside their goals, and where they were taken.

The page asks nobody for anything: style and bars are in it, there is no script, and its policy forbids all
else. A bar shows a figure as a share of its goal, which is the same line in every row; whether it is met is
written too, since not everybody sees the colours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape

from tailrace.bench.report import LogReport, Verdict, judge, write_figure

_BAR_WIDTH, _BAR_HEIGHT = 300, 14
_GOAL_AT = 180  # where the bar of a figure ends that is just its goal

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --quiet: #60646c; --line: #d9d9e0; --paper: #fcfcfd;
  --met: #2b7f5c; --missed: #c4432b; --track: #e8e8ec; }
@media (prefers-color-scheme: dark) { :root { --ink: #edeef0; --quiet: #b0b4ba; --line: #43484e;
  --paper: #111113; --met: #4cb38a; --missed: #ec6f59; --track: #2e3135; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, caption, .quiet { color: var(--quiet); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; font-weight: normal; padding: .35rem .75rem .35rem 0;
  border-bottom: 1px solid var(--line); }
thead th { color: var(--quiet); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.met { color: var(--met); } .missed { color: var(--missed); font-weight: 600; }
svg { display: block; } .track { fill: var(--track); } .goal { stroke: var(--ink); }
rect.met { fill: var(--met); } rect.missed { fill: var(--missed); }
pre { overflow-x: auto; }
.scroll { overflow-x: auto; }
""".strip()


def write_page(report: LogReport, *, measured_at: datetime) -> str:
    """The whole page."""
    when = f"{measured_at:%Y-%m-%d %H:%M %Z}".strip()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>tailrace bench log, {escape(when)}</title>
<style>
{_STYLE}
</style>
</head>
<body>
<h1>The log against the bare system calls</h1>
<p>tailrace bench log, <time datetime="{measured_at.isoformat()}">{escape(when)}</time></p>
<h2>Figures and goals</h2>
{_figures(judge(report))}
<p>Ratios are ours over the bare calls on the same disk, of medians: 1 is as fast. The line is the goal.</p>
<h2>In absolute terms</h2>
{_comparisons(report.details)}
<h2>Measured on</h2>
{_machine(report.machine)}
<details>
<summary>As JSON</summary>
<pre>{escape(json.dumps(report.as_row(), indent=2))}</pre>
</details>
</body>
</html>
"""


# ---- figures


def _figures(verdicts: Iterable[Verdict]) -> str:
    head = '<th scope="col">figure</th><th></th><th class="number" scope="col">measured</th>'
    head += '<th class="number" scope="col">goal</th><th></th>'
    return _table(head, map(_figure, verdicts))


def _figure(verdict: Verdict) -> str:
    goal = verdict.goal
    wanted = ("at most " if goal.at_most else "at least ") + write_figure(goal.limit)
    if verdict.value is None:
        measured, bar, mark = '<span class="quiet">not there</span>', "", ""
    else:
        kind = "met" if verdict.met else "missed"
        measured, mark = write_figure(verdict.value), f'<span class="{kind}">{kind}</span>'
        bar = _bar(verdict.value / goal.limit, kind, label=f"{measured}, {wanted}: {kind}")
    return (
        f'<th scope="row">{escape(goal.text)}</th><td>{bar}</td><td class="number">{measured}</td>'
        f'<td class="number">{wanted}</td><td>{mark}</td>'
    )


def _bar(share: float, kind: str, *, label: str) -> str:
    """A figure as a share of its goal; one that is far beyond fills the track."""
    width = min(max(share * _GOAL_AT, 1), _BAR_WIDTH)
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}">'
        f'<rect class="track" width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}" rx="2"/>'
        f'<rect class="{kind}" width="{width:.1f}" height="{_BAR_HEIGHT}" rx="2"/>'
        f'<line class="goal" x1="{_GOAL_AT}" x2="{_GOAL_AT}" y1="0" y2="{_BAR_HEIGHT}"/></svg>'
    )


# ---- what the figures come from


def _comparisons(details: Mapping[str, object]) -> str:
    """Minimum, median and maximum of either side, where the load was a comparison."""
    rows = [
        f'<th scope="row">{escape(name.replace("_", " "))}</th><td>{escape(str(found["unit"]))}</td>'
        f'<td class="number">{escape(str(found["runs"]))}</td>'
        f"{_spread(found['tailrace'])}{_spread(found['bare'])}"
        for name, found in details.items()
        if isinstance(found, Mapping) and {"unit", "runs", "tailrace", "bare"} <= found.keys()
    ]
    if not rows:
        return "<p>Nothing was kept.</p>"
    head = '<th scope="col">load</th><th scope="col">unit</th><th class="number" scope="col">runs</th>'
    head += "".join(
        f'<th class="number" scope="col">{side} {part}</th>'
        for side in ("tailrace", "bare")
        for part in ("min", "median", "max")
    )
    return _table(head, rows)


def _spread(rates: Mapping[str, float]) -> str:
    return "".join(
        f'<td class="number">{write_figure(rates[part])}</td>' for part in ("min", "median", "max")
    )


def _machine(facts: Mapping[str, object]) -> str:
    rows = (
        f'<th scope="row">{escape(key.replace("_", " "))}</th><td>{_fact(key, value)}</td>'
        for key, value in facts.items()
    )
    return _table("", rows)


def _fact(key: str, value: object) -> str:
    if value is None:
        return '<span class="quiet">not there</span>'
    if key.endswith("_bytes") and isinstance(value, int):
        return f"{value / (1 << 30):.1f} GiB"
    return escape(str(value))


def _table(head: str, rows: Iterable[str]) -> str:
    top = f"<thead><tr>{head}</tr></thead>\n" if head else ""
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table>\n{top}<tbody>\n{body}\n</tbody>\n</table></div>'
