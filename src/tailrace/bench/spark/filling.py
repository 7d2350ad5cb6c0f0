"""The topic that is read: values of 100 random letters, in batches of 16 KiB as an ordinary producer makes.

Every batch is made anew, because a file of repeated values would compress to nothing and be written faster
than any real one. Letters are of 64, so a codec still finds a quarter to save. There are no keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import LATEST
from tailrace.model import TopicPartition
from tailrace.spark.codec import encode

VALUE_BYTES = 100
BATCH_BYTES = 16_384
CHUNK_ROWS = 20_000
CLIENT_ID = "tailrace-bench"
_IN_FLIGHT = 16  # of one partition
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8)
_INT32_BYTES = 4


def random_rows(rows: int, *, value_bytes: int, seed: int) -> pa.RecordBatch:
    """So many values, in one column."""
    generator = np.random.default_rng(seed)
    letters = _LETTERS[generator.integers(0, 64, rows * value_bytes, dtype=np.uint8)]
    offsets = np.arange(0, (rows + 1) * value_bytes, value_bytes, dtype=np.int32)
    assert offsets.itemsize == _INT32_BYTES
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    values = pa.Array.from_buffers(pa.binary(), rows, buffers)
    return pa.RecordBatch.from_arrays([values], ["value"])


def batches(records: int, *, value_bytes: int = VALUE_BYTES, seed: int = 0) -> Iterator[bytearray]:
    """So many records as record batches, ready to be produced."""
    for number, first in enumerate(range(0, records, CHUNK_ROWS)):
        rows = random_rows(min(CHUNK_ROWS, records - first), value_bytes=value_bytes, seed=seed + number)
        yield from encode(rows, batch_bytes_max=BATCH_BYTES)


def fill_topic(
    bootstrap: str, topic: str, *, partitions: int, records: int, value_bytes: int = VALUE_BYTES
) -> None:
    """Spread so many records evenly over the partitions of a topic that exists; all are acknowledged."""

    async def fill() -> None:
        async with KafkaClient(bootstrap, client_id=CLIENT_ID) as client, asyncio.TaskGroup() as group:
            for partition in range(partitions):
                share = records // partitions + (partition < records % partitions)
                source = batches(share, value_bytes=value_bytes, seed=partition * records)
                for _ in range(_IN_FLIGHT):  # they share one source, and each sends what it takes of it
                    group.create_task(_send(client, topic, partition, source))

    asyncio.run(fill())


async def _send(client: KafkaClient, topic: str, partition: int, source: Iterator[bytearray]) -> None:
    for batch in source:
        await client.produce(topic, partition, batch)


def count_records(bootstrap: str, topic: str, *, partitions: int) -> int:
    """How many offsets a topic has given away."""

    async def ask() -> int:
        async with KafkaClient(bootstrap, client_id=CLIENT_ID) as client:
            wanted = {TopicPartition(topic, each): LATEST for each in range(partitions)}
            return sum(found.offset for found in (await client.list_offsets(wanted)).values())

    return asyncio.run(ask())
