"""A larger log in one partition: opening it, finding a time in it, reading it from the disk.

It is filled with batches of a megabyte, each a second later than the one before. Then the server is killed
and started, and stopped and started. Cold means that the pages of the data directory were dropped from the
page cache; what the disk itself or a host below it keeps is out of reach.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from bench.load import MB
from bench.report import Row
from bench.scaling.bed import Bed
from bench.scaling.curve import MEMORY, Curve, Figure, binary_label
from bench.scaling.push import Line, push
from tailrace.bench.wire import LoadError, percentiles
from tailrace.bench.wire.kafka import batch_bytes, fetch_reader, fetch_ring, produce_reader, produce_ring
from tailrace.bench.wire.topic import LIST_OFFSETS, Admin, admin, connect
from tailrace.records import UNCHECKED_BYTES, crc32c, read_batch
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_TOPIC = "scaling-log-size"
_CONFIGS = {"retention.ms": "-1", "retention.bytes": "-1"}
_ROOM = 1.2  # of the log's size, to be free before
_IN_FLIGHT = 4
_READ_BATCHES_MAX = 1_000
_SEEKS = 20
_WARM_ROUNDS = 5
_STEP_MS = 1_000

_CORRELATION, _CORRELATION_AT = struct.Struct(">i"), 8
_CRC, _CRC_AT = struct.Struct(">I"), 17
_TIMESTAMPS, _TIMESTAMPS_AT = struct.Struct(">qq"), 27  # base and max; see tailrace.records
_TAGS_BYTES = 3  # behind the records of a request


def measure(bed: Bed, size: int) -> Row:
    """Fill, kill, stop, search, read."""
    check_room(bed.place, size)
    batches = size // MB
    batch = batch_bytes(MB)
    first_ms = time.time_ns() // 1_000_000 - batches * _STEP_MS
    with admin(bed.host, bed.port) as client:
        client.create(_TOPIC, partitions=1, configs=_CONFIGS)
    fill_s = fill(bed, batch, batches=batches, first_ms=first_ms)
    killed = bed.restart(lambda: bed.leads(_TOPIC, 1), kill=True)
    stopped = bed.restart(lambda: bed.leads(_TOPIC, 1))
    records = read_batch(memoryview(batch)).last_offset_delta + 1
    found = seek_times(bed, batches=batches, records=records, first_ms=first_ms)
    return {
        **found,
        "fill_mb_per_s": batches * MB / fill_s / 1e6,
        "killed_ms": killed["ready_ms"],
        "stopped_ms": stopped["ready_ms"],
        "cold_mb_per_s": read_cold(bed, records=records, batches=min(batches, _READ_BATCHES_MAX)),
        "rss_mb": bed.rss_mb,
    }


def check_room(place: Path, size: int) -> None:
    """LoadError if the disk has too little left."""
    free, wanted = shutil.disk_usage(place).free, int(size * _ROOM)
    if free < wanted:
        raise LoadError(
            f"{binary_label(wanted)} must be free for it, and there are {free / (1 << 30):.1f} GiB"
        )


def fill(bed: Bed, batch: bytes, *, batches: int, first_ms: int) -> float:
    """Append so many copies of the batch, a second apart; the seconds that took."""
    ring = produce_ring(batch, topic=_TOPIC, partition=0, in_flight=_IN_FLIGHT)
    line = Line(
        sock=connect(bed.host, bed.port),
        frames=dated_frames(
            ring.data[: ring.request_bytes], len(batch), batches=batches, places=ring.count, first_ms=first_ms
        ),
        reader=produce_reader(ring, topic=_TOPIC),
        in_flight=_IN_FLIGHT,
    )
    return push([line])


def dated_frames(
    request: bytes, batch_size: int, *, batches: int, places: int, first_ms: int
) -> Iterator[bytearray]:
    """A produce request again and again in one buffer, its batch each time a second later."""
    frame = bytearray(request)
    view = memoryview(frame)[len(frame) - _TAGS_BYTES - batch_size :][:batch_size]
    for number in range(batches):
        now_ms = first_ms + number * _STEP_MS
        _CORRELATION.pack_into(frame, _CORRELATION_AT, number % places)
        _TIMESTAMPS.pack_into(view, _TIMESTAMPS_AT, now_ms, now_ms)
        _CRC.pack_into(view, _CRC_AT, crc32c(view[UNCHECKED_BYTES:]))
        yield frame


def seek_times(bed: Bed, *, batches: int, records: int, first_ms: int) -> Row:
    """Where times are, asked for one by one: first with nothing in memory, then with all of it."""
    chosen = random.Random(batches).sample(range(batches), min(_SEEKS, batches))
    cold_ns: list[int] = []
    warm_ns: list[int] = []
    with admin(bed.host, bed.port) as client:
        for number in chosen:
            drop_pages(bed.place)
            cold_ns.append(seek(client, first_ms + number * _STEP_MS, expected=number * records))
        for _ in range(_WARM_ROUNDS):
            warm_ns += [
                seek(client, first_ms + number * _STEP_MS, expected=number * records) for number in chosen
            ]
    cold, warm = percentiles(cold_ns), percentiles(warm_ns)
    assert cold is not None and warm is not None
    return {"seek_cold_ms": cold.p50_ms, "seek_ms": warm.p50_ms}


def seek(client: Admin, timestamp_ms: int, *, expected: int) -> int:
    """The nanoseconds that finding a time took; LoadError if another offset was found."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=_TOPIC, partitions=[asked])])
    began = time.monotonic_ns()
    answer = client.ask(LIST_OFFSETS, request, ListOffsetsResponse)
    took_ns = time.monotonic_ns() - began
    found = answer.topics[0].partitions[0]
    if found.error_code or found.offset != expected:
        raise LoadError(f"offset {found.offset} where {expected} was due (error {found.error_code})")
    return took_ns


def read_cold(bed: Bed, *, records: int, batches: int) -> float:
    """MB/s of a consumer that reads from the start of the log."""
    drop_pages(bed.place)
    offsets = [each * records for each in range(batches)]
    ring = fetch_ring(topic=_TOPIC, partition=0, offsets=offsets, bytes_max=MB)
    frames = (ring.data[at : at + ring.request_bytes] for at in range(0, len(ring.data), ring.request_bytes))
    line = Line(
        sock=connect(bed.host, bed.port),
        frames=frames,
        reader=fetch_reader(ring, topic=_TOPIC),
        in_flight=2,
    )
    return batches * MB / push([line]) / 1e6


def drop_pages(directory: Path) -> None:
    """Take every file below out of the page cache: written to the disk first, since only clean pages go."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


CURVE = Curve(
    name="log-size",
    title="Log size: one partition, filled with batches of 1 MB",
    x="log",
    figures=(
        Figure(key="stopped_ms", title="start after a clean stop", unit="ms"),
        Figure(key="killed_ms", title="start after kill -9", unit="ms"),
        Figure(key="seek_ms", title="p50 of finding a time, warm", unit="ms"),
        Figure(key="seek_cold_ms", title="p50 of finding a time, cold", unit="ms"),
        Figure(key="cold_mb_per_s", title="cold read, of at most 1 GB", unit="MB/s"),
        Figure(key="fill_mb_per_s", title="filling, one producer", unit="MB/s"),
        MEMORY,
    ),
    sizes=(100 << 20, 1 << 30, 10 << 30),
    quick_sizes=(64 << 20, 256 << 20),
    measure=measure,
    label=binary_label,
)
