"""From records to the log: one or several batches, appended in order, without an await.

Every record that no Kafka client has put into a batch comes this way: messages, records of REST and of the
embedded broker, committed offsets, cursors, delayed messages, dead letters. A batch has its offsets when
`sequence` returns, and nothing waits for the durability of the batch before it: a caller that must know when
it is durable asks the partition (`Partition.acknowledged`).

- All batches of a call are built before the first is appended: a record that cannot be stored (too large, no
  key in a compacted topic) costs the whole call, and then none of it is stored. A log that refuses (it is
  full, or busy) may do so between two of them.
- Records that do not fit into one batch of max.message.bytes become several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.broker.configs import TopicSettings
from tailrace.broker.partition import Partition
from tailrace.model import NO_PRODUCER, BrokerError, ErrorCode, Offset
from tailrace.records import BatchBuilder, NewRecord, build_batch, read_batch

SEQUENCE_MAX = (1 << 31) - 1  # followed by 0
NO_SEQUENCE = -1
_NO_EPOCH = -1


class Sequenced(NamedTuple):
    """Where records went: one after the other, from `base_offset` to before `end_offset`."""

    base_offset: Offset
    end_offset: Offset


def sequence(
    partition: Partition,
    records: Sequence[NewRecord],
    *,
    stamp_ms: int | None = None,
    producer_id: int = NO_PRODUCER,
    epoch: int = _NO_EPOCH,
    first_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> Sequenced:
    """Append records; `stamp_ms` is their time where the topic stamps them, and the clock's if it is None.

    `transactional` records join the open transaction of their producer; its coordinator knows the partition.

    BrokerError: MESSAGE_TOO_LARGE, INVALID_RECORD, or what the partition says.
    """
    batches = build_batches(
        records,
        partition.settings,
        stamp_ms=stamp_ms,
        producer_id=producer_id,
        epoch=epoch,
        sequence=first_sequence,
        transactional=transactional,
    )
    return append_batches(partition, batches, stamp_ms=stamp_ms, verified=transactional)


def append_batches(
    partition: Partition,
    batches: Sequence[bytearray],
    *,
    stamp_ms: int | None = None,
    verified: bool = False,
) -> Sequenced:
    """Append what `build_batches` built for this partition; `verified` is that of `Partition.append`."""
    first, *rest = [
        partition.append(read_batch(data), append_time_ms=stamp_ms, keys_checked=True, verified=verified)
        for data in batches
    ]
    return Sequenced(first.base_offset, rest[-1].end_offset if rest else first.end_offset)


def build_batches(
    records: Sequence[NewRecord],
    settings: TopicSettings,
    *,
    stamp_ms: int | None,
    producer_id: int = NO_PRODUCER,
    epoch: int = _NO_EPOCH,
    sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> list[bytearray]:
    """The records as one batch, or as several where the topic does not take one of that size.

    MESSAGE_TOO_LARGE or INVALID_RECORD if it takes one of them not at all. `sequence` is that of the first.
    """
    if settings.compact:
        check_keys(records)
    data = build_batch(
        records,
        log_append_time_ms=stamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    if len(data) <= settings.message_bytes_max:
        return [data]
    if len(records) == 1:
        raise too_large(len(data), settings)
    batches: list[bytearray] = []
    for part in _cut(records, bytes_max=settings.message_bytes_max):
        batches += build_batches(
            part,
            settings,
            stamp_ms=stamp_ms,
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            transactional=transactional,
        )
        if sequence != NO_SEQUENCE:
            sequence = (sequence + len(part)) & SEQUENCE_MAX
    return batches


def check_keys(records: Iterable[NewRecord]) -> None:
    """Whether a compacted topic takes these; INVALID_RECORD."""
    if any(key is None for _, key, _, _ in records):
        raise BrokerError(
            "a record without a key cannot be stored in a compacted topic", code=ErrorCode.INVALID_RECORD
        )


def too_large(size: int, settings: TopicSettings) -> BrokerError:
    """A record of so many bytes, with the batch around it, is one that the topic does not take."""
    return BrokerError(
        f"a record of {size} bytes with its batch is over {settings.message_bytes_max}, the topic's "
        "max.message.bytes (message.max.bytes of the node). Send less, or raise it",
        code=ErrorCode.MESSAGE_TOO_LARGE,
    )


def _cut(records: Sequence[NewRecord], *, bytes_max: int) -> list[Sequence[NewRecord]]:
    """Runs of which each surely fits into a batch, or has one record alone."""
    parts: list[Sequence[NewRecord]] = []
    builder, first = BatchBuilder(), 0
    for at, record in enumerate(records):
        if builder.append(*record) > bytes_max and at > first:
            parts.append(records[first:at])
            builder, first = BatchBuilder(), at
            builder.append(*record)
    parts.append(records[first:])
    return parts
