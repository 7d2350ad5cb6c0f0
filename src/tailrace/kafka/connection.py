"""One client's connection: bytes in, requests in order, replies in order.

What holds it back is in `net/framed.py`, and one hold more:

    LARGE       enough large requests are being served; small ones of other connections come in between

A client that breaks the protocol, and a bug of ours, cost this connection and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from tailrace.kafka.authentication import Authentication
from tailrace.kafka.dispatch import dispatch
from tailrace.kafka.errors import ANSWERABLE
from tailrace.kafka.replies import Outbox, VectoredTransport
from tailrace.kafka.throttling import serve_metered
from tailrace.model import ProtocolError
from tailrace.model.session import Session
from tailrace.net import FrameSplitter
from tailrace.net.framed import BUSY, CLOSING, FIRST_OWN_HOLD, UNANSWERED, WRITE, FramedConnection
from tailrace.net.stranger import SpeaksHttp, SpeaksTls, http_refusal
from tailrace.net.unread import WATERMARK_BYTES
from tailrace.wire.kafka import APIS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.broker.gate import Access
    from tailrace.kafka.replies import Pending, Reply
    from tailrace.kafka.service import KafkaService
    from tailrace.kafka.shape import ProduceShape
    from tailrace.net import Claim

logger = logging.getLogger(__name__)

_LARGE = FIRST_OWN_HOLD
_NEVER = float("inf")
_FAREWELL_S = 0.5
_WHOLE = (bytes, list)
_SMALL_BYTES_MAX = min(api.request_bytes_max for api in APIS.values())


class Connection(FramedConnection):
    """The protocol object of one socket."""

    __slots__ = (
        "_admission",
        "_config",
        "_deadline",
        "_farewell",
        "_farewell_s",
        "_on_lost",
        "_on_made",
        "_orphans",
        "_outbox",
        "_serve",
        "_timer",
        "_unanswered_bytes",
        "_waiting",
        "_woken",
        "access",
        "active",
        "authentication",
        "fetch_bytes_max",
        "idle_ticks",
        "produce_shape",
    )

    listener = "kafka"
    service: KafkaService
    _splitter: FrameSplitter
    _transport: VectoredTransport
    access: Access  # of the session that this connection is; made with it
    _outbox: Outbox

    def __init__(
        self,
        service: KafkaService,
        *,
        on_made: Callable[[Connection], bool],
        on_lost: Callable[[Connection], None],
    ) -> None:
        config = service.config
        splitter = FrameSplitter(
            service.receive_buffer,
            service.budget,
            frame_bytes_max=config.frame_bytes_max,
            small_bytes_max=_SMALL_BYTES_MAX,
            bytes_max_of=_request_bytes_max,
            read_bytes=max(config.turn_bytes // 2, 1),
        )
        super().__init__(service, splitter, frame_timeout_s=config.frame_timeout_s)
        self.active = True  # something happened since the last sweep
        self.idle_ticks = 0
        self.produce_shape: ProduceShape | None = None  # of the last request; see shape.py
        self._on_made = on_made  # whether there is room for one more
        self._on_lost = on_lost
        self._config = config
        self._unanswered_bytes = 0
        self._waiting: memoryview | None = None  # a large request that is not served yet
        self._admission: Claim | None = None  # its claim; None once it is admitted
        self._deadline = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._orphans: list[Pending] = []
        self._woken = False
        self.authentication: Authentication | None = None  # None: the listener asks nobody who it is
        self.fetch_bytes_max = config.fetch_bytes_max  # of one answer; a quota may say less
        self._farewell_s = 0.0  # between the last reply and the end
        self._farewell: asyncio.TimerHandle | None = None
        self._serve: Callable[..., Reply | None] = dispatch

    def __repr__(self) -> str:
        return f"<Connection {self._facts}, holds {self._holds:#x}>"

    @property
    def idle(self) -> bool:
        """Whether nothing is under way on our side. A client that does not read is silent, not busy."""
        return not self._outbox.queue or self._outbox.paused

    @property
    def is_stalled(self) -> bool:
        """Whether the client does not take what was written."""
        return self._outbox.paused

    @property
    def is_crowded_out(self) -> bool:
        """Whether a large request of its waits until others are served."""
        return self._admission is not None

    @property
    def buffered_bytes(self) -> int:
        """What is in memory for this client and cannot leave: with the transport, and behind that."""
        return self._transport.get_write_buffer_size() + self._outbox.ready_bytes

    # ---- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(VectoredTransport, transport)
        session = self.service.session_of(self._transport, self.facts)
        self.access = self.service.gate.access(session or Session(listener=self.service.name))
        config = self._config
        self._outbox = Outbox(
            self._transport,
            self.service.loop,
            piece_bytes=config.piece_bytes,
            turn_bytes=config.turn_bytes,
            answered=self._answered,
            broken=self._broken,
            go_on=self._go_on,
        )
        self._outbox.watch_transport()  # with TLS the last bytes of the handshake may not have left
        has_room = self._on_made(self) and session is not None
        if has_room and self.service.logins is not None:
            self.authentication = Authentication(self, self.service.logins)
            self._serve = self.authentication.serve
            has_room = self.authentication.begin()
        if not has_room:
            self._holds |= CLOSING
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._splitter.get_buffer()

    def buffer_updated(self, count: int) -> None:
        self.active = True
        self._splitter.received(count)
        self._turn_bytes += count
        self._consume()

    def eof_received(self) -> None:
        """The client closes its side, and Kafka clients read nothing after that: so do we."""

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._holds |= WRITE
        if (unread := self.buffered_bytes) >= WATERMARK_BYTES:
            self.service.budget.unread.note(self, unread)

    def resume_writing(self) -> None:
        self.active = True
        self.service.budget.unread.forget(self)
        self._guarded(self._outbox.resume)
        if not self._outbox.paused:
            self._holds &= ~WRITE
            self._settle()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._holds |= CLOSING
        self.service.budget.unread.forget(self)
        if self.authentication is not None:
            self.authentication.end()
        if self._farewell is not None:
            self._farewell.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting is not None:
            if self._admission is not None:
                self.service.large.withdraw(self._admission)
                self.service.budget.give(len(self._waiting))
            else:  # admitted, and something else held it back
                self._give(len(self._waiting))
            self._admission = self._waiting = None
        self._give_back_intake()
        self._orphans = self._outbox.close()
        for orphan in self._orphans:
            orphan.finish()
        self._settle_orphans()
        self._on_lost(self)

    # ---- the listener's side

    def sweep(self, now: float, *, idle_ticks_max: int) -> None:
        """Look whether the client is still worth a socket; called every so often."""
        if self._is_frame_late(now):
            self._refuse("a frame did not arrive in time")
        elif self.active:
            self.active, self.idle_ticks = False, 0
        elif self.idle:
            self.idle_ticks += 1
            if self.idle_ticks >= idle_ticks_max:
                self._refuse("idle")

    def close_soon(self) -> None:
        """Take nothing more; close when the replies under way have left."""
        self._hold(CLOSING)
        for reply in self._outbox.pending():
            reply.finish()
        self._go_on()

    @property
    def session(self) -> Session:
        return self.access.session

    # ---- for its authentication

    def limit_frames(self, bytes_max: int) -> None:
        """Refuse larger frames, until it has logged in."""
        self._splitter.frame_bytes_max = bytes_max

    def log_in(self, session: Session, *, watched: bool) -> None:
        """Requests from now on are of this session; `watched`: one that ends by itself."""
        self.access = self.service.gate.access(session)
        self._splitter.frame_bytes_max = self._config.frame_bytes_max
        if self.authentication is not None and not watched:
            self._serve = dispatch

    def close_after_refusal(self) -> None:
        """Take nothing more; close a moment after the replies under way have left.

        kafka-python shows no error that it receives together with the end of the connection.
        """
        self._farewell_s = _FAREWELL_S
        self._hold(CLOSING)

    def refuse_login(self, reason: str) -> None:
        self._refuse(reason)

    # ---- for handlers

    def ready_soon(self) -> None:
        """A reply may be known now. Of many that become known at once the first call has them all sent."""
        if not self._woken:
            self._woken = True
            self.service.wake_soon(self)

    def wake(self) -> None:
        """Send what is known now."""
        self._woken = False
        if self._orphans:
            self._settle_orphans()
        elif self._outbox.queue:
            self._go_on()

    def unhold(self) -> None:
        """The reply that the next request waited for is known."""
        self._holds &= ~BUSY
        if self._orphans:
            self._settle_orphans()
        else:
            self._go_on()

    def expire_at(self, deadline: float) -> None:
        """A reply must be known by then. One timer serves all, and most deadlines pass unnoticed."""
        if deadline < self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._deadline = deadline
            self._timer = self.service.loop.call_at(deadline, self._expire)

    # ---- inside

    def _consume(self) -> None:
        """Serve requests until something holds the connection or no whole request is left."""
        if self._consuming:
            return
        self._consuming = True
        is_ready = False  # whether a reply may leave now
        try:
            while not self._holds and (frame := self._next_request()) is not None:
                try:
                    if self.service.metering is None:
                        reply = self._serve(self, frame, owned=self._splitter.owned)
                    else:
                        reply = serve_metered(self, frame, self._serve, owned=self._splitter.owned)
                except BaseException:
                    self._give(len(frame))
                    raise
                is_ready = self._put(reply, len(frame)) or is_ready
            self._end_of_requests(is_ready)
        except ProtocolError as error:
            # What was asked before the breach is answered; then it ends.
            self.service.counters.protocol_errors += 1
            logger.debug("connection closed: %s: %s", self.facts, error)
            self._holds |= CLOSING
            if isinstance(error, SpeaksHttp) and self._outbox.idle:
                self._transport.write(http_refusal(self.facts, self.service.neighbours))
            elif isinstance(error, SpeaksTls) or (self.authentication and self.authentication.is_pending):
                self.service.tell_of(self.facts, error)
            self._go_on()
        except Exception as error:
            self.failed(error)
        finally:
            self._consuming = False
        self._steer_reading()

    def _next_request(self) -> memoryview | None:
        """The next request that may be served; None if it has not arrived, or now holds the connection."""
        frame = self._waiting
        if frame is not None:
            self._waiting = None
            return frame
        frame = self._splitter.next_frame(self)
        if frame is None:
            if self._splitter.wanted:
                self._wait_for_budget()
        elif len(frame) > self._config.small_request_bytes and not self.service.admit_large(len(frame)):
            self._wait_for_admission(frame)
            return None
        return frame

    def _put(self, reply: Reply | None, size: int) -> bool:
        """Queue the reply to a request of `size` bytes; whether it is known already."""
        self.service.counters.requests += 1
        self._turn_requests += 1
        if self._turn_requests >= self._config.turn_requests:
            self._end_turn()
        if reply is None:
            self._give(size)
            return False
        self._outbox.put(reply)
        if isinstance(reply, _WHOLE):
            self._give(size)
            is_known = True
        else:
            if reply.waits_for_others:
                self._give(size)
            else:
                reply.request_bytes = size
                self._unanswered_bytes += size
            is_known = reply.is_known()
            if reply.holds and not is_known:
                self._holds |= BUSY
        if len(self._outbox.queue) > 1 and self._has_too_much():
            self._holds |= UNANSWERED
        return is_known

    def _end_of_requests(self, is_ready: bool) -> None:
        """Send what the requests made ready, and leave the rest to the next turn."""
        if is_ready:
            self._outbox.flush()
            if self._holds & UNANSWERED:
                self._settle()
                if not self._holds:
                    self._end_turn()  # there may be more in the buffer, and no further bytes to bring it up
        if self._turn_bytes >= self._config.turn_bytes:
            self._end_turn()
        if self._holds & CLOSING:
            self._close_if_done()

    def _go_on(self) -> None:
        """Send what is ready, and take what there is room for then."""
        self._guarded(self._outbox.flush)
        self._settle()

    def _settle(self) -> None:
        """After a flush: clear the holds that are over, and take the next requests if none is left."""
        if self._holds & CLOSING:
            self._close_if_done()
            return
        if self._holds & UNANSWERED and not self._has_too_much():
            self._holds &= ~UNANSWERED
        if not self._holds and not self._reading:  # else everything that came was taken
            self._consume()

    def _has_too_much(self) -> bool:
        config = self._config
        return (
            len(self._outbox.queue) >= config.unanswered_requests_max
            or self._unanswered_bytes >= config.unanswered_bytes_max
            or self._outbox.ready_bytes >= config.reply_bytes_max
        )

    def _hold(self, reason: int) -> None:
        self._holds |= reason
        self._steer_reading()

    def _wait_for_admission(self, frame: memoryview) -> None:
        self._holds |= _LARGE
        # Others receive meanwhile: a view of the buffer that all share would be written over.
        self._waiting = frame if self._splitter.owned else memoryview(bytes(frame))
        self._admission = self.service.large.wait(len(frame), self._admit_soon)

    def _admit_soon(self) -> None:
        """By way of the loop, like a grant."""
        self.service.loop.call_soon(self._admit)

    def _admit(self) -> None:
        if self._admission is None:
            return  # the connection was lost in between
        self._admission = None
        self._holds &= ~_LARGE
        self._settle()

    def _give(self, size: int) -> None:
        """A request is dealt with, and what it took is there for others."""
        self.service.budget.give(size)
        if size > self._config.small_request_bytes:
            self.service.large.give(size)

    def _answered(self, reply: Pending) -> None:
        self._unanswered_bytes -= reply.request_bytes
        self._give(reply.request_bytes)

    def _settle_orphans(self) -> None:
        """The client has gone; what it sent counts until it is dealt with."""
        left = []
        for reply in self._orphans:
            if reply.is_known():
                self._give(reply.request_bytes)
            else:
                left.append(reply)
        self._orphans = left

    def _expire(self) -> None:
        now = self.service.loop.time()
        self._deadline, self._timer = _NEVER, None
        for reply in self._outbox.pending():
            deadline = reply.expire(now)
            if deadline is not None:
                self.expire_at(deadline)
        self._go_on()

    def _close_if_done(self) -> None:
        if not self._outbox.idle or self._farewell is not None:
            return
        if self._farewell_s:
            self._farewell = self.service.loop.call_later(self._farewell_s, self._transport.close)
        else:
            self._transport.close()

    def _broken(self, error: Exception) -> None:
        if not isinstance(error, ANSWERABLE):
            self.failed(error)
            return
        logger.warning("reply cut off: %s: %s", self.facts, error)
        self.abort()


def _request_bytes_max(key: int) -> int:
    api = APIS.get(key)
    return _SMALL_BYTES_MAX if api is None else api.request_bytes_max
