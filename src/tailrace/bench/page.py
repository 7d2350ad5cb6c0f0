"""The page of `tailrace bench log`: figures beside their goals, and where they were taken.

A bar shows a figure as a share of its goal, which is the same line in every row; whether it is met is written
too, since not everybody sees the colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape

from tailrace.bench.report import LogReport, Verdict, judge, write_figure
from tailrace.page import document, facts, table

_BAR_WIDTH, _BAR_HEIGHT = 300, 14
_GOAL_AT = 180  # where the bar of a figure ends that is just its goal


def write_page(report: LogReport, *, measured_at: datetime) -> str:
    """The whole page."""
    body = f"""<h2>Figures and goals</h2>
{_figures(judge(report))}
<p>Ratios are ours over the bare calls on the same disk, of medians: 1 is as fast. The line is the goal.</p>
<h2>In absolute terms</h2>
{_comparisons(report.details)}
<h2>Measured on</h2>
{facts(report.machine)}"""
    return document(
        "tailrace bench log",
        heading="The log against the bare system calls",
        measured_at=measured_at,
        body=body,
        row=report.as_row(),
    )


# ---- figures


def _figures(verdicts: Iterable[Verdict]) -> str:
    head = '<th scope="col">figure</th><th></th><th class="number" scope="col">measured</th>'
    head += '<th class="number" scope="col">goal</th><th></th>'
    return table(head, map(_figure, verdicts))


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
    return table(head, rows)


def _spread(rates: Mapping[str, float]) -> str:
    return "".join(
        f'<td class="number">{write_figure(rates[part])}</td>' for part in ("min", "median", "max")
    )
