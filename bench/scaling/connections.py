"""More idle connections beside the same sixteen active ones: what the idle ones cost.

The active ones send one record a request and wait for each; the others have asked for the API versions, as
every client does first, and say nothing more. How many files a process may have open bounds both sides: where
that allows fewer, the most that could be opened is measured in place of what was asked for.
"""

from __future__ import annotations

import resource
import socket
from contextlib import suppress

from bench.load import RECORD_BYTES
from bench.report import Row
from bench.scaling.bed import Bed
from bench.scaling.curve import CPU, MEMORY, P99, RATE, Curve, Figure
from tailrace.bench.wire import Lane, LoadError
from tailrace.bench.wire.kafka import CLIENT_ID, one_record, produce_reader, produce_ring
from tailrace.bench.wire.topic import admin, connect, read_reply
from tailrace.wire.kafka import API_VERSIONS, write_request

ACTIVE = 16
_TOPIC = "scaling-connections"
_SPARE = 32  # files that a full process must still be able to open
_TELLING = 100  # of fewer connections the memory is lost in that of everything else


def measure(bed: Bed, connections: int) -> Row:
    """Open the idle ones, then let the active ones work."""
    raise_file_limit()
    with admin(bed.host, bed.port) as client:
        client.create(_TOPIC, partitions=1, configs={})
    bed.drive(_lanes(bed))  # uncounted: what the first requests of a life take is no idle one's cost
    before_mb = bed.rss_mb
    idle, why = open_idle(bed.host, bed.port, connections)
    try:
        after_mb = bed.rss_mb
        found = bed.drive(_lanes(bed))
    finally:
        for sock in idle:
            sock.close()
    if len(idle) >= _TELLING:
        found["idle_kb"] = (after_mb - before_mb) * 1e3 / len(idle)
    if why:
        found |= {"x": len(idle), "why": why}
    return found


def open_idle(host: str, port: int, count: int) -> tuple[list[socket.socket], str]:
    """So many connections that have said who they are; or fewer, and why there are no more."""
    opened: list[socket.socket] = []
    hello = write_request(API_VERSIONS, 0, 1, CLIENT_ID, b"")
    while len(opened) < count:
        try:
            sock = connect(host, port)
        except LoadError as error:
            return _with_room(opened), str(error)
        opened.append(sock)
        try:
            sock.sendall(hello)
            read_reply(sock, API_VERSIONS, 0)
        except (LoadError, OSError) as error:
            return _with_room(opened), f"the broker took no more than {len(opened) - 1}: {error}"
    return opened, ""


def _with_room(opened: list[socket.socket]) -> list[socket.socket]:
    """Without the last few, whose places are needed."""
    for sock in opened[-_SPARE:]:
        sock.close()
    return opened[:-_SPARE]


def raise_file_limit() -> None:
    """Have as many open files as this process may; the broker sees to its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # then it stays as it is, and fewer connections are opened
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _lanes(bed: Bed) -> list[Lane]:
    batch = one_record(RECORD_BYTES)
    ring = produce_ring(batch, topic=_TOPIC, partition=0, in_flight=1)
    return [
        Lane(
            sock=connect(bed.host, bed.port),
            ring=ring,
            reader=produce_reader(ring, topic=_TOPIC),
            in_flight=1,
        )
        for _ in range(ACTIVE)
    ]


CURVE = Curve(
    name="connections",
    title="Connections: idle ones beside 16 that produce, one record a request",
    x="idle connections",
    figures=(
        RATE,
        P99,
        CPU,
        MEMORY,
        Figure(key="idle_kb", title="memory of the broker per idle connection", unit="KB"),
    ),
    sizes=(1, 10, 100, 1_000, 5_000),
    quick_sizes=(1, 1_000),
    measure=measure,
)
