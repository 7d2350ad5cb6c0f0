"""The bytes of one WebSocket that have arrived and that the app has not received, counted.

    data --admit--> parser --> fragments --> messages --settle--> the app
      |               counted until the app receives the message
      +--> kept while the listener's share of the request bytes is exhausted; the socket is not read

Data is counted as it arrives: how long a message will be is not known before. Where bytes are missing, the
connection keeps what it holds and waits for more (see `net.budget`). When the app has received a message, the
app counts it: a native session takes it whole, and a tail is done with it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tailrace.net import Claim, RequestBudget
from tailrace.net.budget import Pace


class Intake:
    """One socket's part of a share; an arrival of the budget while it holds anything."""

    __slots__ = (
        "_arrives",
        "_claim",
        "_feed",
        "_kept",
        "_loop",
        "_pace",
        "_refuse",
        "address",
        "budget",
        "bytes",
    )

    def __init__(
        self,
        budget: RequestBudget,
        feed: Callable[[bytes], None],
        *,
        address: str = "",
        refuse: Callable[[], None] = lambda: None,
    ) -> None:
        self.budget = budget
        self.address = address
        self.bytes = 0  # taken from the share
        self._arrives = False  # a message has begun that is not complete
        self._pace = Pace()
        self._feed = feed  # called with data that was kept, when it may be parsed
        self._refuse = refuse  # ends the connection: others wait for its bytes
        self._kept: list[bytes] = []
        self._claim: Claim | None = None
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<Intake {self.bytes} bytes{', waits' if self.is_waiting else ''}>"

    @property
    def is_waiting(self) -> bool:
        """Whether data is kept until there are bytes for it; the socket should not be read."""
        return self._claim is not None

    @property
    def held_bytes(self) -> int:
        return self.bytes

    def is_slow(self, now: float) -> bool:
        return self._arrives and self._claim is None and self._pace.is_slow(self.bytes, now)

    def note_arriving(self, is_arriving: bool) -> None:
        """Whether a message has begun that is not complete."""
        if is_arriving and not self._arrives:
            self._pace.restart(self._loop.time())
        self._arrives = is_arriving

    def refuse_slow(self) -> None:
        self._refuse()

    def admit(self, data: bytes) -> bool:
        """Whether the data may be parsed now; if not, it is kept and fed later."""
        size, budget = len(data), self.budget
        if self._claim is None and (
            budget.take_more_nowait(size, held=self.bytes) or (self.bytes and budget.grow_nowait(self, size))
        ):
            self._hold(size)
            return True
        self._kept.append(data)
        if self._claim is None:
            if self.bytes:
                self._claim = budget.wait_growth(self, size, self._granted_soon)
            else:
                self._claim = budget.wait(size, self._granted_soon, address=self.address)
        return False

    def _hold(self, size: int) -> None:
        """So many bytes were taken for it."""
        before, self.bytes = self.bytes, self.bytes + size
        if before:
            self.budget.hold_more(self, size)
        else:
            self.budget.begin(self)

    def settle(self, size: int) -> None:
        """At most so many bytes still wait to be received: the others are free."""
        if self.bytes > size:
            freed, self.bytes = self.bytes - size, size
            if size:
                self.budget.hold_more(self, -freed)
            else:
                self.budget.finish(self)
            self.budget.give(freed)

    def close(self) -> None:
        """The connection is over, and nothing counts any more."""
        if self._claim is not None:
            self.budget.withdraw(self._claim)
            self._claim = None
        self._kept.clear()
        self.settle(0)

    def _granted_soon(self) -> None:
        """By way of the loop: it is granted in the middle of another connection's work."""
        self._loop.call_soon(self._granted)

    def _granted(self) -> None:
        if self._claim is None:
            return  # the connection was lost in between
        claim, self._claim = self._claim, None
        if claim.arrival is None:
            self._hold(claim.bytes)
        else:
            self.bytes += claim.bytes
        kept, self._kept = self._kept, []
        self._feed(kept[0])
        for data in kept[1:]:  # came before the transport had stopped
            if self.admit(data):
                self._feed(data)
