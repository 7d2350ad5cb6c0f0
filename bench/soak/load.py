"""The load, in a process of its own, so that it shares no event loop with the broker or with its observers.

It is told its job as a line of JSON, connects everything and says `ready`. From then on the load runs, and
every line it is told is answered with one:

    row    counters since the beginning, latencies since the last row
    stop   send no more; when all is acknowledged and read, the last row, with what each partition must hold

It ends with its standard input. `errors` in a row is what the broker refused or broke off; the first is
enough to call the soak a failure, so nothing is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine

from bench.soak.connection import LIST_OFFSETS, check, connect
from bench.soak.consumer import Consumer
from bench.soak.lane import Lane
from bench.soak.pace import Pace
from bench.soak.shape import BATCH_BYTES, RECORD_BYTES, TOPIC, Job
from bench.soak.visit import keep_visiting, visit_connection, visit_group, visit_topic
from tailrace.bench.wire import LoadError, percentiles
from tailrace.bench.wire.kafka import batch_bytes, one_record, produce_reader, produce_ring
from tailrace.records import read_batch
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_ERRORS_MAX = 20
_DRAIN_S = 30.0

Row = dict[str, object]


class Kind:
    """All producers of one kind: what a request carries, and the lanes with the partition of each."""

    def __init__(self, name: str, batch: bytes, *, in_flight: int) -> None:
        self.name, self.batch, self.in_flight = name, batch, in_flight
        self.records = read_batch(memoryview(batch)).last_offset_delta + 1
        self.lanes: list[tuple[int, Lane]] = []

    def acknowledged(self) -> int:
        return sum(lane.acknowledged for _, lane in self.lanes)

    def take_latencies(self) -> Row:
        """Percentiles since the last call."""
        seen: list[int] = []
        for _, lane in self.lanes:
            seen += lane.latencies_ns
            lane.latencies_ns.clear()
        found = percentiles(seen)
        return {
            f"{self.name}_p50_ms": None if found is None else found.p50_ms,
            f"{self.name}_p99_ms": None if found is None else found.p99_ms,
        }


class Load:
    """Everything that talks to the broker."""

    def __init__(self, job: Job) -> None:
        self._job = job
        shape = job.shape
        self._singles = Kind("singles", one_record(RECORD_BYTES), in_flight=shape.singles_in_flight)
        self._batches = Kind("batches", batch_bytes(BATCH_BYTES), in_flight=shape.batchers_in_flight)
        self._consumers: list[Consumer] = []
        self._began_at: list[int] = []  # where each partition ended before us
        self._visits: list[asyncio.Task[None]] = []
        self._visited = {"groups": 0, "connections": 0, "topics": 0}
        self._errors: list[str] = []

    async def start(self) -> None:
        """Connect all; the producers begin when everybody is there."""
        shape, rates = self._job.shape, self._job.rates
        self._began_at = await self._ends()
        for partition, position in enumerate(self._began_at):
            self._consumers.append(await self._consumer(partition, position))
        per_s = None if rates is None else rates.singles_per_s
        await self._connect(self._singles, shape.singles, per_s=per_s)
        per_s = None if rates is None else rates.batches_per_s
        await self._connect(self._batches, shape.batchers, per_s=per_s)
        for kind in (self._singles, self._batches):
            for _, lane in kind.lanes:
                lane.pump()
        self._start_visits()

    def row(self) -> Row:
        """What has happened so far."""
        singles, batches = self._singles.acknowledged(), self._batches.acknowledged()
        return {
            "kind": "row",
            "at_s": time.monotonic(),
            "cpu_s": time.process_time(),
            "singles": singles,
            "batches": batches,
            "records": singles * self._singles.records + batches * self._batches.records,
            "bytes": singles * len(self._singles.batch) + batches * len(self._batches.batch),
            "fetches": sum(consumer.fetches for consumer in self._consumers),
            "fetched_bytes": sum(consumer.fetched_bytes for consumer in self._consumers),
            "errors": self._errors,
            **self._visited,
            **self._singles.take_latencies(),
            **self._batches.take_latencies(),
        }

    async def stop(self) -> Row:
        """Drain, wait for the consumers, close; the last row."""
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)
        lanes = [lane for kind in (self._singles, self._batches) for _, lane in kind.lanes]
        for lane in lanes:
            lane.stop()
        await self._wait(lambda: asyncio.gather(*(lane.wait_drained() for lane in lanes)), "acknowledged")
        acknowledged = self._acknowledged()
        ends = [began + more for began, more in zip(self._began_at, acknowledged, strict=True)]
        waits = [each.wait_position(end) for each, end in zip(self._consumers, ends, strict=True)]
        await self._wait(lambda: asyncio.gather(*waits), "read")
        positions = [consumer.position for consumer in self._consumers]
        for lane in lanes:
            lane.close()
        for consumer in self._consumers:
            consumer.close()
        return {**self.row(), "kind": "end", "acknowledged": acknowledged, "positions": positions}

    def _acknowledged(self) -> list[int]:
        """Records, by partition."""
        counts = [0] * self._job.shape.partitions
        for kind in (self._singles, self._batches):
            for partition, lane in kind.lanes:
                counts[partition] += lane.acknowledged * kind.records
        return counts

    async def _wait(self, what: Callable[[], asyncio.Future[list[None]]], word: str) -> None:
        try:
            async with asyncio.timeout(_DRAIN_S):
                await what()
        except TimeoutError:
            self._fail(f"not everything was {word} within {_DRAIN_S:.0f} s of the end")

    async def _connect(self, kind: Kind, count: int, *, per_s: float | None) -> None:
        """Lanes take the partitions in turn, and their timetables are shifted against each other."""
        loop, began_s = asyncio.get_running_loop(), time.monotonic()
        for number in range(count):
            partition = number % self._job.shape.partitions
            ring = produce_ring(kind.batch, topic=TOPIC, partition=partition, in_flight=kind.in_flight)
            shift_s = 0.0 if per_s is None else number / per_s
            lane = Lane(
                ring=ring,
                reader=produce_reader(ring, topic=TOPIC),
                in_flight=kind.in_flight,
                pace=Pace(per_s=None if per_s is None else per_s / count, began_s=began_s + shift_s),
                fail=self._fail,
            )
            await loop.create_connection(lambda lane=lane: lane, self._job.host, self._job.port)  # type: ignore[misc]
            kind.lanes.append((partition, lane))

    async def _consumer(self, partition: int, position: int) -> Consumer:
        _, made = await asyncio.get_running_loop().create_connection(
            lambda: Consumer(topic=TOPIC, partition=partition, position=position, fail=self._fail),
            self._job.host,
            self._job.port,
        )
        return made

    def _start_visits(self) -> None:
        shape, host, port = self._job.shape, self._job.host, self._job.port

        def positions() -> list[int]:
            return [consumer.position for consumer in self._consumers]

        def end() -> int:
            return self._consumers[0].position

        batch = one_record(RECORD_BYTES)
        # The load that was here before us may have left a guest behind; ours do not meet it.
        guest = f"{TOPIC}-guest-{os.getpid()}"
        self._visit(
            "groups",
            shape.group_every_s,
            lambda n: visit_group(host, port, group=guest, number=n, positions=positions),
        )
        self._visit(
            "connections", shape.connection_every_s, lambda n: visit_connection(host, port, number=n, end=end)
        )
        self._visit(
            "topics",
            shape.topic_every_s,
            lambda n: visit_topic(host, port, name=f"{guest}-{n}", batch=batch),
        )

    def _visit(self, name: str, every_s: float, visit: Callable[[int], Coroutine[None, None, None]]) -> None:
        def done() -> None:
            self._visited[name] += 1

        task = asyncio.create_task(
            keep_visiting(visit, every_s=every_s, done=done, fail=lambda why: self._fail(f"{name}: {why}")),
            name=f"visits of {name}",
        )
        self._visits.append(task)

    async def _ends(self) -> list[int]:
        asked = [
            ListOffsetsPartition(partition_index=index, timestamp=-1)
            for index in range(self._job.shape.partitions)
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
        async with connect(self._job.host, self._job.port) as way:
            (topic,) = (await way.ask(LIST_OFFSETS, request, ListOffsetsResponse)).topics
        for partition in topic.partitions:
            check(partition.error_code, "list offsets")
        return [each.offset for each in sorted(topic.partitions, key=lambda each: each.partition_index)]

    def _fail(self, why: str) -> None:
        if len(self._errors) < _ERRORS_MAX:
            self._errors.append(why)


async def serve() -> None:
    """Answer line by line until standard input ends."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    load = Load(Job.from_row(json.loads(await lines.readline())))
    try:
        await load.start()
    except (LoadError, OSError) as error:
        _say(json.dumps({"error": f"the load could not begin: {error}"}))
        return
    _say("ready")
    while word := (await lines.readline()).decode().strip():
        if word == "stop":
            _say(json.dumps(await load.stop()))
            return
        _say(json.dumps(load.row()))


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(serve())


if __name__ == "__main__":
    main()
