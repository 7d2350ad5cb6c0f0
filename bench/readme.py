"""README's table, made from the results: a handful of loads, one column per server.

It stands between two marks, so that it can be made again, and a test holds README to the kept results.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bench.report import Report
from bench.table import figure, markdown

BEGIN = "<!-- made by `python -m bench --render bench/results/peers.json --readme README.md` -->"
END = "<!-- end of what was made -->"


class Line(NamedTuple):
    """One row: a load and one of its figures, in the durable or in the relaxed columns."""

    text: str
    load: str
    figure: str


# One column each: the durable target and the relaxed one.
_COLUMNS = (
    ("Tailrace", "tailrace", "tailrace-os"),
    ("Kafka", "kafka-durable", "kafka"),
    ("Redis Streams", "redis-durable", "redis"),
    ("NATS JetStream", "nats-durable", "nats"),
    ("RabbitMQ", "rabbitmq-durable", "rabbitmq"),
)
_DURABLE = (
    Line("1 producer: p50 ms", "producers-1", "p50_ms"),
    Line("16 producers: requests/s", "producers-16", "per_s"),
    Line("16 producers: p99 ms", "producers-16", "p99_ms"),
    Line("64 producers: requests/s", "producers-64", "per_s"),
    Line("64 producers, 64 partitions: requests/s", "producers-64x64", "per_s"),
)
_RELAXED = (
    Line("one record a request, 8 x 5 in flight: requests/s", "unbatched", "per_s"),
    Line("produce 16 KiB: MB/s", "produce-16k", "mb_per_s"),
    Line("produce 1 MB: MB/s", "produce-1m", "mb_per_s"),
    Line("fetch 16 KB: requests/s", "fetch-16k", "per_s"),
    Line("fetch 1 MB, 4 connections: MB/s", "fetch-1m-4", "mb_per_s"),
    Line("one record beside 4 x 1 MB: p99 ms", "fairness", "p99_ms"),
    Line("confluent-kafka, 1 KiB, 6 partitions, in: records/s", "client-1024-6-none-in", "per_s"),
    Line("confluent-kafka, 1 KiB, 6 partitions, out: records/s", "client-1024-6-none-out", "per_s"),
    Line("end to end, 1,000 records/s: p99 ms", "latency-1k", "p99_ms"),
)


def readme_tables(report: Report) -> str:
    """Both tables with their headings; columns of servers that were not there are left out."""
    facts = report.machine
    place = f"{facts.get('cpu')}, {facts.get('cores')} cores, {facts.get('file_system')}"
    return "\n\n".join(
        [
            f"One run on {place}, {facts.get('python')}, {report.began[:10]}; "
            "all of it is in [bench/results/peers.md](bench/results/peers.md).",
            "Every acknowledgement waits for the disk (Kafka with `flush.messages=1`, Redis with\n"
            "`appendfsync always`, NATS with `sync_interval: always`, RabbitMQ with quorum queues);\n"
            "each producer waits for every record:",
            _table(report, _DURABLE, durable=True),
            "None does (Tailrace with `fsync = os`, Kafka and NATS as they come, Redis with\n"
            "`appendfsync no`, RabbitMQ with streams):",
            _table(report, _RELAXED, durable=False),
            _servers(report),
        ]
    )


def _table(report: Report, lines: tuple[Line, ...], *, durable: bool) -> str:
    columns = [
        (title, relaxed if not durable else strict)
        for title, strict, relaxed in _COLUMNS
        if (strict if durable else relaxed) in report.targets
    ]
    rows = [
        [line.text, *(figure(report.value(line.load, target, line.figure)) for _, target in columns)]
        for line in lines
    ]
    return markdown(["", *(title for title, _ in columns)], rows)


def _servers(report: Report) -> str:
    """Memory and start, in a sentence each."""
    ours, theirs = "tailrace", "kafka"
    if theirs not in report.servers:
        return ""

    def fact(server: str, name: str) -> str:
        return figure(report.fact(server, name))

    return (
        f"Ready after {fact(ours, 'ready_s')} s (Kafka {fact(theirs, 'ready_s')} s), "
        f"{fact(ours, 'idle_rss_mb')} MB idle ({fact(theirs, 'idle_rss_mb')} MB), "
        f"{fact('tailrace-os', 'loaded_rss_mb')} MB after all loads ({fact(theirs, 'loaded_rss_mb')} MB)."
    )


def put_tables(text: str, report: Report) -> str:
    """README with its tables made anew; ValueError if the marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no place for the tables: the lines {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n\n{readme_tables(report)}\n\n{END}{after}"


def update_readme(path: Path, report: Report) -> None:
    path.write_text(put_tables(path.read_text(encoding="utf-8"), report), encoding="utf-8")
