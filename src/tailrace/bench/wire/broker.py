"""A handful of loads against one broker that already runs, wherever it came from.

They share one topic with a name of its own, which is deleted at the end whatever happens. Figures are what
this one process sees; processor time is told only of a broker on this machine whose process id is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tailrace.bench.wire.accounting import Usage, tree_usage
from tailrace.bench.wire.driver import Lane, Outcome, Window, drive
from tailrace.bench.wire.kafka import (
    batch_bytes,
    fetch_reader,
    fetch_ring,
    one_record,
    produce_reader,
    produce_ring,
)
from tailrace.bench.wire.topic import admin, connect, fill
from tailrace.records import read_batch

_RECORD_BYTES = 100
_FILL_BATCHES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One load: so many connections with so many requests in flight; 0 bytes is a batch of one record."""

    name: str
    title: str
    connections: int
    in_flight: int = 1
    size: int = 0
    fetches: bool = False


SHAPES = (
    Shape(name="one", title="one producer, one record, wait for each", connections=1),
    Shape(name="unbatched", title="one record a request, 8 x 5 in flight", connections=8, in_flight=5),
    Shape(name="many", title="64 producers, one record each", connections=64),
    Shape(name="produce-16k", title="produce 16 KiB, 4 x 5", connections=4, in_flight=5, size=16_384),
    Shape(name="produce-1m", title="produce 1 MB, 4 x 2", connections=4, in_flight=2, size=1_000_000),
    Shape(name="fetch-16k", title="fetch 16 KB, 4 connections", connections=4, size=16_000, fetches=True),
    Shape(name="fetch-1m", title="fetch 1 MB, 4 connections", connections=4, size=1_000_000, fetches=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeResult:
    """What one load reached."""

    name: str
    title: str
    per_s: float
    mb_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    cpu_us: float | None  # of the broker, per request


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the broker is, and its process if that is ours to look at."""

    host: str
    port: int
    pid: int | None = None


def run_broker_bench(
    address: Address,
    *,
    seconds: float,
    shapes: Sequence[Shape] = SHAPES,
    note: Callable[[str], None] = lambda _name: None,
) -> Iterator[ShapeResult]:
    """One result after the other; LoadError if the broker cannot be reached, refuses or falls silent."""
    topic = f"tailrace-bench-{os.getpid()}"
    with admin(address.host, address.port) as door:
        door.create(topic, partitions=1, configs={})
        try:
            for shape in shapes:
                note(shape.title)
                yield _run(shape, address, topic, seconds)
        finally:
            door.delete(topic)


def _run(shape: Shape, address: Address, topic: str, seconds: float) -> ShapeResult:
    lanes: list[Lane] = []
    usages: list[Usage | None] = []

    def mark() -> None:
        usages.append(None if address.pid is None else tree_usage(address.pid))

    try:
        lanes.extend(_lanes(shape, address, topic))
        outcome = drive(lanes, Window(warm_s=seconds / 5, seconds=seconds, mark=mark))
    finally:
        for lane in lanes:
            lane.sock.close()
    return _result(shape, outcome, usages)


def _lanes(shape: Shape, address: Address, topic: str) -> Iterator[Lane]:
    batch = batch_bytes(shape.size) if shape.size else one_record(_RECORD_BYTES)
    if shape.fetches:
        first = fill(address.host, address.port, topic=topic, batch=batch, batches=_FILL_BATCHES)
        records = read_batch(memoryview(batch)).last_offset_delta + 1
        offsets = [first + each * records for each in range(_FILL_BATCHES)]
        ring = fetch_ring(topic=topic, partition=0, offsets=offsets, bytes_max=len(batch))
    else:
        ring = produce_ring(batch, topic=topic, partition=0, in_flight=shape.in_flight)
    for _ in range(shape.connections):
        reader = (fetch_reader if shape.fetches else produce_reader)(ring, topic=topic)
        sock = connect(address.host, address.port)
        yield Lane(sock=sock, ring=ring, reader=reader, in_flight=shape.in_flight)


def _result(shape: Shape, outcome: Outcome, usages: Sequence[Usage | None]) -> ShapeResult:
    (seen,) = outcome.lanes.values()
    latency = seen.latency
    before, after = usages
    cpu_us = None
    if before is not None and after is not None and seen.replies:
        cpu_us = (after.cpu_s - before.cpu_s) / seen.replies * 1e6
    return ShapeResult(
        name=shape.name,
        title=shape.title,
        per_s=seen.replies / outcome.seconds,
        mb_per_s=seen.payload_bytes / outcome.seconds / 1e6,
        p50_ms=None if latency is None else latency.p50_ms,
        p99_ms=None if latency is None else latency.p99_ms,
        p999_ms=None if latency is None else latency.p999_ms,
        cpu_us=cpu_us,
    )
