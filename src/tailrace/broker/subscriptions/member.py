"""A member of a subscription: who takes messages, how many he may hold, and how he settles them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.subscriptions.delivery import Delivery, Recipient

if TYPE_CHECKING:
    from tailrace.broker.subscriptions.subscription import Subscription
    from tailrace.storage.api import Waiter

OffsetRanges = Sequence[tuple[int, int]]
"""Half-open ranges of offsets."""


class Member:
    """One recipient's place in a subscription; `leave` gives it up."""

    __slots__ = ("_subscription", "credit", "held", "id", "outbox", "recipient", "wanted")

    def __init__(
        self, member_id: int, recipient: Recipient, subscription: Subscription, *, credit: int
    ) -> None:
        self.id = member_id
        self.recipient = recipient
        self.credit = credit  # how many messages he may hold that are pushed to him
        self.wanted = 0  # messages that he asked for, beside the credit
        self.held = 0  # messages with him
        self.outbox: list[Delivery] = []  # chosen for him in this turn
        self._subscription = subscription

    def __repr__(self) -> str:
        return f"<Member {self.id} {self.recipient.name}, holds {self.held} of {self.credit}>"

    @property
    def room(self) -> int:
        """How many more messages he takes now."""
        if not self.recipient.is_open():
            return 0
        return max(self.credit - self.held, self.wanted, 0)

    def has_room(self) -> bool:
        return (self.held < self.credit or self.wanted > 0) and self.recipient.is_open()

    def leave(self, *, failed: bool = True) -> None:
        """What he holds goes back at once; leaving twice is harmless.

        One that was lost has failed with what he holds, which counts as a delivery; one that takes his leave
        has not.
        """
        self._subscription.leave(self, failed=failed)

    def set_credit(self, credit: int) -> None:
        self.credit = credit
        self._subscription.has_room(self)

    def pull(self, count: int) -> None:
        """Deliver so many more, whatever the credit is."""
        self.wanted += count
        self._subscription.has_room(self)

    def stop_pull(self) -> None:
        """What was asked for and has not come is not wanted any more."""
        self.wanted = 0

    def resume(self) -> None:
        """The recipient takes messages again."""
        self._subscription.has_room(self)

    def ack(self, topic: str, partition: int, epoch: int, ranges: OffsetRanges, waiter: Waiter) -> int:
        """These are done with; `waiter` is told when that is durable. How many were not done before."""
        return self._subscription.ack(topic, partition, epoch, ranges, waiter)

    def nack(
        self,
        topic: str,
        partition: int,
        epoch: int,
        ranges: OffsetRanges,
        *,
        delay_ms: int | None,
        reason: str,
    ) -> int:
        """Deliver these again later; how many were his to refuse."""
        return self._subscription.nack(
            self, topic, partition, epoch, ranges, delay_ms=delay_ms, reason=reason
        )

    def give_back(self, topic: str, partition: int, epoch: int, ranges: OffsetRanges) -> int:
        """He never began with these: they are delivered again at once, and nothing has failed; how many."""
        return self._subscription.give_back(self, topic, partition, epoch, ranges)

    def extend(self, topic: str, partition: int, epoch: int, ranges: OffsetRanges, *, extend_ms: int) -> int:
        """Hold these so much longer from now on; how many were his to hold."""
        return self._subscription.extend(self, topic, partition, epoch, ranges, extend_ms=extend_ms)
