"""One load on one target, once: the processes that make it, and the server's own use of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.child import Child, Row, ask_child
from bench.dialect import DIALECTS
from bench.load import ClientLoad, LatencyLoad, Load, WireJob, WireLoad
from bench.server.process import HOST
from bench.target import Target
from tailrace.bench.wire import LoadError
from tailrace.bench.wire.topic import admin

_PATIENCE_S = 120.0
_TOPIC = "bench-client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long a load runs."""

    warm_s: float
    seconds: float
    client_s: float
    latency_s: float


def measure(load: Load, target: Target, durations: Durations) -> dict[str, Row]:
    """The figures, by the name that they have in the report; most loads have one set of them."""
    if isinstance(load, WireLoad):
        return {load.name: _wire(load, target, durations)}
    with admin(HOST, target.server.port) as client:
        client.delete(_TOPIC)
        partitions = load.partitions if isinstance(load, ClientLoad) else 1
        client.create(_TOPIC, partitions=partitions, configs=target.topic_configs)
        try:
            if isinstance(load, ClientLoad):
                return _client(load, target, durations)
            return {load.name: _latency(load, target, durations)}
        finally:
            client.delete(_TOPIC)


def _wire(load: WireLoad, target: Target, durations: Durations) -> Row:
    assert target.dialect in DIALECTS
    job = WireJob(
        dialect=target.dialect,
        host=HOST,
        port=target.server.port,
        durable=target.durable,
        pid=target.server.pid,
        parts=load.parts,
        warm_s=durations.warm_s,
        seconds=durations.seconds,
        topic_configs=target.topic_configs,
    )
    return ask_child("bench.generator", job.as_row(), timeout_s=durations.seconds + _PATIENCE_S)


def _client(load: ClientLoad, target: Target, durations: Durations) -> dict[str, Row]:
    job = {
        "bootstrap": f"{HOST}:{target.server.port}",
        "topic": _TOPIC,
        "partitions": load.partitions,
        "record_bytes": load.record_bytes,
        "compression": load.compression,
        "seconds": durations.client_s,
    }
    produced = _together(target, [{**job, "role": "produce"}])
    count = produced["count"]
    consumed = _together(target, [{**job, "role": "consume", "count": count}])
    return {f"{load.name}-in": produced, f"{load.name}-out": consumed}


def _latency(load: LatencyLoad, target: Target, durations: Durations) -> Row:
    job = {
        "bootstrap": f"{HOST}:{target.server.port}",
        "topic": _TOPIC,
        "partitions": 1,
        "record_bytes": load.record_bytes,
        "per_s": load.per_s,
        "seconds": durations.latency_s,
        "count": int(load.per_s * durations.latency_s),
    }
    return _together(target, [{**job, "role": "receive"}, {**job, "role": "emit"}])


def _together(target: Target, jobs: Sequence[Row]) -> Row:
    """Children that begin at once; the answer of the first, and what the server used meanwhile."""
    children: list[Child] = []
    try:
        children.extend(Child("bench.client", job) for job in jobs)
        for child in children:
            if child.hear(timeout_s=_PATIENCE_S) != "ready":
                raise LoadError("a client could not begin")
        before = target.server.usage()
        for child in children:
            child.tell("go")
        answers = [child.hear_row(timeout_s=_PATIENCE_S) for child in children]
        after = target.server.usage()
    finally:
        for child in children:
            child.__exit__(None, None, None)
    found = answers[0]
    if before is not None and after is not None:
        add_cpu(found, cpu_s=after.cpu_s - before.cpu_s, rss_bytes=after.rss_bytes)
    return found


def add_cpu(row: Row, *, cpu_s: float, rss_bytes: int) -> None:
    """Processor time per record and per MB, where the row has a count and a rate."""
    row["cpu_us"] = cpu_s / float(str(row["count"])) * 1e6
    row["rss_mb"] = rss_bytes / 1e6
    if "mb_per_s" in row:
        record_mb = float(str(row["mb_per_s"])) / float(str(row["per_s"]))
        row["cpu_ms_per_mb"] = float(str(row["cpu_us"])) / 1e3 / record_mb
