"""One client without its socket: frames in, frames out.

The connection around it (`connection`) gives it whole frames in order, says when everything that arrived
together was given (`flush`), and carries away what it sends. The protocol asks it back, by the port
`Outlet`, for three things: to send, to hold further requests while one must be waited for, and to take bytes
of the node's budget back.

Rules:
- Requests are applied in the order in which they came; replies leave when they are known, in any order.
- Every request with a sequence gets exactly one reply. One with sequence 0 gets none, not even an ERROR.
- What a client asks for and cannot have is an ERROR. A bug of ours ends the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tailrace.native.dispatch import HANDLERS, refuse_type
from tailrace.native.errors import ANSWERABLE, timed_out, write_refusal
from tailrace.native.membership import Membership
from tailrace.native.publishing import PUBLISH, PUBLISH_BATCH, Publishing
from tailrace.native.transacting import Transacting
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.broker.gate import Access
    from tailrace.model.session import Session
    from tailrace.native.login import NativeLogin
    from tailrace.native.service import NativeService
    from tailrace.native.waits import Wait

_T = TypeVar("_T")
_ACK = int(MessageType.ACK)
_PULL = int(MessageType.PULL)


class Outlet(Protocol):
    """The connection of one client's protocol."""

    @property
    def peer(self) -> str:
        """Who is at the other end, for people."""

    def send(self, data: bytes) -> None:
        """Whole frames for the client, in this order."""

    def is_open(self) -> bool:
        """Whether the client reads fast enough to be delivered more; `resume` follows when it does."""

    def hold(self) -> None:
        """Give no more frames until `unhold`."""

    def unhold(self) -> None:
        """Go on."""

    def settled(self) -> None:
        """Requests were answered: there may be room for others, or nothing left to wait for."""

    def give(self, size: int) -> None:
        """So many bytes of the node's budget are free again."""

    def end_soon(self) -> None:
        """Take nothing more; close when what is under way has left."""

    def failed(self, error: Exception) -> None:
        """A bug of ours was met on behalf of this client."""


class NativeProtocol:
    """What one client has asked for and has not got yet."""

    __slots__ = (
        "_held",
        "_in_flush",
        "_is_later",
        "_kind",
        "_publishing",
        "_taken_at",
        "_told",
        "_waiting",
        "access",
        "client_id",
        "config",
        "is_closed",
        "login",
        "membership",
        "outlet",
        "peer_heartbeat_ms",
        "service",
        "transactions",
        "unanswered",
        "unanswered_bytes",
    )

    def __init__(self, service: NativeService, outlet: Outlet) -> None:
        self.service = service
        self.config = service.config
        self.outlet = outlet
        self.client_id = ""
        self.peer_heartbeat_ms = service.config.heartbeat_interval_ms  # until the client announces its own
        self.unanswered = 0  # requests that were taken and not answered
        self.unanswered_bytes = 0  # of the node's budget, with them
        self.is_closed = False
        self.login: NativeLogin | None = None  # None: who it is was known when it came, or nobody asks
        self.membership = Membership(self)
        self.transactions = Transacting(self)
        self._publishing = Publishing(self)
        self._waiting: dict[Wait, None] = {}  # for durability; the oldest first
        self._told: list[Wait] = []
        self._in_flush = False
        self._held = False
        self._kind = 0  # of the request that is being taken
        self._is_later = False  # it is answered later
        self._taken_at = 0.0  # when the requests came that were not flushed yet; 0: there are none

    def __repr__(self) -> str:
        return f"<NativeProtocol {self.name}, {self.unanswered} unanswered>"

    @property
    def name(self) -> str:
        """Who this is, for people."""
        return f"{self.client_id} at {self.outlet.peer}" if self.client_id else self.outlet.peer

    @property
    def is_done(self) -> bool:
        """Whether nothing is under way."""
        return not self.unanswered and not self._held

    # ---- for the connection

    def identify(self, session: Session) -> None:
        """Requests from now on are of this session."""
        self.access: Access = self.service.gate.access(session)

    def take(self, frame: Frame, size: int) -> None:
        """Serve one request. Its `size` bytes of the node's budget are given back when it is answered."""
        self._kind = kind = frame.type
        if not self._taken_at:
            self._taken_at = self.service.clock.monotonic()
        if self.login is not None and self.login.is_pending:
            try:
                self.login.check(frame)
            except ANSWERABLE as error:
                self._refuse_and_end(frame, size, error)
                return
        if kind in (PUBLISH, PUBLISH_BATCH):
            self._publishing.take(frame, size)
            return
        self._publishing.flush()
        self._is_later = False
        try:
            HANDLERS.get(kind, refuse_type)(self, frame)
        except ANSWERABLE as error:
            self.count(kind, error)
            self.refuse(frame.sequence, error)
        else:
            if not self._is_later:
                self.count(kind)
            elif kind == _PULL:
                self.service.requests.note_unmeasured(kind)
        finally:
            self.outlet.give(size)

    def flush(self) -> None:
        """Everything that arrived together was given: store what was published, answer what is known."""
        self._in_flush = True
        try:
            self._publishing.flush()
        finally:
            self._in_flush = False
            self._taken_at = 0.0
            self.wake()

    def wake(self) -> None:
        """Send the replies that have become known."""
        if not self._told:
            return
        told, self._told = self._told, []
        out: list[bytes] = []
        requests, now = self.service.requests, self.service.clock.monotonic()
        for wait in told:
            self._waiting.pop(wait, None)
            self.unanswered -= wait.requests
            size = wait.request_bytes
            if size:
                self.unanswered_bytes -= size
                self.outlet.give(size)
            wait.count(requests, now - wait.taken_at)
            if not self.is_closed:
                wait.write_replies(out)
        if out:
            self.outlet.send(b"".join(out))
        self.outlet.settled()

    def resume(self) -> None:
        """The client reads again."""
        self.membership.resume()

    def expire(self, now: float) -> None:
        """Answer what was not durable in time."""
        late = []
        for wait in self._waiting:
            if wait.deadline > now:
                break
            late.append(wait)
        for wait in late:
            wait.set_exception(timed_out(self.config.request_timeout_s))

    def finish(self, *, failed: bool) -> None:
        """Nothing more is taken: leave every subscription; what is under way is still answered."""
        self.flush()
        self.transactions.close()
        self.membership.leave_all(failed=failed)

    def close(self) -> None:
        """The client is gone."""
        self.is_closed = True
        self._publishing.abandon()
        self.transactions.close()
        self.membership.leave_all(failed=True)

    # ---- for handlers

    def reply(self, frame: Frame, properties: Mapping[str, str] | bytes = b"", body: bytes = b"") -> None:
        """The request succeeded."""
        if frame.sequence:
            self.outlet.send(write_frame(_ACK, sequence=frame.sequence, properties=properties, body=body))

    def refuse(self, sequence: int, error: Exception) -> None:
        """The request failed, and its client is told why."""
        if sequence and not self.is_closed:
            self.outlet.send(write_refusal(sequence, error))

    def report(self, sequence: int, error: BaseException) -> None:
        """An exception that ended a request: an answer, a bug, or the end of the listener."""
        if isinstance(error, ANSWERABLE):
            self.refuse(sequence, error)
        elif isinstance(error, Exception):
            self.outlet.failed(error)
        else:
            raise error

    def asked(self, size: int = 0) -> None:
        """One more request waits for its reply; so many bytes of the budget are kept for it."""
        self.unanswered += 1
        self.unanswered_bytes += size
        self._is_later = True

    def count(self, kind: int, error: BaseException | None = None) -> None:
        """A request of this kind, which came just now, is answered."""
        now = self.service.clock.monotonic()
        self.service.requests.note(kind, now - (self._taken_at or now), error=error)

    def wait_for(self, wait: Wait) -> None:
        """The replies of these requests come when they are durable, or when they should have been."""
        wait.deadline = self.service.loop.time() + self.config.request_timeout_s
        wait.taken_at = self._taken_at or self.service.clock.monotonic()
        self._waiting[wait] = None

    def told(self, wait: Wait) -> None:
        """The replies of these requests are known. Of many in one moment the first has all of them sent."""
        if not self._told and not self._in_flush:
            self.service.wake_soon(self)
        self._told.append(wait)

    def run(
        self,
        name: str,
        sequence: int,
        work: Coroutine[Any, Any, bytes],
        *,
        holds: bool = False,
        size: int = 0,
    ) -> None:
        """Do what takes a while beside everything else; `work` gives the reply. The next request may wait."""
        if holds:
            self.hold()
        self.asked(size)
        task = self.service.start(name, self._run(self._kind, sequence, work, holds=holds, size=size))
        task.add_done_callback(lambda _: work.close())  # which matters if it was ended before it began

    async def in_time(self, work: Awaitable[_T]) -> _T:
        """What `work` gives; REQUEST_TIMED_OUT if it takes too long."""
        deadline = asyncio.timeout(self.config.request_timeout_s)
        try:
            async with deadline:
                return await work
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise timed_out(self.config.request_timeout_s) from error

    def hold(self) -> None:
        """The next request waits until `unhold`."""
        assert not self._held, "what holds is waited for"
        self._held = True
        self.outlet.hold()

    def unhold(self) -> None:
        """What was waited for is there: store what came of it, and go on."""
        self._held = False
        self.flush()
        self.outlet.unhold()

    # ---- inside

    def _refuse_and_end(self, frame: Frame, size: int, error: Exception) -> None:
        self.outlet.give(size)
        self.count(frame.type, error)
        self.refuse(frame.sequence, error)
        self.outlet.end_soon()

    async def _run(
        self, kind: int, sequence: int, work: Coroutine[Any, Any, bytes], *, holds: bool, size: int
    ) -> None:
        clock, requests = self.service.clock, self.service.requests
        began = clock.monotonic()
        try:
            reply = await self.in_time(work)
            requests.note(kind, clock.monotonic() - began)
            if sequence and not self.is_closed:
                self.outlet.send(reply)
        except BaseException as error:
            requests.note(kind, clock.monotonic() - began, error=error)
            self.report(sequence, error)
        finally:
            self.unanswered -= 1
            if size:
                self.unanswered_bytes -= size
                self.outlet.give(size)
            if holds:
                self.unhold()
            self.outlet.settled()
