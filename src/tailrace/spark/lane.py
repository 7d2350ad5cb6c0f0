"""One partition's rows and batches on their way out, the oldest first; what producing.py keeps per partition.

Rows wait until they fill a batch. A batch is encoded once and keeps its bytes, so that the broker knows it
again whenever it comes. One that the broker finds too large is cut in two: the halves have the sequences that
its records had, and no part of it was appended, so nothing is written twice.
"""

from __future__ import annotations

import concurrent.futures
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tailrace.model import BrokerError, TailraceError, TopicPartition
from tailrace.records import BATCH_BYTES_MAX, read_batch
from tailrace.spark.codec import decode, encode

SEQUENCE_MASK = 0x7FFF_FFFF

JOINED_BYTES_MAX = 1 << 29
"""Larger pieces of rows are not joined with others: a column has 31 bits of bytes."""


class RowTooLarge(TailraceError):
    """A row does not fit into any batch that may be sent."""


class Batch(NamedTuple):
    """An encoded batch, and the limit that it was encoded under."""

    data: bytearray
    bytes_max: int

    @property
    def row_count(self) -> int:
        return read_batch(self.data).count


@dataclass(slots=True, eq=False)
class Lane:
    """The rows and batches of one partition, the oldest first."""

    partition: TopicPartition
    batch_bytes_max: int
    """Shrinks when the topic turns out to take less."""
    rows: list[pa.RecordBatch] = field(default_factory=list)
    rows_bytes: int = 0
    batches: deque[Batch] = field(default_factory=deque)
    """The first one is in flight while `work` is there."""
    work: concurrent.futures.Future[None] | None = None
    next_sequence: int = 0
    expected: int | None = None
    """The base offset that the next reply must have, where nobody else may write."""
    next_offset: int | None = None
    """Behind the last batch that arrived."""

    def take_rows(self) -> pa.RecordBatch:
        """All rows that wait, as one batch."""
        rows, self.rows, self.rows_bytes = self.rows, [], 0
        if len(rows) == 1:
            return rows[0]
        (joined,) = pa.Table.from_batches(rows).combine_chunks().to_batches()
        return joined


def slices(rows: pa.RecordBatch, *, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Rows in pieces of about so many bytes."""
    step = max(1, rows.num_rows * bytes_max // max(rows.nbytes, 1))
    for first in range(0, rows.num_rows, step):
        yield rows.slice(first, step)


def halves(partition: TopicPartition, batch: Batch, error: BrokerError) -> list[Batch]:
    """The rows of a batch that the broker found too large, in smaller ones with the same sequences."""
    view = read_batch(batch.data)
    if view.count == 1:
        raise RowTooLarge(
            f"a row for {partition} takes {len(batch.data)} bytes, and the topic takes less."
            " Raise its max.message.bytes, or write smaller values"
        ) from error
    rows = decode(
        batch.data,
        start=view.base_offset,
        end=view.next_offset,
        topic=partition.topic,
        partition=partition.partition,
        headers=True,
        bytes_max=BATCH_BYTES_MAX,
    )
    bytes_max = max(batch.bytes_max // 2, 1)
    parts: list[bytearray] = []
    for first, count in _middle(view.count):
        parts += encode(
            rows.slice(first, count),
            batch_bytes_max=batch.bytes_max,
            compression=view.compression,
            producer_id=view.producer_id,
            producer_epoch=view.producer_epoch,
            transactional=view.is_transactional,
            base_sequence=(view.base_sequence + first) & SEQUENCE_MASK,
        )
    return [Batch(part, bytes_max) for part in parts]


def _middle(count: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first row and the number of rows of either half."""
    return (0, count // 2), (count // 2, count - count // 2)
