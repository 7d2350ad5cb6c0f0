"""Acknowledgements of transactions: pending from their record to the marker of their transaction.

    pend     the record is sequenced in a batch of the transaction: the messages are pending
    ended    the marker is sequenced: they are done, or ready once more

- A message that a transaction acknowledges is in flight with the session that asks for it. Who lost the lock
  may see the message done by another one meanwhile: both would then have had an effect.
- What is pending at a start is in the log. Its messages are not delivered before their transaction has ended.
- After a commit the next record of the cursor holds the same, and a tombstone takes the record away
  (`cursor_writer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.internal import StateWriter
from tailrace.broker.subscriptions.journal import acks_record
from tailrace.broker.subscriptions.stored import AcksKey, StoredAcks
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.model import ErrorCode
from tailrace.model.ranges import Ranges
from tailrace.runtime import Clock

if TYPE_CHECKING:
    from tailrace.broker.subscriptions.subscription import Subscription


class LockedMessages(NamedTuple):
    """Messages of one partition that are in flight with one session (`Subscription.find_locked`)."""

    subscription: Subscription
    partition: SubscribedPartition
    offsets: Sequence[int]  # ascending


class _Undecided(NamedTuple):
    subscription: Subscription
    partition: SubscribedPartition
    key: AcksKey


class TransactionalAcks:
    """The acknowledgements of open transactions in all subscriptions of this node."""

    __slots__ = ("_clock", "_open", "_partition_of", "_writer_of")

    def __init__(
        self, *, partition_of: Callable[[str], int], writer_of: Callable[[int], StateWriter], clock: Clock
    ) -> None:
        self._partition_of = partition_of  # of the cursors topic, by the name of a subscription
        self._writer_of = writer_of
        self._clock = clock
        self._open: dict[tuple[int, int], list[_Undecided]] = {}  # by partition and producer id

    def __repr__(self) -> str:
        return f"<TransactionalAcks of {len(self._open)} transactions>"

    def pend(self, messages: Iterable[LockedMessages], *, producer_id: int, producer_epoch: int) -> None:
        """A transaction acknowledges these messages, all that it ever will; its coordinator knows of them.

        BrokerError where a log refuses a record. The transaction must be aborted then, which gives back what
        is pending by that time.
        """
        homes: dict[int, dict[SubscribedPartition, LockedMessages]] = {}
        for each in messages:
            home = homes.setdefault(self._partition_of(each.subscription.config.name), {})
            known = home.get(each.partition)
            if known is not None:
                each = each._replace(offsets=sorted({*known.offsets, *each.offsets}))
            home[each.partition] = each
        for home_partition, found in homes.items():
            self._pend(home_partition, list(found.values()), producer_id, producer_epoch)

    def pass_buried(
        self,
        subscription: str,
        dead: Mapping[SubscribedPartition, Sequence[int]],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> list[tuple[SubscribedPartition, AcksKey]]:
        """Have a start pass these dead messages, whose letters are in the same transaction; what was stored.

        While the broker runs, its machines pass them when the letters are durable. BrokerError as for `pend`.
        """
        stored = [
            (partition, *self._acks_of(partition, offsets, producer_id, producer_epoch))
            for partition, offsets in dead.items()
        ]
        self._sequence(self._partition_of(subscription), stored, producer_id, producer_epoch)
        for partition, key, acks in stored:
            partition.undecided_acks[key] = acks
        return [(partition, key) for partition, key, _ in stored]

    def restore(
        self, subscription: Subscription, partition: SubscribedPartition, key: AcksKey, acks: StoredAcks
    ) -> None:
        """These were pending when the last life of the broker ended."""
        home = self._partition_of(subscription.config.name)
        if acks.epoch == partition.machine.epoch:
            partition.machine.restore_pending(acks.offsets)
        self._note(home, _Undecided(subscription, partition, key), acks)

    def ended(self, home: int, producer_id: int, *, commit: bool) -> None:
        """The marker of a producer was sequenced in a partition of the cursors topic."""
        for subscription, partition, key in self._open.pop((home, producer_id), ()):
            acks = partition.undecided_acks.pop(key)
            if subscription.closed:
                continue  # deleted, and the tombstones are written
            if commit:
                subscription.pending_committed(partition, key, acks)
            else:
                subscription.pending_aborted(partition, acks)

    # ---- inside

    def _pend(
        self, home: int, found: Sequence[LockedMessages], producer_id: int, producer_epoch: int
    ) -> None:
        stored = [
            (each.partition, *self._acks_of(each.partition, each.offsets, producer_id, producer_epoch))
            for each in found
        ]
        self._sequence(home, stored, producer_id, producer_epoch)
        for (subscription, partition, offsets), (_, key, acks) in zip(found, stored, strict=True):
            self._note(home, _Undecided(subscription, partition, key), acks)
            subscription.pend(partition, offsets)

    @staticmethod
    def _acks_of(
        partition: SubscribedPartition, offsets: Iterable[int], producer_id: int, producer_epoch: int
    ) -> tuple[AcksKey, StoredAcks]:
        ranges = tuple(Ranges((offset, offset + 1) for offset in offsets))
        key = AcksKey(partition.records.key, producer_id, producer_epoch)
        return key, StoredAcks(epoch=partition.machine.epoch, ranges=ranges)

    def _sequence(
        self,
        home: int,
        stored: Iterable[tuple[SubscribedPartition, AcksKey, StoredAcks]],
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        now_ms = self._clock.now_ms()
        records = [acks_record(key, acks, time_ms=now_ms) for _, key, acks in stored]
        self._writer_of(home).sequence_transactional(
            records, _nobody_waits, producer_id=producer_id, producer_epoch=producer_epoch
        )

    def _note(self, home: int, undecided: _Undecided, acks: StoredAcks) -> None:
        undecided.partition.undecided_acks[undecided.key] = acks
        self._open.setdefault((home, undecided.key.producer_id), []).append(undecided)


def _nobody_waits(code: ErrorCode) -> None:
    """The answer to a commit waits for the last record of its transaction, which is behind all others."""
