"""Larger messages: batches of a single record, from four connections that wait for each answer."""

from __future__ import annotations

from bench.report import Row
from bench.scaling.bed import Bed
from bench.scaling.curve import MB_CPU, MB_RATE, MEMORY, P99, RATE, Curve, decimal_label
from tailrace.bench.wire import Lane
from tailrace.bench.wire.kafka import one_record, produce_reader, produce_ring
from tailrace.bench.wire.topic import admin, connect

CONNECTIONS = 4
_TOPIC = "scaling-message-size"
_BATCH_BYTES_MAX = 11_000_000  # the largest message and what surrounds it


def measure(bed: Bed, value_bytes: int) -> Row:
    """Produce records of one size."""
    with admin(bed.host, bed.port) as client:
        client.create(_TOPIC, partitions=1, configs={"max.message.bytes": str(_BATCH_BYTES_MAX)})
    ring = produce_ring(one_record(value_bytes), topic=_TOPIC, partition=0, in_flight=1)
    return bed.drive(
        [
            Lane(
                sock=connect(bed.host, bed.port),
                ring=ring,
                reader=produce_reader(ring, topic=_TOPIC),
                in_flight=1,
            )
            for _ in range(CONNECTIONS)
        ]
    )


CURVE = Curve(
    name="message-size",
    title="Message size: 4 producers, one record a request, wait for each",
    x="message",
    figures=(MB_RATE, RATE, P99, MB_CPU, MEMORY),
    sizes=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    quick_sizes=(1_000, 100_000, 10_000_000),
    measure=measure,
    label=decimal_label,
)
