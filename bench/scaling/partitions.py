"""More partitions of one topic, and the same producers over all of them.

Sixteen connections send one record a request and wait for each. Each has its share of the partitions and goes
through it in turn, so that no partition is left out.
"""

from __future__ import annotations

import time

from bench.load import RECORD_BYTES
from bench.report import Row
from bench.scaling.bed import Bed
from bench.scaling.curve import CPU, MEMORY, P99, RATE, Curve, Figure
from tailrace.bench.wire import Lane, Ring
from tailrace.bench.wire.kafka import CLIENT_ID, PRODUCE_VERSION, one_record, produce_reader
from tailrace.bench.wire.ring import ring_of
from tailrace.bench.wire.topic import admin, connect
from tailrace.wire.kafka import PRODUCE, write_produce_request, write_request

CONNECTIONS = 16
_TOPIC = "scaling-partitions"
_PLACES_MIN = 64
_TIMEOUT_MS = 30_000


def measure(bed: Bed, partitions: int) -> Row:
    """Make the topic, load it, come back with it."""
    with admin(bed.host, bed.port) as client:
        client.create("scaling-first", partitions=1, configs={})  # what the first topic of a life costs
        began = time.monotonic()
        client.create(_TOPIC, partitions=partitions, configs={})
        create_ms = (time.monotonic() - began) * 1e3
    found = bed.drive(spread_lanes(bed, _TOPIC, partitions))
    back = bed.restart(lambda: bed.leads(_TOPIC, partitions))
    return {**found, "create_ms": create_ms, "restart_ms": back["ready_ms"]}


def spread_lanes(bed: Bed, topic: str, partitions: int) -> list[Lane]:
    """Unbatched producers that together reach every partition."""
    batch = one_record(RECORD_BYTES)
    lanes = []
    for share in shares(partitions, CONNECTIONS):
        ring = spread_ring(batch, topic=topic, partitions=share)
        reader = produce_reader(ring, topic=topic)
        lanes.append(Lane(sock=connect(bed.host, bed.port), ring=ring, reader=reader, in_flight=1))
    return lanes


def shares(partitions: int, connections: int) -> list[list[int]]:
    """The partitions of each connection: every partition is somebody's, and nobody has none."""
    return [list(range(each, partitions, connections)) or [each % partitions] for each in range(connections)]


def spread_ring(batch: bytes, *, topic: str, partitions: list[int]) -> Ring:
    """Produce requests of this batch to the partitions in turn; the number of one has a fixed width."""

    def request(place: int) -> bytes:
        body = write_produce_request(
            PRODUCE_VERSION,
            transactional_id=None,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topics={topic: {partitions[place % len(partitions)]: batch}},
        )
        return write_request(PRODUCE, PRODUCE_VERSION, place, CLIENT_ID, b"".join(body))

    rounds = -(-_PLACES_MIN // len(partitions))
    places = range(rounds * len(partitions))
    return ring_of((request(place) for place in places), payload_bytes=len(batch))


CURVE = Curve(
    name="partitions",
    title="Partitions: 16 producers, one record a request, spread over all partitions of a topic",
    x="partitions",
    figures=(
        RATE,
        P99,
        CPU,
        MEMORY,
        Figure(key="create_ms", title="creating the topic", unit="ms"),
        Figure(key="restart_ms", title="restart until all partitions answer", unit="ms"),
    ),
    sizes=(1, 10, 100, 1_000),
    quick_sizes=(1, 100),
    measure=measure,
)
