"""More consumers of one topic: of what it holds, and of what is just being written.

The first fetch a megabyte at a time, over and over from the start of the topic. The second all wait at its
end for one record, which is then produced; when everybody has it they wait for the next. What that costs is
divided by the records delivered, so a share of the produce is in it.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

from bench.generator import run_job
from bench.load import MB, RECORD_BYTES, Part, WireJob
from bench.report import Row
from bench.scaling.bed import Bed
from bench.scaling.curve import MB_CPU, MB_RATE, MEMORY, P99, Curve, Figure
from tailrace.bench.wire import LoadError, percentiles
from tailrace.bench.wire.kafka import CLIENT_ID, FETCH_VERSION, PRODUCE_VERSION, one_record, produce_ring
from tailrace.bench.wire.topic import admin, connect, read_reply
from tailrace.wire.kafka import (
    FETCH,
    PRODUCE,
    FetchPartition,
    read_fetch_response,
    read_produce_response,
    write_fetch_request,
    write_request,
)

_TOPIC = "scaling-consumers"
_LIVE = "scaling-live"
_PARKED_MS = 20_000
_ROUNDS_MIN = 3


def measure(bed: Bed, consumers: int) -> Row:
    """What is there, then what comes."""
    job = WireJob(
        dialect="kafka",
        host=bed.host,
        port=bed.port,
        durable=True,
        pid=bed.pid,
        parts=(Part(kind="fetch", connections=consumers, batch_bytes=MB),),
        warm_s=bed.durations.warm_s,
        seconds=bed.durations.seconds,
        topic=_TOPIC,
    )
    return {**run_job(job), **deliver(bed, consumers)}


def deliver(bed: Bed, consumers: int) -> Row:
    """One record at a time to everybody."""
    with admin(bed.host, bed.port) as client:
        client.create(_LIVE, partitions=1, configs={})
    with ExitStack() as stack:
        producer = stack.enter_context(connect(bed.host, bed.port))
        waiting = [stack.enter_context(connect(bed.host, bed.port)) for _ in range(consumers)]
        uncounted = len(_rounds(producer, waiting, first=0, seconds=bed.durations.warm_s))
        before = bed.usage()
        seen_ns = _rounds(producer, waiting, first=uncounted, seconds=bed.durations.seconds)
        cpu_s = bed.usage().cpu_s - before.cpu_s
    latency = percentiles(seen_ns)
    assert latency is not None
    return {"live_us": cpu_s / (len(seen_ns) * consumers) * 1e6, "live_p99_ms": latency.p99_ms}


def _rounds(
    producer: socket.socket, waiting: list[socket.socket], *, first: int, seconds: float
) -> list[int]:
    """For each record the nanoseconds from sending it until the last one had it."""
    batch = one_record(RECORD_BYTES)
    ring = produce_ring(batch, topic=_LIVE, partition=0, in_flight=1)
    produce = ring.data[: ring.request_bytes]
    seen_ns: list[int] = []
    end = time.monotonic() + seconds
    while len(seen_ns) < _ROUNDS_MIN or time.monotonic() < end:
        wait = fetch_frame(_LIVE, first + len(seen_ns))
        for sock in waiting:
            sock.sendall(wait)
        began = time.monotonic_ns()
        producer.sendall(produce)
        for sock in waiting:
            _check_delivered(read_reply(sock, FETCH, FETCH_VERSION))
        seen_ns.append(time.monotonic_ns() - began)
        _check_produced(read_reply(producer, PRODUCE, PRODUCE_VERSION))
    return seen_ns


def fetch_frame(topic: str, offset: int) -> bytes:
    """A fetch that waits for the record at this offset."""
    where = FetchPartition(0, -1, offset, -1, -1, MB)
    body = write_fetch_request(
        FETCH_VERSION, topics={topic: [where]}, max_wait_ms=_PARKED_MS, min_bytes=1, max_bytes=MB
    )
    return write_request(FETCH, FETCH_VERSION, 0, CLIENT_ID, body)


def _check_delivered(reply: memoryview) -> None:
    found = read_fetch_response(reply, FETCH_VERSION).topics[0][1][0]
    if found.error_code or not found.records:
        raise LoadError(f"a fetch that waited was answered without a record (error {found.error_code})")


def _check_produced(reply: memoryview) -> None:
    found = read_produce_response(reply, PRODUCE_VERSION).topics[0][1][0]
    if found.error_code:
        raise LoadError(f"the record was refused with error {found.error_code}")


CURVE = Curve(
    name="consumers",
    title="Consumers of one topic: fetch 1 MB at a time from its start; then wait for single records",
    x="consumers",
    figures=(
        MB_RATE,
        P99,
        MB_CPU,
        MEMORY,
        Figure(key="live_us", title="CPU of the broker, live", unit="µs per record delivered"),
        Figure(key="live_p99_ms", title="p99 until the last consumer has a record", unit="ms"),
    ),
    sizes=(1, 10, 100),
    quick_sizes=(1, 10),
    measure=measure,
)
