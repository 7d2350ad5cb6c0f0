"""One client's socket, as far as frames go: what has arrived, what holds it back, and whose turn it is.

Frames are taken one after the other as long as nothing holds the connection. What may hold it is a bit in
`_holds`, and when the last one is cleared the next frame is taken:

    BUSY        somebody waits for something, and the next request waits for it
    BUDGET      the node has no bytes left for the next frame
    WRITE       the client does not read what was written
    UNANSWERED  too many requests or bytes of this connection are under way
    TURN        it has had its turn; the others get theirs
    CLOSING     nothing more is taken
    THROTTLE    a quota of the client is used up; for the time that the quota says

While it is held its socket is not read, so that TCP tells the client. The one exception is BUSY with nothing
received: then reading goes on, to notice a client that leaves.

A `FrameSource` cuts what arrives into frames. A protocol says how frames are taken (`_consume`), and what
follows when a hold is over (`_settle`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from tailrace.net.budget import Pace
from tailrace.net.peer import ConnectionFacts, facts_of

if TYPE_CHECKING:
    from tailrace.net.budget import Arrival, Claim
    from tailrace.net.service import RequestService
    from tailrace.net.transport import Transport

logger = logging.getLogger(__name__)

BUSY: Final = 1
BUDGET: Final = 2
WRITE: Final = 4
UNANSWERED: Final = 8
TURN: Final = 16
CLOSING: Final = 32
THROTTLE: Final = 64
FIRST_OWN_HOLD: Final = 128
"""This bit, and those above it, are for what only one protocol waits for."""

_NEVER = float("inf")
_MIB = 1 << 20


class FrameSource(Protocol):
    """Bytes that have arrived and were not taken, as frames."""

    wanted: int  # bytes that the next frame, or more of it, needs of an exhausted budget
    is_growing: bool  # they are for more of a frame that has begun

    @property
    def frame_bytes(self) -> int:
        """Size of the frame that is arriving piece by piece, else 0."""

    @property
    def frame_filled(self) -> int:
        """How much of that frame is here."""

    @property
    def frame_held(self) -> int:
        """What that frame has taken of the budget."""

    @property
    def has_rest(self) -> bool:
        """Whether bytes have arrived that `next_frame` has not looked at, or has not handed out."""

    def next_frame(self, arrival: Arrival) -> memoryview | None:
        """The next whole frame; None if it has not arrived, or if `wanted` bytes of the budget are missing.

        The frame's size stays taken from the budget until the caller gives it back. `arrival` is the caller.
        """

    def keep(self) -> None:
        """Other connections will receive: save what has not been handed out."""

    def grant(self) -> None:
        """The bytes that were wanted are taken from the budget."""

    def abandon(self) -> int:
        """The connection is over; how many bytes of the budget this still holds."""


class FramedConnection(asyncio.BufferedProtocol):
    """The protocol object of one socket, but for its protocol."""

    __slots__ = (
        "_claim",
        "_consuming",
        "_facts",
        "_frame_due",
        "_frame_timeout_s",
        "_holds",
        "_pace",
        "_reading",
        "_splitter",
        "_throttle_ends",
        "_throttled_at",
        "_transport",
        "_turn_bytes",
        "_turn_requests",
        "_waits_since",
        "service",
    )

    listener: ClassVar[str]  # what the facts say of where the client came in
    _splitter: FrameSource
    _transport: Transport

    def __init__(self, service: RequestService, splitter: FrameSource, *, frame_timeout_s: float) -> None:
        self.service = service
        self._splitter = splitter
        self._frame_timeout_s = frame_timeout_s
        self._facts: ConnectionFacts | None = None
        self._holds = 0
        self._consuming = False
        self._reading = True
        self._turn_bytes = 0
        self._turn_requests = 0
        self._claim: Claim | None = None
        self._pace = Pace()  # of the frame that is arriving
        self._frame_due = _NEVER  # when it must be here
        self._waits_since = 0.0  # for bytes of the budget
        self._throttle_ends: asyncio.TimerHandle | None = None
        self._throttled_at = 0.0

    @property
    def facts(self) -> ConnectionFacts:
        """Who talks to whom."""
        if self._facts is None:
            self._facts = facts_of(self._transport, listener=self.listener)
        return self._facts

    @property
    def client(self) -> str:
        """Who it is, for people."""
        return str(self.facts)

    # ---- an arrival of the budget

    @property
    def address(self) -> str:
        return self.facts.peer_host

    @property
    def held_bytes(self) -> int:
        return self._splitter.frame_held

    def is_slow(self, now: float) -> bool:
        splitter = self._splitter
        if not splitter.frame_bytes or self._holds & ~BUSY:
            return False
        return self._pace.is_slow(splitter.frame_filled, now)

    def refuse_slow(self) -> None:
        self._refuse("a frame arrives slowly, and others wait for its memory")

    # ---- its end

    def close_unread(self) -> None:
        """Others need the memory of what the client does not read (`net/unread.py`)."""
        self._refuse("the client does not read, and the node has no room")

    def abort(self) -> None:
        """Close now."""
        self._holds |= CLOSING
        self._transport.abort()

    def failed(self, error: Exception) -> None:
        """A bug of ours was met on behalf of this client: it costs this connection, and nothing else."""
        self.service.counters.failures += 1
        logger.error("request failed: %s: %s", self.client, error, exc_info=error)
        self.abort()

    # ---- quotas

    def throttle(self, seconds: float) -> None:
        """Take and read nothing for so long, or for as long as it was told before."""
        loop, ends = self.service.loop, self._throttle_ends
        until = loop.time() + seconds
        if ends is None:
            self._throttled_at = loop.time()
        elif ends.when() >= until:
            return
        else:
            ends.cancel()
        self._throttle_ends = loop.call_at(until, self.end_throttle)
        self._holds |= THROTTLE
        if not self._consuming:
            self._steer_reading()

    def end_throttle(self) -> None:
        """Go on: the time is over, or the quotas have changed."""
        if self._throttle_ends is None:
            return
        self._throttle_ends.cancel()
        self._throttle_ends = None
        self._holds &= ~THROTTLE
        if self._holds & CLOSING:
            return
        waited = self.service.loop.time() - self._throttled_at  # which is not the client's time
        self._pace.waited(waited)
        self._frame_due += waited
        self._guarded(self._unthrottled)

    # ---- for the protocol

    def _unthrottled(self) -> None:
        """The client may go on."""
        self._settle()

    def _consume(self) -> None:
        """Take frames until something holds us or there are no more."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Something is over: close, or take the next frames if nothing holds us any more."""
        raise NotImplementedError

    def _steer_reading(self) -> None:
        """Read on, or not, and leave nothing in the buffer that all share."""
        splitter, holds = self._splitter, self._holds
        splitter.keep()
        if not holds or (holds == BUSY and not splitter.has_rest):
            if not self._reading:
                self._reading = True
                self._transport.resume_reading()
        elif self._reading:
            self._reading = False
            self._transport.pause_reading()
        # Of what is left without a hold, nothing is whole: the first bytes of a size begin a frame, too.
        if splitter.frame_bytes == 0 and (holds or not splitter.has_rest):
            self._frame_due = _NEVER
        elif self._frame_due == _NEVER:
            allowed = self._frame_timeout_s + splitter.frame_bytes / _MIB
            now = self.service.loop.time()
            self._pace.restart(now)
            self._frame_due = now + allowed

    def _is_frame_late(self, now: float) -> bool:
        """Whether the frame that is arriving has had time enough."""
        return now >= self._frame_due and not self._holds & (BUDGET | THROTTLE)

    def _end_turn(self) -> None:
        if not self._holds & TURN:
            self._holds |= TURN
            self.service.loop.call_soon(self._next_turn)

    def _wait_for_budget(self) -> None:
        self._holds |= BUDGET
        self._waits_since = self.service.loop.time()
        splitter, budget = self._splitter, self.service.budget
        if splitter.is_growing:
            self._claim = budget.wait_growth(self, splitter.wanted, self._granted_soon)
        else:
            self._claim = budget.wait(splitter.wanted, self._granted_soon, address=self.address)

    def _give_back_intake(self) -> None:
        """The socket is gone: what has arrived and was not taken counts no more."""
        if self._throttle_ends is not None:
            self._throttle_ends.cancel()
            self._throttle_ends = None
        budget = self.service.budget
        if self._claim is not None:
            budget.withdraw(self._claim)
            self._claim = None
        budget.finish(self)
        budget_bytes = self._splitter.abandon()
        if budget_bytes:
            budget.give(budget_bytes)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self.failed(error)

    def _refuse(self, reason: str) -> None:
        logger.debug("connection closed: %s: %s", self.client, reason)
        self.abort()

    # ---- inside

    def _next_turn(self) -> None:
        self._turn_bytes = self._turn_requests = 0
        self._holds &= ~TURN
        self._settle()

    def _granted_soon(self) -> None:
        """By way of the loop: it is granted in the middle of another connection's work."""
        self.service.loop.call_soon(self._granted)

    def _granted(self) -> None:
        if self._claim is None:
            return  # the connection was lost in between
        self._claim = None
        self._splitter.grant()
        self._holds &= ~BUDGET
        waited = self.service.loop.time() - self._waits_since  # which is not the client's time
        self._pace.waited(waited)
        self._frame_due += waited
        self._settle()
