"""Commits that acknowledge messages of subscriptions: read, process and write as one step.

    acknowledgements -> Prepare -> marker, marker, ... -> Complete     sequenced in one turn

- Every message is under a lock of the session that commits. A message that is not may be with another worker,
  and processed by it: then the whole transaction is aborted.
- A crash forgets all locks. The commit of a session from before it is refused, its writes are aborted, and
  its messages come again: each has one effect.
- A commit that is said again after it took effect gets the first answer, whatever its locks are by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.broker.subscriptions.acknowledging import LockedMessages
from tailrace.broker.subscriptions.member import Member, OffsetRanges
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.broker.subscriptions.subscriptions import Subscriptions
from tailrace.broker.transactions.coordinator import TransactionCoordinator
from tailrace.broker.transactions.machine import BUMPING_VERSION
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.state import Identity
from tailrace.model import BrokerError, ErrorCode


class Acknowledgement(NamedTuple):
    """Messages of one partition that a session says it has processed."""

    subscription: Subscription
    members: Sequence[Member]  # what the session is in the subscription
    topic: str  # "": the subscription's own
    partition: int
    epoch: int
    ranges: OffsetRanges


async def commit(
    coordinator: TransactionCoordinator,
    subscriptions: Subscriptions,
    transactional_id: str,
    identity: Identity,
    acknowledgements: Sequence[Acknowledgement],
) -> Identity:
    """Commit, and acknowledge; returns the identity with which the producer goes on, when all is durable.

    TRANSACTION_ABORTABLE if a message is not locked: the transaction is aborted then, and its producer needs
    a new identity. TransactionRefused says itself what became of the transaction.
    """
    if acknowledgements and not coordinator.has_committed(transactional_id, identity):
        try:
            locked = [_find_locked(each) for each in acknowledgements]
            homes = {subscriptions.home_of(each.subscription.config.name) for each in acknowledgements}
            coordinator.add_nowait(transactional_id, identity, homes, client_version=BUMPING_VERSION)
            subscriptions.pend(locked, producer_id=identity.producer_id, producer_epoch=identity.epoch)
        except BrokerError as error:
            coordinator.abandon(transactional_id)
            raise aborted(str(error)) from error
    return await coordinator.end(transactional_id, identity, commit=True, client_version=BUMPING_VERSION)


async def commit_again(
    coordinator: TransactionCoordinator, transactional_id: str, identity: Identity
) -> None:
    """Return if the transaction of this identity has committed, and that is durable.

    TRANSACTION_ABORTABLE if it is aborted. One that is open is aborted now: its session is gone, or finds its
    producer fenced. TransactionRefused with FENCED or OTHER_ID where another producer has had the
    transactional id since: what became of the transaction is not known any more.
    """
    try:
        has_committed = coordinator.has_committed(transactional_id, identity)
    except TransactionRefused as refused:
        if refused.situation is not Situation.TIMED_OUT:
            raise
        has_committed = False
    if not has_committed:
        coordinator.abandon(transactional_id)
        raise aborted("the connection on which it was begun was lost before it could commit")
    await coordinator.end(transactional_id, identity, commit=True, client_version=BUMPING_VERSION)


def aborted(reason: str) -> BrokerError:
    """The error for a transaction that cannot commit, and is aborted."""
    return BrokerError(f"the transaction was aborted: {reason}", code=ErrorCode.TRANSACTION_ABORTABLE)


def _find_locked(each: Acknowledgement) -> LockedMessages:
    locked = each.subscription.find_locked(each.members, each.topic, each.partition, each.epoch, each.ranges)
    if locked is None:
        config = each.subscription.config
        first, end = min(each.ranges, default=(0, 0))
        named = f"{each.topic or config.topic}-{each.partition}, offsets {first} to {end - 1} among others"
        raise BrokerError(
            f"this session has no lock on a message that it acknowledges in subscription {config.name} "
            f"({named}). The lock ran out, a seek moved the cursor, or another connection had the message. "
            "It is delivered again unless it is done",
            code=ErrorCode.TRANSACTION_ABORTABLE,
        )
    return locked
