"""The report for people, as Markdown: goals, figures, what they were taken on, and how to take them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from tailrace.bench.report import Verdict, write_figure
from tailrace.bench.spark.report import SparkReport, judge

_TITLE = "# Topics through Spark"
_HOW = """\
Both sources read the same topic of the same broker in the same Spark session, in turns; figures are medians
of the rounds, after one that is not counted. The broker, Spark and its Python workers share the machine's
cores. Spark's own Kafka source is spark-sql-kafka; the archive pipeline is held against what that one writes
as Parquet. The first read is measured in a process of its own each time, without the start of Spark. Memory
is what the largest Python worker of the archive held at most, with a quarter of the topic and with all of
it."""


def as_markdown(report: SparkReport, *, measured_at: datetime) -> str:
    """The whole file."""
    parts = [_TITLE, _machine_line(report, measured_at), *overview(report), _HOW]
    parts += ["## The run", table(["", ""], ([key, str(value)] for key, value in report.lines().items()))]
    if report.missing:
        parts += ["## What is missing", "\n".join(f"- {note}" for note in report.notes())]
    parts += ["Again: `make bench-spark`."]
    return "\n\n".join(parts) + "\n"


def overview(report: SparkReport) -> list[str]:
    """Goals and figures."""
    goals = table(["goal", "wanted", "reached", ""], map(_goal_cells, judge(report)))
    heads = ["load", "tailrace", "spark-sql-kafka", "ratio", "unit"]
    figures = table(heads, ([str(row[key]) for key in heads] for row in report.rows()))
    return [goals, figures]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Padded, so that it reads well as it is too; the first column stands to the left, the others do not."""
    cells = [list(head), *map(list, rows)]
    widths = [max(3, *(len(row[at]) for row in cells)) for at in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first, *others = (
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "| " + " | ".join([first, *others]) + " |"

    rule = (
        "| " + " | ".join("-" * (width - 1) + (":" if at else "-") for at, width in enumerate(widths)) + " |"
    )
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def _goal_cells(verdict: Verdict) -> list[str]:
    goal = verdict.goal
    wanted = f"{'<=' if goal.at_most else '>='} {write_figure(goal.limit)}"
    reached = "not measured" if verdict.value is None else write_figure(verdict.value)
    return [goal.text, wanted, reached, "" if verdict.met is None else "met" if verdict.met else "missed"]


def _machine_line(report: SparkReport, measured_at: datetime) -> str:
    machine = report.machine
    return (
        f"{measured_at:%Y-%m-%d %H:%M} UTC, {machine['cpu']}, {machine['cores']} cores, {machine['kernel']},"
        f" {machine['python']}, load average at the end {machine['load_average']}."
    )
