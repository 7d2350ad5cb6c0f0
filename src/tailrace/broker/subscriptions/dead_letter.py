"""Dead letters: messages that nobody could deal with, kept in a topic of their own with the reason.

    key, value      those of the message
    headers         those of the message, and ours:
      _dlq_subscription   which subscription gave it up
      _dlq_topic, _dlq_partition, _dlq_offset   where it comes from
      _dlq_reason         why, as the last member or the broker said it
      _dlq_deliveries     how often it was delivered
      _dlq_time           when it was given up, in ms since 1970

A message that fails again after it was redriven keeps its first origin and gets a new reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.partition import ACKS_ALL, Partition
from tailrace.broker.sequence import sequence
from tailrace.broker.subscriptions.delivery import Source
from tailrace.broker.topic import NewTopic
from tailrace.broker.topics import Topics
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.records import NewRecord, Record
from tailrace.storage.api import Waiter

_PREFIX = "_dlq_"
_ORIGIN = ("_dlq_topic", "_dlq_partition", "_dlq_offset")
_REASON_BYTES_MAX = 1024
_DIGITS_MAX = 20

Headers = Sequence[tuple[str, bytes | None]]


def write_dead_letter(
    record: Record, source: Source, *, subscription: str, reason: str, deliveries: int, now_ms: int
) -> NewRecord:
    """The record that tells of a message that was given up."""
    headers = [header for header in record.headers if not header[0].startswith(_PREFIX)]
    origin = [header for header in record.headers if header[0] in _ORIGIN] or [
        ("_dlq_topic", source.topic.encode()),
        ("_dlq_partition", b"%d" % source.partition),
        ("_dlq_offset", b"%d" % record.offset),
    ]
    ours = [
        ("_dlq_subscription", subscription.encode()),
        *origin,
        ("_dlq_reason", reason.encode(errors="replace")[:_REASON_BYTES_MAX]),
        ("_dlq_deliveries", b"%d" % deliveries),
        ("_dlq_time", b"%d" % now_ms),
    ]
    return now_ms, record.key, record.value, [*headers, *ours]


def is_letter_of(record: Record, subscription: str) -> bool:
    """Whether this subscription gave the message up, or nobody knows who did: topics may be shared."""
    for name, value in record.headers:
        if name == "_dlq_subscription":
            return value == subscription.encode()
    return True


def read_dead_letter(record: Record) -> dict[str, object]:
    """What our headers of a dead letter say: where it comes from, and why it is one."""
    ours = {
        name.removeprefix(_PREFIX): (value or b"").decode(errors="replace")
        for name, value in record.headers
        if name.startswith(_PREFIX)
    }
    count = _number(ours.get("deliveries", ""))
    return {
        "origin": {name: _number(ours.get(name, "")) for name in ("topic", "partition", "offset")},
        "reason": ours.get("reason", ""),
        "delivery_count": count,
        "deliveries": count,  # older name
    }


def _number(text: str) -> int | str:
    """Anybody may write to a topic: what should be a number need not be one."""
    return int(text) if text.isdecimal() and len(text) < _DIGITS_MAX else text


class DeadLetters:
    """The dead-letter topics of a node."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def partition(self, topic: str) -> Partition | None:
        """Where the dead letters of a topic are, if there are any."""
        known = self._topics.get(topic)
        return None if known is None else known.partitions[0]

    async def ensure(self, topic: str) -> Partition:
        """Where the dead letters of a topic go; it is made if it is not there."""
        return (await self._topics.ensure(NewTopic(name=topic, partitions=1))).partitions[0]

    def append(self, partition: Partition, letters: Sequence[NewRecord], waiter: Waiter) -> None:
        """Append letters together; the waiter is told when they are durable. BrokerError: try again."""
        try:
            partition.acknowledged(sequence(partition, letters).end_offset, ACKS_ALL, waiter)
        except StorageError as error:
            if partition.log is not None:
                raise
            raise BrokerError(
                f"topic {partition.topic} was deleted while dead letters were written to it",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ) from error
