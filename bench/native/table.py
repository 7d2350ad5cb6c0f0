"""The report as Markdown: goals, one table with everybody, then a table for every load."""

from __future__ import annotations

from bench.report import Report
from bench.table import figure, goal_table, load_table, machine_line, markdown, notes, server_table

TITLE = "Native messaging beside its peers"
AGAINST = "in the same run"

CHARTS = (
    ("per_s", "how many", "per second"),
    ("p50_ms", "p50 latency", "ms"),
    ("p99_ms", "p99 latency", "ms"),
)
"""Those of the page."""

_COLUMNS = (
    ("publish", "per_s", "publish /s"),
    ("deliver", "per_s", "deliver /s"),
    ("one", "p50_ms", "one p50 ms"),
    ("one", "p99_ms", "p99 ms"),
    ("one", "p999_ms", "p99.9 ms"),
    ("latency", "p50_ms", "to handler p50 ms"),
    ("latency", "p99_ms", "p99 ms"),
)
_BUSY = 0.9  # of a core: beyond that the client could hardly have done more
_WORDS = """\
Every client is the broker's own for asyncio (AsyncClient, aio-pika, nats-py, redis-py with hiredis), in one
process, on one core and on uvloop. RabbitMQ and NATS are told of an acknowledgement and do not answer;
Tailrace and Redis answer when it is on the disk. NATS and the memory engine do not sync. Figures are medians
of the rounds."""


def overview(report: Report) -> str:
    """Everybody, with the figures that matter."""
    rows = [
        [title, *(figure(report.value(load, target, key)) for load, key, _ in _COLUMNS)]
        for target, title in report.targets.items()
    ]
    return markdown(["100 bytes", *(title for *_, title in _COLUMNS)], rows) if rows else ""


def busy_clients(report: Report) -> str:
    """Where the client and not the broker was the limit."""
    found = [
        f"{target} in {load} ({busy:.2f})"
        for load in report.loads
        for target in report.targets
        if (busy := report.value(load, target, "driver_cpu")) is not None and busy >= _BUSY
    ]
    if not found:
        return ""
    return f"The client process was busy itself, in cores: {', '.join(found)}. The broker may reach more."


def goals_and_overview(report: Report) -> list[str]:
    """What a terminal shows at the end of a run."""
    parts = [machine_line(report), goal_table(report, against=AGAINST), overview(report)]
    return [part for part in (*parts, busy_clients(report)) if part]


def as_markdown(report: Report) -> str:
    """The whole report."""
    parts = [f"# {TITLE}", *goals_and_overview(report), _WORDS, "## Servers", server_table(report)]
    for load, title in report.loads.items():
        if table := load_table(report, load):
            parts += [f"## {title[0].upper()}{title[1:]}", table]
    if missing := notes(report):
        parts += ["## What is missing", "\n".join(f"- {line}" for line in missing)]
    return "\n\n".join(parts) + "\n"
