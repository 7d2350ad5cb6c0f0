"""Messages that somebody asks for: the pulls of one member, whichever listener they came through.

Who pulls is a member without credit, and his pulls are served in the order of asking: a delivery goes to the
oldest that is not full. A pull ends when it is full, when its time is over, or when it has got something and
nothing more was ready: whoever waits for work gets it when it is there, and not when there is a lot of it.

With at_most_once a message is chosen some time before it leaves, because the cursor is stored in between. A
pull does not end while messages are on that way to it: nobody else would get them.

Rule: what the pulls miss is what their member wants, and what is on its way to him. What is on its way to a
pull that has ended is for the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from tailrace.broker.subscriptions.definition import Guarantee
from tailrace.broker.subscriptions.description import summarize

if TYPE_CHECKING:
    from tailrace.broker.subscriptions.delivery import Delivery, Recipient
    from tailrace.broker.subscriptions.member import Member
    from tailrace.broker.subscriptions.subscription import Subscription

_COLD_WAIT_S = 0.1
"""What a pull that does not want to wait waits all the same, if messages are known to be on the disk."""


class Pull:
    """One request for messages; a listener adds what it needs to answer it."""

    __slots__ = ("got", "timer", "wanted")

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.got = 0
        self.timer: asyncio.Handle | None = None

    @property
    def missing(self) -> int:
        return self.wanted - self.got


PullT = TypeVar("PullT", bound=Pull)


class Pulls(Generic[PullT]):
    """The pulls of one recipient that have not ended; `member` is his place in the subscription."""

    __slots__ = ("_loop", "_on_end", "_open", "_patience_s", "_subscription", "member")

    member: Member

    def __init__(
        self,
        subscription: Subscription,
        recipient: Recipient,
        *,
        patience_s: float,
        on_end: Callable[[PullT], None],
    ) -> None:
        """Join. `on_end` answers a pull; one waits `patience_s` at most for what is on its way to it."""
        self._loop = asyncio.get_running_loop()
        self._subscription = subscription
        self._patience_s = patience_s
        self._on_end = on_end
        self._open: dict[PullT, None] = {}  # the oldest first
        self.member = subscription.join(recipient, credit=0)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[PullT]:
        """The oldest first; some may end meanwhile."""
        return iter(list(self._open))

    def __repr__(self) -> str:
        return f"<Pulls {len(self._open)} of {self.member}>"

    def ask(self, pull: PullT, *, wait_ms: int) -> None:
        """Serve a pull, which may have got something already, behind the others."""
        asked = max(pull.missing - self._stray(), 0)
        self._open[pull] = None
        self.member.pull(asked)  # which has the subscription run in the next turn
        if wait_ms:
            pull.timer = self._loop.call_later(wait_ms / 1000, self._time_is_over, pull)
        else:
            pull.timer = self._loop.call_soon(self._subscription_ran, pull)

    def share_out(self, deliveries: Sequence[Delivery]) -> list[PullT | None]:
        """Whose each delivery is; None where it was on its way for so long that nobody waits for it.

        Once they are with their pulls, `settle` ends those that have enough.
        """
        shares: list[PullT | None] = []
        pulls = iter(self)
        pull = next(pulls, None)
        for _ in deliveries:
            while pull is not None and not pull.missing:
                pull = next(pulls, None)
            if pull is not None:
                pull.got += 1
            shares.append(pull)
        return shares

    def hand_on(self, deliveries: Sequence[Delivery]) -> list[PullT | None]:
        """Share out what the member has already, so that he wants less."""
        shares = self.share_out(deliveries)
        taken = sum(pull is not None for pull in shares)
        if taken:
            self._want(self.member.wanted - taken)
        return shares

    def settle(self) -> None:
        """End the pulls that are full, and soon those that have got something."""
        for pull in self:
            if not pull.missing:
                self.end(pull)
            elif pull.got:
                self._end_soon(pull)

    def end(self, pull: PullT) -> None:
        """Answer a pull with what it has got."""
        if self.drop(pull):
            self._on_end(pull)

    def end_all(self) -> None:
        for pull in self:
            self.end(pull)

    def drop(self, pull: PullT) -> bool:
        """Forget a pull without an answer; the others still want theirs. False if it has ended already."""
        if pull not in self._open:
            return False
        del self._open[pull]
        if pull.timer is not None:
            pull.timer.cancel()
        if pull.missing:
            self._shrink(pull, pull.got)
        return True

    # ---- inside

    def _end_soon(self, pull: PullT) -> None:
        """It has got something: what else is ready comes in the next turn, or not at all."""
        if pull.timer is not None:
            pull.timer.cancel()
        pull.timer = self._loop.call_soon(self._give_a_turn, pull)

    def _subscription_ran(self, pull: PullT) -> None:
        """It had its turn; what it read from memory is here."""
        pull.timer = self._loop.call_soon(self._give_a_turn, pull)

    def _give_a_turn(self, pull: PullT) -> None:
        if not pull.got and self._is_cold():
            pull.timer = self._loop.call_later(_COLD_WAIT_S, self._time_is_over, pull)
        else:
            self._time_is_over(pull)

    def _is_cold(self) -> bool:
        """Whether messages are there that nobody has got, so that they may be on their way from the disk."""
        state = summarize(self._subscription)
        return bool(state["lag"] > state["unacknowledged"])

    def _time_is_over(self, pull: PullT) -> None:
        """End a pull, or at least what is not on its way to it yet."""
        if pull not in self._open:
            return
        coming = self._coming(pull)
        if not coming:
            self.end(pull)
            return
        self._shrink(pull, pull.got + coming)
        pull.timer = self._loop.call_later(self._patience_s, self.end, pull)

    def _coming(self, pull: PullT) -> int:
        """How many messages were chosen for this pull and have not left yet."""
        chosen = self._chosen()
        for each in self._open:
            share = min(each.missing, chosen)
            if each is pull:
                return share
            chosen -= share
        return 0

    def _chosen(self) -> int:
        """How many messages the pulls wait for that were chosen and have not left yet."""
        return max(sum(each.missing for each in self._open) - self.member.wanted, 0)

    def _stray(self) -> int:
        """How many are on their way, at most once, to pulls that have ended since."""
        if self._subscription.config.delivery is not Guarantee.AT_MOST_ONCE:
            return 0
        return max(self.member.held - self._chosen(), 0)

    def _shrink(self, pull: PullT, wanted: int) -> None:
        """A pull wants fewer messages than it did."""
        rest = self.member.wanted - (pull.wanted - wanted)
        pull.wanted = wanted
        self._want(rest)

    def _want(self, count: int) -> None:
        """The member wants so many from now on."""
        self.member.stop_pull()
        if count > 0:
            self.member.pull(count)
