"""Messages that a client asks for: PULL, and what answers it.

A client that pulls is a member of its own, without credit. Its pulls are served in the order of asking: a
delivery answers the oldest that is not full. A pull ends, with an ACK that counts its messages, when it is
full, when its time is over, or when it has got something and nothing more was ready: whoever waits for work
gets it when it is there, and not when there is a lot of it.

With at_most_once a message is chosen some time before it leaves, because the cursor is stored in between. A
pull does not end while messages are on that way to it: nobody else would get them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.subscriptions import summarize
from tailrace.native.delivery import DataWriter, write_notice
from tailrace.wire.native import MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.broker.subscriptions import Delivery, Member, Notice, Subscription
    from tailrace.native.session import Session

_ACK = int(MessageType.ACK)
_COLD_WAIT_S = 0.1
"""What a pull that does not want to wait waits all the same, if messages are known to be on the disk."""


class Pull:
    """One PULL."""

    __slots__ = ("got", "sequence", "timer", "wanted")

    def __init__(self, sequence: int, wanted: int) -> None:
        self.sequence = sequence
        self.wanted = wanted
        self.got = 0
        self.timer: asyncio.Handle | None = None

    @property
    def missing(self) -> int:
        return self.wanted - self.got


class Puller:
    """A client as a member that pulls (`broker.subscriptions.Recipient`)."""

    __slots__ = ("_loop", "_pulls", "_session", "_writer", "member", "subscription")

    member: Member

    def __init__(self, session: Session, subscription: Subscription) -> None:
        self._session = session
        self._loop = session.door.loop
        self._writer = DataWriter(subscription.config.name)
        self._pulls: dict[Pull, None] = {}  # that are not answered, the oldest first
        self.subscription = subscription
        self.member = subscription.join(self, credit=0)

    def pull(self, sequence: int, count: int, *, wait_ms: int) -> None:
        """Ask for messages; DATA frames and an ACK answer."""
        pull = Pull(sequence, count)
        self._pulls[pull] = None
        self._session.asked()
        self.member.pull(count)  # which has the subscription run in the next turn
        if wait_ms:
            pull.timer = self._loop.call_later(wait_ms / 1000, self._time_is_over, pull)
        else:
            pull.timer = self._loop.call_soon(self._subscription_ran, pull)

    def end_all(self) -> None:
        """Answer every pull with what it has got."""
        for pull in list(self._pulls):
            self._answer(pull)

    # ---- the subscription's side

    @property
    def name(self) -> str:
        return self._session.name

    def is_open(self) -> bool:
        return self._session.outlet.is_open()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Share messages out among the pulls."""
        try:
            self._share_out(deliveries)
        except Exception as error:
            self._session.outlet.failed(error)  # and the subscription goes on with the others

    def notice(self, notice: Notice) -> None:
        """Tell the client, unless it is told as a receiver; a subscription that is gone answers no more."""
        membership = self._session.membership
        name = self.subscription.config.name
        if not membership.receives(name):
            self._session.outlet.send(write_notice(name, notice))
        if notice.event == "deleted":
            membership.forget(self.subscription)

    # ---- inside

    def _share_out(self, deliveries: Sequence[Delivery]) -> None:
        out: list[bytes] = []
        pulls = iter(list(self._pulls))
        pull = next(pulls, None)
        for delivery in deliveries:
            while pull is not None and not pull.missing:
                pull = next(pulls, None)
            if pull is None:  # it was on its way for too long; the client may still make use of it
                out.append(self._writer.write(delivery))
                continue
            pull.got += 1
            out.append(self._writer.write(delivery, pull=pull.sequence))
        self._session.outlet.send(b"".join(out))
        for each in list(self._pulls):
            if not each.missing:
                self._answer(each)
            elif each.got:
                self._end_soon(each)

    def _end_soon(self, pull: Pull) -> None:
        """It has got something: what else is ready comes in the next turn, or not at all."""
        if pull.timer is not None:
            pull.timer.cancel()
        pull.timer = self._loop.call_soon(self._give_a_turn, pull)

    def _subscription_ran(self, pull: Pull) -> None:
        """It had its turn; what it read from memory is here."""
        pull.timer = self._loop.call_soon(self._give_a_turn, pull)

    def _give_a_turn(self, pull: Pull) -> None:
        if not pull.got and self._is_cold():
            pull.timer = self._loop.call_later(_COLD_WAIT_S, self._time_is_over, pull)
        else:
            self._time_is_over(pull)

    def _is_cold(self) -> bool:
        """Whether messages are there that nobody has got, so that they may be on their way from the disk."""
        state = summarize(self.subscription)
        return bool(state["lag"] > state["unacknowledged"])

    def _time_is_over(self, pull: Pull) -> None:
        """End a pull, or at least what is not on its way to it yet."""
        if pull not in self._pulls:
            return
        coming = self._coming(pull)
        if not coming:
            self._answer(pull)
            return
        self._shrink(pull, pull.got + coming)
        pull.timer = self._loop.call_later(self._session.config.request_timeout_s, self._answer, pull)

    def _coming(self, pull: Pull) -> int:
        """How many messages were chosen for this pull and have not left yet."""
        chosen = sum(each.missing for each in self._pulls) - self.member.wanted
        for each in self._pulls:
            share = min(each.missing, chosen)
            if each is pull:
                return share
            chosen -= share
        return 0

    def _shrink(self, pull: Pull, wanted: int) -> None:
        """A pull wants fewer messages than it did; the other pulls still want theirs."""
        rest = self.member.wanted - (pull.wanted - wanted)
        pull.wanted = wanted
        self.member.stop_pull()
        if rest > 0:
            self.member.pull(rest)

    def _answer(self, pull: Pull) -> None:
        if pull not in self._pulls:
            return
        del self._pulls[pull]
        if pull.timer is not None:
            pull.timer.cancel()
        if pull.missing:
            self._shrink(pull, pull.got)
        session = self._session
        session.unanswered -= 1
        if not session.is_closed:
            properties = b"_count=%d\0" % pull.got
            session.outlet.send(write_frame(_ACK, sequence=pull.sequence, properties=properties))
        session.outlet.settled()
