"""Records on their way out: per partition a lane of batches, the oldest first.

A lane has at most one batch in flight, so that a retry can never overtake its successor and sequences stay in
order whatever the network does; while it is in flight the next batch grows. Throughput comes from larger
batches and from many lanes, not from many requests per lane.

A batch gets its producer id and sequence when it is first encoded, and keeps both in every retry: that is
what lets the broker recognise it (KIP-98).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from tailrace.client.error import ClientError
from tailrace.model import NO_PRODUCER, BrokerError, ProtocolError, TopicPartition
from tailrace.records import BytesLike, Compression, NewRecord, build_batch

# What a record takes beside its key and value at most: length, deltas and counts; then per header.
_RECORD_OVERHEAD_BYTES = 36
_HEADER_OVERHEAD_BYTES = 10
_SEQUENCE_MASK = 0x7FFF_FFFF

Headers: TypeAlias = Sequence[tuple[str, BytesLike | None]]
SendError: TypeAlias = ClientError | BrokerError | ProtocolError


class RecordMetadata(NamedTuple):
    """Where a record went."""

    topic: str
    partition: int
    offset: int
    """-1 where the broker does not say: with acks=0, and for a duplicate that it no longer remembers."""
    timestamp: int
    """Milliseconds since 1970: the broker's where the topic stamps records, else the producer's."""


SendFuture: TypeAlias = "asyncio.Future[RecordMetadata] | concurrent.futures.Future[RecordMetadata]"
"""Completed in the producer's loop; which kind depends on where the one who waits for it lives."""


class Identity(NamedTuple):
    """A producer as the brokers know it."""

    producer_id: int
    epoch: int


def record_bytes(key: BytesLike | None, value: BytesLike | None, headers: Headers) -> int:
    """What a record will take in a batch at most, before compression."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += _HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size


class PendingBatch:
    """Records of one partition that travel together, and who waits for them."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "bytes_max",
        "deadline",
        "encoded",
        "finished",
        "futures",
        "identity",
        "linger_until",
        "records",
        "renewed",
    )

    def __init__(self, *, linger_until: float, deadline: float) -> None:
        self.records: list[NewRecord] = []
        self.futures: list[SendFuture] = []
        self.bytes_max = 0  # never less than what the records take uncompressed
        self.linger_until = linger_until
        self.deadline = deadline
        self.attempts = 0
        self.encoded: bytearray | None = None
        self.identity: Identity | None = None
        self.base_sequence = -1
        self.renewed = False  # whether a new identity was taken for it already
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def append(self, record: NewRecord, future: SendFuture, *, size: int) -> None:
        self.records.append(record)
        self.futures.append(future)
        self.bytes_max += size

    def complete(self, partition: TopicPartition, *, base_offset: int, append_time_ms: int) -> None:
        """Tell everybody where their record is."""
        for index, future in enumerate(self.futures):
            if not future.done():
                offset = base_offset + index if base_offset >= 0 else -1
                time_ms = append_time_ms if append_time_ms >= 0 else self.records[index][0]
                future.set_result(RecordMetadata(*partition, offset, time_ms))
        self.finished.set_result(None)

    def fail(self, error: SendError) -> None:
        """Tell everybody that their record did not arrive, or may not have."""
        fail_all(self.futures, error)
        self.finished.set_result(None)

    def split(self) -> tuple[PendingBatch, PendingBatch]:
        """Two batches of half the records each, for a broker that found the whole too large."""
        middle = len(self.records) // 2
        halves = []
        for part in (slice(None, middle), slice(middle, None)):
            half = PendingBatch(linger_until=self.linger_until, deadline=self.deadline)
            half.attempts = 1  # it has waited long enough
            for record, future in zip(self.records[part], self.futures[part], strict=True):
                half.append(record, future, size=record_bytes(record[1], record[2], record[3]))
            halves.append(half)
        self._finish_with(halves)
        return halves[0], halves[1]

    def _finish_with(self, halves: Sequence[PendingBatch]) -> None:
        """Whoever waits for this one waits for all that became of it."""
        waiting = {half.finished for half in halves}

        def ended(finished: asyncio.Future[None]) -> None:
            waiting.discard(finished)
            if not waiting:
                self.finished.set_result(None)

        for half in halves:
            half.finished.add_done_callback(ended)


class Lane:
    """The batches of one partition."""

    __slots__ = ("batches", "busy", "identity", "next_sequence", "not_before", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[PendingBatch] = deque()
        self.busy = False  # the first batch is in flight, or its leader is being looked for
        self.not_before = 0.0  # back-off after a failed attempt
        self.identity: Identity | None = None
        self.next_sequence = 0

    def encode(
        self,
        batch: PendingBatch,
        identity: Identity | None,
        compression: Compression,
        level: int | None,
        *,
        transactional: bool = False,
    ) -> bytearray:
        """The batch as bytes; made once, so that a retry sends the same ones."""
        if batch.encoded is None:
            if identity is not None:
                self._number(batch, identity)
            batch.encoded = build_batch(
                batch.records,
                compression=compression,
                level=level,
                producer_id=identity.producer_id if identity else NO_PRODUCER,
                producer_epoch=identity.epoch if identity else -1,
                base_sequence=batch.base_sequence,
                transactional=transactional,
            )
        return batch.encoded

    def _number(self, batch: PendingBatch, identity: Identity) -> None:
        if identity != self.identity:
            self.identity, self.next_sequence = identity, 0
        batch.identity = identity
        batch.base_sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + len(batch.records)) & _SEQUENCE_MASK


def fail_all(futures: Sequence[SendFuture], error: SendError) -> None:
    """End every future with an error, heard or not."""
    for future in futures:
        if not future.done():
            future.set_exception(error)
            future.exception()  # marks it as seen: nobody has to look at a send
