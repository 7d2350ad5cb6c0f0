"""One client of the native listener, whatever its transport: frames in order in, frames out.

Frames are given to the protocol one after the other; what holds them back is in `net/framed.py`. How bytes
become frames, how a client shows that it lives, and how it is told of its end differ:

    StreamConnection       TCP, Unix socket, TLS: a stream of bytes                    stream.py
    WebSocketConnection    messages of whole frames, binary or as JSON                 websocket.py

A client that has used up a quota is not read, and delivered nothing, for the time that the quota says.

What is sent while frames are taken leaves in one write at the end, unless it is a lot. What the client does
not read is with the transport: over `out_buffer_bytes_max` subscriptions deliver nothing more to it. From
WATERMARK_BYTES on it counts as unread, of which the node has a bound (`net/unread.py`).

A client that breaks the protocol gets the answers to what it asked before, an ERROR with sequence 0 and the
end. That, and a bug of ours, cost this connection and nothing else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tailrace.model import ErrorCode, ProtocolError
from tailrace.native.config import INTERVALS_TO_DEATH
from tailrace.native.protocol import NativeProtocol
from tailrace.native.publishing import PUBLISH, PUBLISH_BATCH
from tailrace.net.framed import BUSY, CLOSING, THROTTLE, UNANSWERED, WRITE, FramedConnection
from tailrace.net.stranger import SpeaksHttp, SpeaksTls, http_refusal, kafka_refusal
from tailrace.net.unread import WATERMARK_BYTES
from tailrace.wire.native import read_frame, write_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.model.session import Session
    from tailrace.native.service import NativeService
    from tailrace.net import Transport
    from tailrace.net.framed import FrameSource
    from tailrace.net.metering import Meter
    from tailrace.wire.native import Frame

logger = logging.getLogger(__name__)

_PIECE_BYTES = 64 * 1024
_DELIVERS_NOTHING = CLOSING | THROTTLE
_PUBLISHING = frozenset({PUBLISH, PUBLISH_BATCH})


class Connection(FramedConnection):
    """The protocol object of one transport; the outlet of its `NativeProtocol`."""

    __slots__ = (
        "_config",
        "_flush",
        "_heard",
        "_heard_at",
        "_is_behind",
        "_is_over",
        "_is_paused",
        "_last_word",
        "_on_lost",
        "_on_made",
        "_out",
        "_out_bytes",
        "_sent",
        "_spoke",
        "protocol",
    )

    listener = "native"
    service: NativeService

    def __init__(
        self,
        service: NativeService,
        splitter: FrameSource,
        *,
        on_made: Callable[[Connection], bool],
        on_lost: Callable[[Connection], None],
    ) -> None:
        config = service.config
        super().__init__(service, splitter, frame_timeout_s=config.frame_timeout_s)
        self._config = config
        self._on_made = on_made  # whether there is room for one more
        self._on_lost = on_lost
        self.protocol = NativeProtocol(service, self)
        self._flush = self.protocol.flush  # called when everything that arrived together was taken
        self._out: list[bytes] = []  # sent while frames are taken
        self._out_bytes = 0
        self._is_behind = False  # the client does not read as fast as we write
        self._is_paused = False  # the client does not read, and over out_buffer_bytes_max wait for it
        self._is_over = False  # nothing can be sent any more
        self._last_word = b""  # before the connection is closed
        self._heard = self._sent = True  # since the last sweep
        self._spoke = False  # whether the client ever sent a whole frame
        self._heard_at = service.loop.time()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.peer}, holds {self._holds:#x}, {self.protocol}>"

    @property
    def client(self) -> str:
        """Who it is, for people: by its own name, if it gave one."""
        return self.protocol.name

    @property
    def session(self) -> Session:
        return self.protocol.access.session

    @property
    def buffered_bytes(self) -> int:
        """What waits for the client in our memory."""
        return self._transport.get_write_buffer_size()

    # ---- the transport's side

    def _open(self, transport: Transport, session: Session) -> None:
        """Begin, or end at once if there is no room; subclasses call it when the connection is made."""
        self._transport = transport
        most = min(self._config.out_buffer_bytes_max, WATERMARK_BYTES)
        transport.set_write_buffer_limits(high=most, low=most // 4)
        self.protocol.identify(session)
        if not self._on_made(self):
            self.abort()

    def pause_writing(self) -> None:
        self._is_behind = True
        self._note_unread()

    def resume_writing(self) -> None:
        self._is_behind = self._is_paused = False
        self.service.budget.unread.forget(self)
        self._heard = True
        self._holds &= ~WRITE
        self._guarded(self.protocol.resume)
        self._settle()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._is_over = True
        self._holds |= CLOSING
        self.service.budget.unread.forget(self)
        self._give_back_intake()
        self._guarded(self.protocol.close)
        self._on_lost(self)

    # ---- the listener's side

    def sweep(self, now: float, *, idle_ticks_max: int) -> None:  # noqa: ARG002
        """Notice what did not happen: bytes that did not come or go, replies that were not known."""
        dead_at = self._heard_at + self.protocol.peer_heartbeat_ms * INTERVALS_TO_DEATH / 1000
        if self._is_over:
            if now >= dead_at:  # closed, and the client does not take the rest
                self.abort()
            return
        if self._is_frame_late(now):
            self._refuse("a frame did not arrive in time")
            return
        if self._heard or self._is_excused():
            self._heard, self._heard_at = False, now
        elif now >= dead_at:
            self._refuse("silent for too long")
            return
        self._beat(now)
        self._guarded(lambda: self.protocol.expire(now))

    def close_soon(self) -> None:
        """Take nothing more; close when the replies under way have left."""
        self._finish(failed=False)

    def abort(self) -> None:
        """Close now."""
        self._is_over = True
        super().abort()

    # ---- the protocol's side

    @property
    def peer(self) -> str:
        return str(self.facts)

    def send(self, data: bytes) -> None:
        if self.service.metering is not None:
            self._charge_sent(len(data))
        if not self._consuming:
            self._write(data)
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= _PIECE_BYTES:
            self._send_all()  # and a client that does not read is noticed before it has asked for more

    def is_open(self) -> bool:
        return not self._is_paused and not self._holds & _DELIVERS_NOTHING

    def hold(self) -> None:
        self._holds |= BUSY

    def unhold(self) -> None:
        self._holds &= ~BUSY
        self._settle()

    def settled(self) -> None:
        self._settle()

    def end_soon(self) -> None:
        self._finish(failed=True)

    def give(self, size: int) -> None:
        self.service.budget.give(size)

    # ---- of the transport's kind

    def _is_excused(self) -> bool:
        """Whether the client owes us no sign of life since the last sweep."""
        raise NotImplementedError

    def _beat(self, now: float) -> None:
        """Show the client that we live, if nothing else did; called at every sweep."""

    def _close(self) -> None:
        """Everything was written: close."""
        self._transport.close()

    # ---- inside: taking

    def _consume(self) -> None:
        """Take frames until something holds us or there are no more; then store and send what came of it."""
        if self._consuming:
            return
        self._consuming = True
        try:
            self._take_frames()
            self._flush()
        except Exception as error:
            self.failed(error)
        finally:
            self._consuming = False
        self._send_all()
        if self._turn_bytes >= self._config.turn_bytes:
            self._end_turn()
        if self._holds & UNANSWERED:
            self._end_turn()  # some may be answered by now, and nobody else would tell
        self._steer_reading()
        if self._holds & CLOSING:
            self._close_if_done()

    def _take_frames(self) -> None:
        try:
            self._take_each()
        except ProtocolError as error:
            self._break(error)

    def _break(self, error: ProtocolError) -> None:
        """The client broke the protocol: answer what it asked before, then tell it why, and close."""
        self.service.counters.protocol_errors += 1
        logger.debug("protocol broken: %s: %s", self.client, error)
        if isinstance(error, SpeaksHttp) and not self._spoke:
            self._last_word = http_refusal(self.facts, self.service.neighbours)
        elif isinstance(error, SpeaksTls):
            self.service.tell_of(self.facts, error)
        else:
            self._last_word = write_error(0, code=ErrorCode.INVALID_REQUEST, message=str(error))
        self._holds |= CLOSING
        self.protocol.finish(failed=True)

    def _take_each(self) -> None:
        splitter, protocol, config = self._splitter, self.protocol, self._config
        taken = 0
        try:
            while not self._holds:
                view = splitter.next_frame(self)
                if view is None:
                    if splitter.wanted:
                        self._wait_for_budget()
                    return
                taken += 1
                self._take(view)
                if (
                    protocol.unanswered >= config.unanswered_requests_max
                    or protocol.unanswered_bytes >= config.unanswered_bytes_max
                ):
                    self._holds |= UNANSWERED
                self._turn_requests += 1
                if self._turn_requests >= config.turn_requests:
                    self._end_turn()
        finally:
            self.service.counters.requests += taken
            self._spoke = self._spoke or taken > 0

    def _take(self, view: memoryview) -> None:
        size = len(view)
        try:
            frame = read_frame(view)
        except ProtocolError as error:
            self.give(size)
            raise kafka_refusal(view, self.service.neighbours) or error from None
        if self.service.metering is None:
            self.protocol.take(frame, size)
        else:
            self._take_metered(frame, size)

    def _take_metered(self, frame: Frame, size: int) -> None:
        """Serve and charge one request: publishing by its size, each by the time that it took."""
        kind, meter = frame.type, self._meter()
        if meter is None:
            self.protocol.take(frame, size)
            return
        monotonic = self.service.gate.clock.monotonic
        started = monotonic()
        self.protocol.take(frame, size)
        wait_s = meter.served(monotonic() - started)
        if kind in _PUBLISHING:
            wait_s = max(wait_s, meter.produced(size))
        if wait_s:
            self.throttle(wait_s)

    def _charge_sent(self, size: int) -> None:
        meter = self._meter()
        if meter is not None and (wait_s := meter.fetched(size)):
            self.throttle(wait_s)

    def _meter(self) -> Meter | None:
        """What this client is charged to; nothing before it has logged in."""
        metering, protocol = self.service.metering, self.protocol
        if metering is None or (protocol.login is not None and protocol.login.is_pending):
            return None
        return metering.meter(self.session.principal.name, protocol.client_id)

    def _unthrottled(self) -> None:
        self.protocol.resume()
        self._settle()

    def _steer_reading(self) -> None:
        if self._is_over:
            self._splitter.keep()
        else:
            super()._steer_reading()

    def _settle(self) -> None:
        """Something is over: close, or take the next frames if nothing holds us any more."""
        if self._consuming:
            return
        if self._holds & CLOSING:
            self._close_if_done()
            return
        self._settle_unanswered()
        if not self._holds and not self._reading:  # else everything that came was taken
            self._consume()

    def _settle_unanswered(self) -> None:
        """Go on when a quarter of what is allowed was answered: a few at a time would make small batches."""
        if not self._holds & UNANSWERED:
            return
        config, protocol = self._config, self.protocol
        if (
            protocol.unanswered <= config.unanswered_requests_max * 3 // 4
            and protocol.unanswered_bytes <= config.unanswered_bytes_max * 3 // 4
        ):
            self._holds &= ~UNANSWERED

    # ---- inside: sending and closing

    def _send_all(self) -> None:
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            self._write(out[0] if len(out) == 1 else b"".join(out))

    def _write(self, data: bytes) -> None:
        if self._is_over:
            return
        self._sent = True
        self._transport.write(data)
        if self._is_behind:
            self._note_unread()

    def _note_unread(self) -> None:
        """The client does not keep up: count what waits, and stop what would add to it."""
        config, unread = self._config, self.buffered_bytes
        self.service.budget.unread.note(self, unread)
        if unread >= config.out_buffer_bytes_max:
            self._is_paused = True
        if not self._holds & WRITE and unread >= config.out_buffer_bytes_max + config.reply_bytes_max:
            self._holds |= WRITE
            if not self._consuming:
                self._steer_reading()

    def _close_if_done(self) -> None:
        """Close, once nothing is under way on a connection that takes nothing more."""
        if not self._holds & CLOSING or self._is_over or self._consuming:
            return
        if not self.protocol.is_done:
            return
        if self._last_word:
            self._write(self._last_word)
        self._is_over = True
        self._close()

    def _finish(self, *, failed: bool) -> None:
        """Take nothing more, and close when there is nothing left to answer."""
        if self._is_over:
            return
        self._holds |= CLOSING
        self._guarded(lambda: self.protocol.finish(failed=failed))
        self._steer_reading()
        self._close_if_done()
