"""The report for people, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.spark.table import table
from bench.transactions.load import LAGS, PRODUCERS, WAYS, judge

_TITLE = "# Transactions"
_HOW = """\
One batch of one record of 100 bytes for each transaction, in one of 8 partitions; a producer begins the next
transaction when the commit of the last one was answered. The time of a transaction is that from its first
request to the answer to EndTxn. Tailrace syncs every transaction to the disk; Kafka runs with its defaults
and does not. All producers of a load share one process on the last core, and the servers have all cores.
Figures are medians of the rounds; the servers take turns load by load."""
_LAG = """\
End to end: from the call that sends a record until a reader that waits at the end of its partition has it, 50
records a second, one at a time. A record of a transaction is in sight of a reader of committed records when
its commit is durable, which is one more wait for the disk."""


def as_markdown(report: Mapping[str, Any]) -> str:
    """The whole file."""
    machine = report["machine"]
    line = (
        f"{report['ended']}, {machine['cpu']}, {machine['cores']} cores, {machine['kernel']},"
        f" {machine['file_system']}, {machine['python']}. {report['rounds']} rounds of"
        f" {report['seconds']:g} s;"
        f" load average before {report['load_before']:.2f}, after {report['load_after']:.2f}."
    )
    parts = [_TITLE, line, *overview(report), _HOW, _LAG]
    if report["skipped"]:
        parts.append("\n".join(f"- not measured: {name}: {why}" for name, why in report["skipped"].items()))
    return "\n\n".join([*parts, "Again: `make bench-transactions`."]) + "\n"


def overview(report: Mapping[str, Any]) -> list[str]:
    """Goals, transactions per second, and how late readers are."""
    figures = report["figures"]
    goals = [
        [
            goal.text,
            f"{'<=' if goal.at_most else '>='} {goal.limit:g}x",
            "" if goal.value is None else f"{goal.value:.2f}x",
            goal.verdict,
        ]
        for goal in judge(figures)
    ]
    servers = list(figures)
    rates = [
        [f"{title}, {count}", *_cells(figures, servers, f"{way}-{count}", ("per_s", "p50_ms", "p99_ms"))]
        for way, title in WAYS.items()
        for count in PRODUCERS
    ]
    lags = [
        [name.replace("-", ", read_"), *_cells(figures, servers, f"lag-{name}", ("p50_ms", "p99_ms"))]
        for name in LAGS
    ]
    return [
        table(["goal", "wanted", "reached", ""], goals),
        table(
            [
                "producers",
                *(f"{server} {what}" for server in servers for what in ("tx/s", "p50 ms", "p99 ms")),
            ],
            rates,
        ),
        table(
            ["end to end", *(f"{server} {what}" for server in servers for what in ("p50 ms", "p99 ms"))], lags
        ),
    ]


def _cells(
    figures: Mapping[str, Any], servers: list[str], load: str, wanted: tuple[str, ...]
) -> Iterator[str]:
    for server in servers:
        found = figures[server].get(load, {})
        for figure in wanted:
            value = found.get(figure)
            yield "-" if value is None else f"{value:,.0f}" if figure == "per_s" else f"{value:.2f}"
