"""Which rows go to which partition, a whole Arrow batch at a time.

The column `partition` decides, then the key by Kafka's default partitioner. Rows with neither stick to one
partition until about a batch of bytes went there, and go on with the next: full batches, and an even spread
over time (KIP-480). Tasks begin with different ones.

Rows of one partition keep their order: they are sorted by partition with a stable sort, once, and cut.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.model import TailraceError
from tailrace.spark.codec import partition_rows
from tailrace.spark.sink.columns import Columns

Numbers = npt.NDArray[np.int32]


class BadRow(TailraceError):
    """A row that says where it goes, and cannot go there."""


class Routed(NamedTuple):
    """Rows of one partition, in their order."""

    topic: str
    partition: int
    rows: pa.RecordBatch


class Router:
    """Routes the batches of one task."""

    def __init__(
        self,
        columns: Columns,
        partition_count: Callable[[str], int],
        *,
        stick_bytes: int,
        chooser: random.Random | None = None,
    ) -> None:
        """`partition_count` tells how many partitions a topic has; it is asked once per topic."""
        self._columns = columns
        self._ask_count = partition_count
        self._counts: dict[str, int] = {}
        self._stick_bytes = stick_bytes
        self._random = chooser or random.Random()
        self._keyless_bytes: dict[str, int] = {}

    def route(self, batch: pa.RecordBatch) -> Iterator[Routed]:
        """The rows of a batch by topic and partition."""
        if self._columns.topic is not None:
            yield from self._route_topic(self._columns.topic, batch)
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise BadRow(
                f"{topics.null_count} rows have null in column 'topic'."
                " Leave them out, or set the option topic, which all rows then go to"
            )
        names = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
        for code, rows in _cut(batch, names.indices.to_numpy().astype(np.int32)):
            yield from self._route_topic(names.dictionary[code].as_py(), rows)

    def _route_topic(self, topic: str, batch: pa.RecordBatch) -> Iterator[Routed]:
        if not batch.num_rows:
            return
        content = self._columns.content_of(batch)
        for partition, rows in _cut(content, self._partitions(topic, batch)):
            yield Routed(topic, partition, rows)

    def _partitions(self, topic: str, batch: pa.RecordBatch) -> Numbers:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._ask_count(topic)
        keys = batch.column("key") if "key" in self._columns.content else None
        chosen = self._by_key(topic, batch, keys, count)
        if self._columns.has_partition:
            given = batch.column("partition")
            is_given = given.is_valid().to_numpy(zero_copy_only=False)
            numbers = given.fill_null(0).to_numpy(zero_copy_only=False)
            _check_range(topic, numbers, count)
            chosen = np.where(is_given, numbers, chosen).astype(np.int32)
        return chosen

    def _by_key(self, topic: str, batch: pa.RecordBatch, keys: pa.Array | None, count: int) -> Numbers:
        if keys is None:
            return self._stick(topic, batch, batch.num_rows, count)
        chosen = partition_rows(keys, count)
        if keys.null_count:
            without = keys.is_null().to_numpy(zero_copy_only=False)
            chosen[without] = self._stick(topic, batch, keys.null_count, count)
        return chosen

    def _stick(self, topic: str, batch: pa.RecordBatch, rows: int, count: int) -> Numbers:
        """The partitions of so many rows without a key, as if all rows of the batch were of one size."""
        before = self._keyless_bytes.get(topic)
        if before is None:
            before = self._random.randrange(count) * self._stick_bytes
        row_bytes = max(1, batch.nbytes // batch.num_rows)
        self._keyless_bytes[topic] = before + rows * row_bytes
        reached = before + np.arange(rows, dtype=np.int64) * row_bytes
        turns: Numbers = (reached // self._stick_bytes % count).astype(np.int32)
        return turns


def _check_range(topic: str, numbers: Numbers, count: int) -> None:
    wrong = (numbers < 0) | (numbers >= count)
    if wrong.any():
        raise BadRow(
            f"column 'partition' says {numbers[wrong][0]}, and topic {topic} has"
            f" {f'partitions 0 to {count - 1}' if count > 1 else 'partition 0 only'}."
            " Correct the column, leave it out, or add partitions"
        )


def _cut(rows: pa.RecordBatch, groups: Numbers) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows by the number of their group, in their order within it."""
    if not len(groups):
        return
    if (groups == groups[0]).all():
        yield int(groups[0]), rows
        return
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    rows = rows.take(pa.array(order))
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    for first, after in pairwise(bounds):
        yield int(ordered[first]), rows.slice(first, after - first)
