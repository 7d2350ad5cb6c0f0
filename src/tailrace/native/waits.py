"""Replies that wait for durability: what the protocol needs of them, and the one of an acknowledgement.

A wait is a `storage.api.Waiter`: the log tells it once, in a moment in which nothing may be appended or read.
So it only notes what it was told and puts itself on the list of its client's protocol, which writes the
replies later, those of all waits together.
"""

from __future__ import annotations

from typing import Protocol

from tailrace.native.counting import RequestCounts
from tailrace.native.errors import write_refusal
from tailrace.wire.native import MessageType, write_frame

_ACK = int(MessageType.ACK)


class Wait(Protocol):
    """Requests whose replies are not known yet."""

    deadline: float  # of the loop's clock; past it they are answered with an error
    taken_at: float  # when they came
    told: bool

    @property
    def requests(self) -> int:
        """How many requests they are."""

    @property
    def request_bytes(self) -> int:
        """What they hold of the node's budget."""

    def set_exception(self, error: Exception, /) -> None:
        """It never will be durable, or not in time."""

    def write_replies(self, out: list[bytes]) -> None:
        """Once told: one frame for every request that wants a reply."""

    def count(self, requests: RequestCounts, seconds: float) -> None:
        """Once told: the requests took so long."""


class Replier(Protocol):
    """A client's protocol, as a wait knows it."""

    def told(self, wait: Wait) -> None:
        """The replies of this wait are known."""


class AckWait:
    """One acknowledgement until the cursor is durable."""

    __slots__ = ("_error", "_replier", "_sequence", "deadline", "settled", "taken_at", "told")

    requests = 1
    request_bytes = 0

    def __init__(self, replier: Replier, sequence: int) -> None:
        self._replier = replier
        self._sequence = sequence
        self._error: Exception | None = None
        self.deadline = self.taken_at = 0.0
        self.settled = 0  # how many messages it is about
        self.told = False

    def done(self) -> bool:
        return self.told

    def set_result(self, _: None) -> None:
        """Durable."""
        if not self.told:
            self.told = True
            self._replier.told(self)

    def set_exception(self, error: Exception) -> None:
        if not self.told:
            self._error = error
            self.set_result(None)

    def write_replies(self, out: list[bytes]) -> None:
        if not self._sequence:
            return
        if self._error is not None:
            out.append(write_refusal(self._sequence, self._error))
            return
        out.append(write_frame(_ACK, sequence=self._sequence, properties=b"_count=%d\0" % self.settled))

    def count(self, requests: RequestCounts, seconds: float) -> None:
        requests.note(_ACK, seconds, error=self._error)
