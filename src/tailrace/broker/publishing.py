"""Publishing without a Kafka batch: messages in, one batch per call, ids and times given here.

- A message's time is that of its arrival. Among the messages published here into one partition it never goes
  back: a clock that is set back stands still until it has caught up. Over a restart too, as far as the newest
  batch is at hand without the disk.
- A message's id is made of topic, partition and offset, so it is known when the batch is sequenced.
- A producer with an id numbers its messages per partition (KIP-98, epoch 0). Unlike a Kafka producer it may
  send what it is not sure of in other portions than before: what is at or below its newest sequence is left
  out, the rest is appended, and a hole is refused.
- How messages become batches is the rule of `sequence`. After a refusal between two batches a producer that
  sends all of it again, under its id, has none of it twice.

Nothing here waits: the caller waits for `Published.end_offset` to be durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from tailrace.broker.configs import TopicSettings
from tailrace.broker.partition import Appended, Partition
from tailrace.broker.sequence import (
    NO_SEQUENCE,
    SEQUENCE_MAX,
    build_batches,
    check_keys,
    sequence,
    too_large,
)
from tailrace.broker.topic import NewTopic, Topic
from tailrace.model import NO_PRODUCER, BrokerError, ErrorCode, Offset
from tailrace.records import Batch, BatchBuilder, NewRecord, build_batch, iter_batches, read_batch
from tailrace.runtime import Clock
from tailrace.wire.kafka.partitioner import partition_of_key

NO_OFFSET = -1

NATIVE_EPOCH = 0  # a native producer has one life per id
_PRODUCER_ID_MAX = (1 << 63) - 1
_BEHIND_MAX = 1 << 30  # further "behind" than half of all sequences is ahead
_AHEAD_MS_MAX = 3_600_000
_ID_DIGITS = 12


def published_topic(name: str) -> NewTopic:
    """The topic that comes to be by being published to: one partition, and the time of arrival."""
    return NewTopic(name=name, partitions=1, configs={"message.timestamp.type": "LogAppendTime"})


class NewMessage(NamedTuple):
    """A message that somebody publishes."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Published:
    """Where the messages of one call went; acknowledge them when the partition is durable to `end_offset`."""

    __slots__ = ("base_offset", "count", "end_offset", "partition", "repeated", "timestamp_ms")

    def __init__(
        self,
        partition: int,
        *,
        base_offset: int,
        count: int,
        timestamp_ms: int,
        end_offset: Offset,
        repeated: Sequence[int] = (),
    ) -> None:
        self.partition = partition
        self.base_offset = base_offset  # of the first message; -1: it was sent before, nobody knows where to
        self.count = count
        self.timestamp_ms = timestamp_ms  # -1: sent before, nobody knows when
        self.end_offset = end_offset
        self.repeated = repeated  # offsets of the first ones if those were in the log already; -1 as above

    def __repr__(self) -> str:
        again = f", {len(self.repeated)} of them again" if self.repeated else ""
        return f"<Published {self.count} at {self.base_offset} of partition {self.partition}{again}>"

    def offset_of(self, index: int) -> int:
        """The offset of the message that was number `index` of the call, from 0."""
        if index < len(self.repeated):
            return self.repeated[index]
        return self.end_offset - self.count + index


class Publisher:
    """Takes messages for partitions of this node."""

    __slots__ = ("_clock", "_turn")

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._turn = 0

    def now_ms(self) -> int:
        """The time of a message that arrives now."""
        return self._clock.now_ms()

    def choose(self, topic: Topic, key: bytes | None) -> int:
        """The partition for a message: by key as Kafka's own producer chooses, else in turn."""
        count = len(topic.partitions)
        if count == 1:
            return 0
        if key is not None:
            return partition_of_key(key, partitions=count)
        self._turn += 1
        return self._turn % count

    def publish(
        self,
        partition: Partition,
        messages: Sequence[NewMessage],
        *,
        producer_id: int = NO_PRODUCER,
        sequence: int = NO_SEQUENCE,
    ) -> Published:
        """Sequence messages, together and in this order; `sequence` is that of the first.

        BrokerError: OUT_OF_ORDER_SEQUENCE_NUMBER, MESSAGE_TOO_LARGE, or what the partition says.
        """
        if not messages:
            raise BrokerError("there is no message to publish", code=ErrorCode.INVALID_REQUEST)
        if producer_id == NO_PRODUCER:
            return self._append(partition, messages)
        check_producer(producer_id=producer_id, sequence=sequence)
        known = count_known(partition, producer_id=producer_id, sequence=sequence)
        if known:
            return self._append_rest(
                partition,
                messages,
                producer_id=producer_id,
                sequence=sequence,
                known=min(known, len(messages)),
            )
        return self._append(partition, messages, producer_id=producer_id, first_sequence=sequence)

    def publish_transactional(
        self,
        partition: Partition,
        messages: Sequence[NewMessage],
        *,
        producer_id: int,
        epoch: int,
        sequence: int,
        append: Callable[[Batch, int | None], Appended],
    ) -> Published:
        """Sequence messages in the open transaction of a producer; `append` is given each batch and its time.

        BrokerError likewise, and what `append` says.
        """
        time_ms, records, stamp_ms = self._stamp(partition, messages)
        batches = build_batches(
            records,
            partition.settings,
            stamp_ms=stamp_ms,
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            transactional=True,
        )
        appended = [append(read_batch(data), stamp_ms) for data in batches]
        partition.published_ms = time_ms
        return Published(
            partition.index,
            base_offset=appended[0].base_offset,
            count=len(messages),
            timestamp_ms=time_ms,
            end_offset=appended[-1].end_offset,
        )

    # ---- inside

    def _stamp(
        self, partition: Partition, messages: Sequence[NewMessage]
    ) -> tuple[int, list[NewRecord], int | None]:
        """The time of messages that arrive now, their records, and the time that the topic stamps."""
        now_ms, last_ms = self._clock.now_ms(), partition.published_ms
        if last_ms < 0:
            last_ms = _newest_ms(partition, now_ms)
        time_ms = now_ms if now_ms > last_ms else last_ms
        records: list[NewRecord] = [(time_ms, key, value, headers) for key, value, headers in messages]
        return time_ms, records, time_ms if partition.settings.append_time else None

    def _append(
        self,
        partition: Partition,
        messages: Sequence[NewMessage],
        *,
        producer_id: int = NO_PRODUCER,
        first_sequence: int = NO_SEQUENCE,
    ) -> Published:
        time_ms, records, stamp_ms = self._stamp(partition, messages)
        epoch = -1 if producer_id == NO_PRODUCER else NATIVE_EPOCH
        base_offset, end_offset = sequence(
            partition,
            records,
            stamp_ms=stamp_ms,
            producer_id=producer_id,
            epoch=epoch,
            first_sequence=first_sequence,
        )
        partition.published_ms = time_ms
        return Published(
            partition.index,
            base_offset=base_offset,
            count=len(messages),
            timestamp_ms=time_ms,
            end_offset=end_offset,
        )

    def _append_rest(
        self,
        partition: Partition,
        messages: Sequence[NewMessage],
        *,
        producer_id: int,
        sequence: int,
        known: int,
    ) -> Published:
        """The first `known` messages are in the log."""
        producers = partition.producers
        sent = [producers.find_sequence(producer_id, (sequence + n) & SEQUENCE_MAX) for n in range(known)]
        offsets = [NO_OFFSET if each is None else each.offset for each in sent]
        if known < len(messages):
            following = (sequence + known) & SEQUENCE_MAX
            rest = self._append(
                partition, messages[known:], producer_id=producer_id, first_sequence=following
            )
            time_ms, end_offset = rest.timestamp_ms, rest.end_offset
        else:
            standing = producers.standing(producer_id)
            assert standing is not None
            first, last = sent[0], sent[-1]
            time_ms = NO_OFFSET if first is None else first.timestamp_ms
            end_offset = standing.end_offset if last is None else Offset(last.offset + 1)
        return Published(
            partition.index,
            base_offset=offsets[0],
            count=len(messages),
            timestamp_ms=time_ms,
            end_offset=end_offset,
            repeated=offsets,
        )


def topic_mark(topic_id: UUID) -> str:
    """What tells a topic from others that had its name before, or have it later."""
    return topic_id.hex[:_ID_DIGITS]


def id_prefix(topic_id: UUID, partition: int) -> str:
    """What the ids of a partition's messages begin with; their offset follows."""
    return f"{topic_mark(topic_id)}-{partition}-"


def count_known(partition: Partition, *, producer_id: int, sequence: int) -> int:
    """How many sequences from this one on the partition has already: none of who goes on, or is new."""
    standing = partition.producers.standing(producer_id)
    if standing is None or standing.next_sequence < 0:
        return 0
    if standing.epoch != NATIVE_EPOCH:
        raise BrokerError(
            f"producer {producer_id} is not one of this listener: it is in epoch {standing.epoch}. "
            "Ask for an id of your own",
            code=ErrorCode.INVALID_PRODUCER_EPOCH,
        )
    behind = (standing.next_sequence - sequence) & SEQUENCE_MAX
    if behind > _BEHIND_MAX:
        raise BrokerError(
            f"producer {producer_id} sent sequence {sequence} where {standing.next_sequence} comes next in "
            f"{partition.name}: send what is between first",
            code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )
    return behind


def check_message(message: NewMessage, settings: TopicSettings) -> None:
    """Whether a topic of these settings takes the message; MESSAGE_TOO_LARGE or INVALID_RECORD."""
    record = (0, *message)
    if settings.compact:
        check_keys([record])
    if BatchBuilder().append(*record) <= settings.message_bytes_max:  # which is rounded up
        return
    size = len(build_batch([record]))
    if size > settings.message_bytes_max:
        raise too_large(size, settings)


def check_producer(*, producer_id: int, sequence: int) -> None:
    """Whether these can be; INVALID_REQUEST."""
    if not (0 <= producer_id <= _PRODUCER_ID_MAX and 0 <= sequence <= SEQUENCE_MAX):
        raise BrokerError(
            f"producer {producer_id} with sequence {sequence} cannot be: both count from 0, "
            f"and a sequence to {SEQUENCE_MAX}",
            code=ErrorCode.INVALID_REQUEST,
        )


def _newest_ms(partition: Partition, now_ms: int) -> int:
    """The newest time in a partition that was not published to since the start; -1 if it is not at hand.

    Where producers bring their own times, one that lies far ahead is theirs and not a clock's that was set
    back: it counts for nothing.
    """
    piece = partition.read_newest_nowait()
    newest_ms = NO_OFFSET
    for extent in piece.extents if piece is not None else ():
        data = extent.load_nowait()
        if data is None:
            return NO_OFFSET
        for batch in iter_batches(data):
            if batch.is_log_append_time or batch.max_timestamp <= now_ms + _AHEAD_MS_MAX:
                newest_ms = max(newest_ms, batch.max_timestamp)
        extent.release()
    return newest_ms
