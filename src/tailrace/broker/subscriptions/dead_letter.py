"""Dead letters: messages that nobody could deal with, kept in a topic of their own with the reason.

    key, value      those of the message
    headers         those of the message, and ours:
      _dlq_subscription   which subscription gave it up
      _dlq_topic, _dlq_partition, _dlq_offset   where it comes from
      _dlq_reason         why, as the last member or the broker said it
      _dlq_deliveries     how often it was delivered
      _dlq_time           when it was given up, in ms since 1970

A message that fails again after it was redriven keeps its first origin and gets a new reason.

Letters are written in a transaction with a record that has a start pass their messages (`acknowledging`). So
a crash leaves both or neither, and no message has two letters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tailrace.broker.partition import ACKS_ALL, Partition
from tailrace.broker.subscriptions.delivery import Source
from tailrace.broker.topic import NewTopic
from tailrace.broker.topics import Topics
from tailrace.broker.transactions.atomic import AtomicAppender, AtomicStep, Write
from tailrace.broker.visible_records import read
from tailrace.model import BrokerError, ErrorCode, StorageError, TopicPartition
from tailrace.records import NewRecord, Record, pass_over
from tailrace.storage.api import Waiter

if TYPE_CHECKING:
    from tailrace.broker.subscriptions.acknowledging import TransactionalAcks
    from tailrace.broker.subscriptions.stored import AcksKey
    from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition

_PREFIX = "_dlq_"
_ORIGIN = ("_dlq_topic", "_dlq_partition", "_dlq_offset")
_REASON_BYTES_MAX = 1024
_DIGITS_MAX = 20
_READ_BYTES = 1 << 20

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


StoredKeys: TypeAlias = "Sequence[tuple[SubscribedPartition, AcksKey]]"


class Burial(NamedTuple):
    """Dead letters of one subscription."""

    subscription: str
    letters: Sequence[NewRecord]
    dead: Mapping[SubscribedPartition, Sequence[int]]  # the messages of these letters, ascending
    waiter: Callable[[StoredKeys], Waiter]
    """Is told when all is durable, and given what was stored beside the letters."""


async def find_letters(partition: Partition, start: int, count: int | None) -> tuple[int, int]:
    """Where the next `count` records end, all if it is None, and how many there are.

    Markers of transactions lie between the letters: a difference of offsets would count them.
    """
    offset, end, found = start, partition.last_stable_offset, 0
    while offset < end:
        portion = await read(partition, offset, bytes_max=_READ_BYTES, end=end)
        for batch in portion.batches(on_damage=pass_over):  # any client may write to a topic
            size = batch.end - batch.first
            if count is not None and found + size >= count:
                return batch.first + count - found, count
            found += size
        if portion.next_offset == offset:
            break
        offset = portion.next_offset
    return end, found


class DeadLetters:
    """The dead-letter topics of a node."""

    def __init__(
        self, topics: Topics, *, acks: TransactionalAcks, home_of: Callable[[str], TopicPartition]
    ) -> None:
        self._topics = topics
        self._acks = acks
        self._home_of = home_of  # where a subscription's acknowledgements are stored
        self.appender: AtomicAppender | None = None  # from before the first message is delivered

    def partition(self, topic: str) -> Partition | None:
        """Where the dead letters of a topic are, if there are any."""
        known = self._topics.get(topic)
        return None if known is None else known.partitions[0]

    async def ensure(self, topic: str) -> Partition:
        """Where the dead letters of a topic go; it is made if it is not there."""
        return (await self._topics.ensure(NewTopic(name=topic, partitions=1))).partitions[0]

    async def bury(self, partition: Partition, plan: Callable[[], Burial | None]) -> None:
        """Write what `plan` says, called in the turn in which that is sequenced; nothing if it says None.

        BrokerError: nothing took effect; try again.
        """
        assert self.appender is not None
        burial: Burial | None = None
        stored: StoredKeys = ()

        def step() -> AtomicStep | None:
            nonlocal burial
            burial = plan()
            if burial is None:
                return None
            writes = [Write(partition, burial.letters, None)]
            return AtomicStep(writes, homes=[self._home_of(burial.subscription)], then=have_passed)

        def have_passed(producer_id: int, producer_epoch: int) -> None:
            nonlocal stored
            assert burial is not None
            stored = self._acks.pass_buried(
                burial.subscription, burial.dead, producer_id=producer_id, producer_epoch=producer_epoch
            )

        try:
            await self.appender.sequence(step)
            if burial is not None:
                partition.acknowledged(partition.end_offset, ACKS_ALL, burial.waiter(stored))
        except (BrokerError, StorageError) as error:
            for subscribed, key in stored:
                del subscribed.undecided_acks[key]  # aborted
            if isinstance(error, BrokerError) or partition.is_held_here:
                raise
            raise BrokerError(
                f"topic {partition.topic} was deleted while dead letters were written to it",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ) from error
