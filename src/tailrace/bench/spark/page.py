"""The page of `tailrace bench spark`: goals, and both sides of every load as bars with their rounds.

Bars of one load share a scale that begins at zero, and each is a median; the thin line through its end goes
from the least round to the greatest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from statistics import median

from tailrace.bench.report import Verdict, write_figure
from tailrace.bench.spark.report import LoadFigures, SparkReport, judge, ratio_of, write_rate
from tailrace.page import document, facts, table

_WIDTH, _LABEL_WIDTH, _VALUE_WIDTH = 900, 200, 110
_ROW, _BAR = 24, 14


def write_spark_page(report: SparkReport, *, measured_at: datetime) -> str:
    """The whole page."""
    parts = [
        _stopped(report),
        "<h2>Goals</h2>",
        _goals(judge(report)),
        *(_plot(each) for each in report.loads),
        "<h2>All figures</h2>",
        _table(report.loads),
        _codec(report),
        "<h2>Python workers of the archive, MB at most</h2>",
        facts({key.removesuffix("_mb"): _mb(value) for key, value in report.memory.items()}),
        *(f"<p>{escape(note)}</p>" for note in report.notes()),
        "<h2>The run</h2>",
        facts(report.lines()),
        "<h2>Measured on</h2>",
        facts(report.machine),
    ]
    return document(
        "tailrace bench spark",
        heading="Topics through Spark",
        measured_at=measured_at,
        body="\n".join(part for part in parts if part),
        row=report.as_row(),
    )


def _stopped(report: SparkReport) -> str:
    if report.stopped is None:
        return ""
    return f'<p class="missed">Not everything was measured: {escape(report.stopped)}</p>'


def _mb(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f} MB"


def _goals(verdicts: Iterable[Verdict]) -> str:
    head = '<th scope="col">goal</th><th class="number" scope="col">measured</th>'
    head += '<th class="number" scope="col">wanted</th><th></th>'
    return table(head, map(_goal, verdicts))


def _goal(verdict: Verdict) -> str:
    goal = verdict.goal
    wanted = ("at most " if goal.at_most else "at least ") + write_figure(goal.limit)
    if verdict.value is None:
        measured, mark = '<span class="quiet">not there</span>', ""
    else:
        kind = "met" if verdict.met else "missed"
        measured, mark = write_figure(verdict.value), f'<span class="{kind}">{kind}</span>'
    return (
        f'<th scope="row">{escape(goal.text)}</th><td class="number">{measured}</td>'
        f'<td class="number">{wanted}</td><td>{mark}</td>'
    )


def _table(loads: Sequence[LoadFigures]) -> str:
    head = '<th scope="col">load</th><th scope="col">unit</th>' + "".join(
        f'<th class="number" scope="col">{name}</th>' for name in ("tailrace", "spark-sql-kafka", "ratio")
    )
    rows = (
        f'<th scope="row">{escape(each.title)}</th><td>{escape(each.unit)}</td>'
        f'<td class="number">{write_rate(each.ours, each.unit)}</td>'
        f'<td class="number">{write_rate(each.theirs, each.unit)}</td>'
        f'<td class="number">{write_rate(ratio_of(each), "x")}</td>'
        for each in loads
    )
    return table(head, rows)


def _codec(report: SparkReport) -> str:
    head = '<th scope="col">codec, records/s</th>' + "".join(
        f'<th class="number" scope="col">{name}</th>' for name in ("decode", "encode")
    )
    rows = (
        f'<th scope="row">{twin}</th>'
        + "".join(
            f'<td class="number">{write_rate(report.codec[f"{way}_{twin}"], "")}</td>'
            for way in ("decode", "encode")
        )
        for twin in ("compiled", "pure")
    )
    return table(head, rows)


# ---- plots


def _plot(load: LoadFigures) -> str:
    """A bar for either side; nothing if neither was measured."""
    sides = [
        (name, kind, values)
        for name, kind, values in (
            ("tailrace", "met", load.tailrace),
            ("spark-sql-kafka", "track", load.kafka),
        )
        if values
    ]
    if not sides:
        return ""
    top = max(max(values) for _, _, values in sides) or 1.0
    scale = (_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH) / top
    lines = [_bar(name, kind, values, row=row, scale=scale) for row, (name, kind, values) in enumerate(sides)]
    heading = f"{load.title}, {load.unit}"
    return (
        f'<h2>{escape(heading)}</h2>\n<div class="scroll"><svg class="plot" role="img"'
        f' aria-label="{escape(heading)}" width="{_WIDTH}" height="{len(sides) * _ROW}">\n'
        + "\n".join(lines)
        + "\n</svg></div>"
    )


def _bar(name: str, kind: str, values: Sequence[float], *, row: int, scale: float) -> str:
    middle = median(values)
    low, high = _LABEL_WIDTH + min(values) * scale, _LABEL_WIDTH + max(values) * scale
    y = row * _ROW
    return (
        f'<text x="{_LABEL_WIDTH - 10}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
        f'<rect class="{kind}" x="{_LABEL_WIDTH}" y="{y}" width="{middle * scale:.1f}"'
        f' height="{_BAR}" rx="2"/>'
        f'<line class="goal" x1="{low:.1f}" x2="{high:.1f}" y1="{y + _BAR / 2}" y2="{y + _BAR / 2}"/>'
        f'<text x="{high + 8:.1f}" y="{y + 12}">{write_rate(middle, "")}</text>'
    )
