"""A handful of loads against one broker that already runs, wherever it came from.

They share one topic with a name of its own, which is deleted at the end whatever happens. Figures are what
this one process sees; processor time and memory are told only of a broker whose processes are on this machine
and may be looked at.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tailrace.bench.wire.accounting import Usage, process_usage
from tailrace.bench.wire.delivery import Route, deliver
from tailrace.bench.wire.driver import Lane, Outcome, Window, drive
from tailrace.bench.wire.interrupt import CtrlC, Interrupted, listening
from tailrace.bench.wire.kafka import (
    batch_bytes,
    fetch_reader,
    fetch_ring,
    one_record,
    produce_reader,
    produce_ring,
)
from tailrace.bench.wire.reader import LoadError
from tailrace.bench.wire.ring import Ring
from tailrace.bench.wire.subject import LoadTopic, Subject, create_topic, delete_topic, fill
from tailrace.bench.wire.topic import connect
from tailrace.records import read_batch

FULL_S, QUICK_S = 4.0, 1.0
"""How long each load is measured."""

_WARM_SHARE = 0.2  # of that, before
_FILL_BATCHES = 32
_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One load: so many connections with so many requests in flight; 0 bytes is a batch of one record."""

    name: str
    title: str
    connections: int
    in_flight: int = 1
    size: int = 0
    fetches: bool = False
    per_s: int = 0  # records at this rate, timed from producer to consumer; 0: as fast as answers come


SHAPES = (
    Shape(name="one", title="one producer, one record, wait for each", connections=1),
    Shape(name="unbatched", title="one record a request, 8 x 5 in flight", connections=8, in_flight=5),
    Shape(name="many", title="64 producers, one record each", connections=64),
    Shape(name="produce-16k", title="produce 16 KiB, 4 x 5", connections=4, in_flight=5, size=16_384),
    Shape(name="produce-1m", title="produce 1 MB, 4 x 2", connections=4, in_flight=2, size=1_000_000),
    Shape(name="fetch-16k", title="fetch 16 KB, 4 connections", connections=4, size=16_000, fetches=True),
    Shape(name="fetch-1m", title="fetch 1 MB, 4 connections", connections=4, size=1_000_000, fetches=True),
    Shape(name="delivery", title="producer to consumer, 1,000 records/s", connections=2, per_s=1000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured, and how."""

    seconds: float
    shapes: Sequence[Shape] = SHAPES
    acks: int = -1
    partitions: int = 1
    record_bytes: int = 100  # of the loads that do not send batches of a fixed size


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeResult:
    """What one load reached; the fields are the keys of its JSON."""

    name: str
    title: str
    per_s: float  # requests, or records of a load with a rate
    mb_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    cpu_us: float | None  # of the broker, per request
    cpu_ms_per_mb: float | None
    rss_mb: float | None  # of the broker, at the end of the load
    client_cpu: float  # share of a core that this process took: near 1 it was the limit, and not the broker


@dataclass(slots=True)
class BrokerRun:
    """What a run has found, however it ended."""

    results: list[ShapeResult] = field(default_factory=list)
    failure: str | None = None  # why it ended early
    interrupted: bool = False  # somebody pressed Ctrl-C
    topic_left: str | None = None  # could not be deleted


def run_broker_bench(
    subject: Subject, plan: Plan, *, note: Callable[[str], None] = lambda _title: None
) -> BrokerRun:
    """Every load in turn. A load that fails, or Ctrl-C, ends the run and loses nothing that was found.

    BrokerError or ClientError if there is no topic to be had: then nothing was measured.
    """
    run = BrokerRun()
    topic = create_topic(subject, f"tailrace-bench-{uuid.uuid4().hex[:12]}", partitions=plan.partitions)
    title = ""
    with listening() as ctrl_c:
        stage = _Stage(subject=subject, topic=topic, plan=plan, ctrl_c=ctrl_c)
        try:
            for shape in plan.shapes:
                title = shape.title
                note(title)
                run.results.append(stage.measure(shape))
        except LoadError as error:
            run.failure = f"{title}: {error}"
        except Interrupted:
            run.interrupted = True
        finally:
            if not delete_topic(subject, topic.name):
                run.topic_left = topic.name
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """Where the loads of one run take place."""

    subject: Subject
    topic: LoadTopic
    plan: Plan
    ctrl_c: CtrlC

    def measure(self, shape: Shape) -> ShapeResult:
        usages: list[Usage | None] = []
        pids = [each.pid for each in self.subject.processes]
        seconds = self.plan.seconds
        window = Window(
            warm_s=seconds * _WARM_SHARE,
            seconds=seconds,
            mark=lambda: usages.append(usage_of(pids)),
            check=self.ctrl_c.check,
        )
        with contextlib.ExitStack() as opened:
            if shape.per_s:
                outcome = self._deliver(shape, window, opened)
            else:
                outcome = drive(list(self._lanes(shape, opened)), window)
        return result_of(shape, outcome, usages)

    def _deliver(self, shape: Shape, window: Window, opened: contextlib.ExitStack) -> Outcome:
        record = one_record(self.plan.record_bytes)
        route = Route(
            topic=self.topic.name,
            partition=0,
            first_offset=self._fill(record, partition=0, batches=1) + 1,
            per_s=shape.per_s,
            record_bytes=self.plan.record_bytes,
            acks=self.plan.acks,
        )
        producer, consumer = (opened.enter_context(connect(*self.topic.leaders[0])) for _ in range(2))
        return deliver(producer, consumer, route=route, window=window)

    def _lanes(self, shape: Shape, opened: contextlib.ExitStack) -> Iterator[Lane]:
        """Its connections, spread over the partitions, each to the leader of its own."""
        batch = batch_bytes(shape.size) if shape.size else one_record(self.plan.record_bytes)
        rings: dict[int, Ring] = {}
        for number in range(shape.connections):
            partition = number % self.plan.partitions
            if partition not in rings:
                rings[partition] = self._ring(shape, batch, partition)
            ring = rings[partition]
            reader = (fetch_reader if shape.fetches else produce_reader)(ring, topic=self.topic.name)
            sock = opened.enter_context(connect(*self.topic.leaders[partition]))
            yield Lane(sock=sock, ring=ring, reader=reader, in_flight=shape.in_flight)

    def _ring(self, shape: Shape, batch: bytes, partition: int) -> Ring:
        topic = self.topic.name
        if not shape.fetches:
            return produce_ring(
                batch, topic=topic, partition=partition, in_flight=shape.in_flight, acks=self.plan.acks
            )
        first = self._fill(batch, partition=partition, batches=_FILL_BATCHES)
        records = read_batch(memoryview(batch)).last_offset_delta + 1
        offsets = [first + each * records for each in range(_FILL_BATCHES)]
        return fetch_ring(topic=topic, partition=partition, offsets=offsets, bytes_max=len(batch))

    def _fill(self, batch: bytes, *, partition: int, batches: int) -> int:
        return fill(self.subject, self.topic.name, partition=partition, batch=batch, batches=batches)


# ---- figures


def usage_of(pids: Sequence[int]) -> Usage | None:
    """Of all these processes together, without their children; None if there are none, or one has ended."""
    usages = [usage for pid in pids if (usage := process_usage(pid)) is not None]
    if not usages or len(usages) < len(pids):
        return None
    return Usage(
        cpu_s=sum(each.cpu_s for each in usages),
        rss_bytes=sum(each.rss_bytes for each in usages),
        processes=sum(each.processes for each in usages),
    )


def result_of(shape: Shape, outcome: Outcome, usages: Sequence[Usage | None]) -> ShapeResult:
    """The figures of one load; `usages` are the broker's as the window opened and as it closed."""
    (seen,) = outcome.lanes.values()
    latency = seen.latency
    before, after = usages
    cpu_s = None if before is None or after is None else after.cpu_s - before.cpu_s
    return ShapeResult(
        name=shape.name,
        title=shape.title,
        per_s=round(seen.replies / outcome.seconds, 1),
        mb_per_s=round(seen.payload_bytes / outcome.seconds / _MB, 3),
        p50_ms=None if latency is None else round(latency.p50_ms, 3),
        p99_ms=None if latency is None else round(latency.p99_ms, 3),
        p999_ms=None if latency is None else round(latency.p999_ms, 3),
        cpu_us=_share(cpu_s, seen.replies, 1e6),
        cpu_ms_per_mb=_share(cpu_s, seen.payload_bytes / _MB, 1e3),
        rss_mb=None if after is None else round(after.rss_bytes / _MB, 1),
        client_cpu=round(outcome.driver_cpu_s / outcome.seconds, 3),
    )


def _share(cpu_s: float | None, count: float, unit: float) -> float | None:
    return None if cpu_s is None or not count else round(cpu_s / count * unit, 3)
