"""The TCP shell of the protocol: bytes in, frames in order, frames out.

Frames are given to the protocol one after the other; what holds them back is in `net/framed.py`.

What is sent while frames are taken leaves in one write at the end, unless it is a lot. What the client does
not read is with the transport: over `out_buffer_bytes_max` subscriptions deliver nothing more to it.

A client that breaks the protocol gets the answers to what it asked before, an ERROR with sequence 0 and the
end. That, and a bug of ours, cost this connection and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from tailrace.model import ErrorCode, ProtocolError
from tailrace.model.session import Session
from tailrace.native.config import INTERVALS_TO_DEATH
from tailrace.native.protocol import NativeProtocol
from tailrace.net import FrameSplitter
from tailrace.net.framed import BUSY, CLOSING, UNANSWERED, WRITE, FramedConnection
from tailrace.wire.native import MessageType, read_frame, write_error, write_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.native.service import NativeService

logger = logging.getLogger(__name__)

_MIB = 1 << 20
_PIECE_BYTES = 64 * 1024
_LINGER_S = 1.0
_LINGER_BYTES_MAX = 16 * _MIB
_HEARTBEAT = write_frame(MessageType.HEARTBEAT)


class Connection(FramedConnection):
    """The asyncio protocol of one socket; the outlet of its `NativeProtocol`."""

    __slots__ = (
        "_buffered_bytes",
        "_config",
        "_heard",
        "_heard_at",
        "_is_over",
        "_is_paused",
        "_last_word",
        "_linger",
        "_lingered_bytes",
        "_on_lost",
        "_on_made",
        "_out",
        "_out_bytes",
        "_sent",
        "_sent_at",
        "protocol",
    )

    listener = "native"
    service: NativeService

    def __init__(
        self,
        service: NativeService,
        *,
        on_made: Callable[[Connection], bool],
        on_lost: Callable[[Connection], None],
    ) -> None:
        config = service.config
        splitter = FrameSplitter(
            service.receive_buffer,
            service.budget,
            frame_bytes_max=config.frame_bytes_max,
            small_bytes_max=config.frame_bytes_max,  # one bound for every type
            bytes_max_of=lambda _: config.frame_bytes_max,
            read_bytes=max(config.turn_bytes // 2, 1),
        )
        super().__init__(service, splitter, frame_timeout_s=config.frame_timeout_s)
        self._config = config
        self._on_made = on_made  # whether there is room for one more
        self._on_lost = on_lost
        self.protocol = NativeProtocol(service, self)
        self._out: list[bytes] = []  # sent while frames are taken
        self._out_bytes = 0
        self._is_paused = False  # the client does not read, and over out_buffer_bytes_max wait for it
        self._is_over = False  # nothing can be sent any more
        self._last_word = b""  # before the connection is closed
        self._linger: asyncio.TimerHandle | None = None  # it is closed, but for what the client still sends
        self._lingered_bytes = 0
        self._heard = self._sent = True  # since the last sweep
        self._heard_at = self._sent_at = service.loop.time()
        self._buffered_bytes = 0  # at the last sweep

    def __repr__(self) -> str:
        return f"<Connection {self.peer}, holds {self._holds:#x}, {self.protocol}>"

    @property
    def client(self) -> str:
        """Who it is, for people: by its own name, if it gave one."""
        return self.protocol.name

    @property
    def buffered_bytes(self) -> int:
        """What waits for the client in our memory."""
        return self._transport.get_write_buffer_size()

    # ---- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        most = self._config.out_buffer_bytes_max
        self._transport.set_write_buffer_limits(high=most, low=most // 4)
        self.protocol.identify(Session(host=self.facts.peer_host, listener=self.listener))
        if not self._on_made(self):
            self._is_over = True
            self._holds |= CLOSING
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self.service.receive_buffer if self._linger is not None else self._splitter.get_buffer()

    def buffer_updated(self, count: int) -> None:
        if self._linger is not None:
            self._pass_over(count)
            return
        self._heard = True
        self._splitter.received(count)
        self._turn_bytes += count
        self._consume()

    def eof_received(self) -> bool:
        """The client sends nothing more. What it asked for is answered; then it ends."""
        if self._linger is not None:
            return False
        self._finish(failed=True)
        return not self._is_over

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._heard = True
        self._holds &= ~WRITE
        self._guarded(self.protocol.resume)
        self._settle()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._is_over = True
        self._holds |= CLOSING
        if self._linger is not None:
            self._linger.cancel()
        self._give_back_intake()
        self._guarded(self.protocol.close)
        self._on_lost(self)

    # ---- the listener's side

    def sweep(self, now: float, *, idle_ticks_max: int) -> None:  # noqa: ARG002
        """Notice what did not happen: bytes that did not come, replies that were not known, heartbeats."""
        dead_at = self._heard_at + self.protocol.peer_heartbeat_ms * INTERVALS_TO_DEATH / 1000
        if self._is_over:
            if now >= dead_at:  # closed, and the client does not take the rest
                self.abort()
            return
        if self._is_frame_late(now):
            self._refuse("a frame did not arrive in time")
            return
        if self._heard or self._is_deaf():
            self._heard, self._heard_at = False, now
        elif now >= dead_at:
            self._refuse("silent for too long")
            return
        if self._sent:
            self._sent, self._sent_at = False, now
        elif now - self._sent_at >= self._config.heartbeat_interval_ms / 1000 and not self._is_paused:
            self._write(_HEARTBEAT)
            self._sent, self._sent_at = False, now
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
        facts = self.facts
        return f"{facts.peer_host}:{facts.peer_port}"

    def send(self, data: bytes) -> None:
        if not self._consuming:
            self._write(data)
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= _PIECE_BYTES:
            self._send_all()  # and a client that does not read is noticed before it has asked for more

    def is_open(self) -> bool:
        return not self._is_paused and not self._holds & CLOSING

    def hold(self) -> None:
        self._holds |= BUSY

    def unhold(self) -> None:
        self._holds &= ~BUSY
        self._settle()

    def settled(self) -> None:
        self._settle()

    def give(self, size: int) -> None:
        self.service.budget.give(size)

    # ---- inside: taking

    def _consume(self) -> None:
        """Take frames until something holds us or there are no more; then store and send what came of it."""
        if self._consuming:
            return
        self._consuming = True
        try:
            self._take_frames()
            self.protocol.flush()
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
        self._close_if_done()

    def _take_frames(self) -> None:
        try:
            self._take_each()
        except ProtocolError as error:
            self.service.counters.protocol_errors += 1
            logger.debug("protocol broken: %s: %s", self.client, error)
            self._last_word = write_error(0, code=ErrorCode.INVALID_REQUEST, message=str(error))
            self._holds |= CLOSING
            self.protocol.finish(failed=True)

    def _take_each(self) -> None:
        splitter, protocol, config = self._splitter, self.protocol, self._config
        taken = 0
        try:
            while not self._holds:
                view = splitter.next_frame()
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

    def _take(self, view: memoryview) -> None:
        size = len(view)
        try:
            frame = read_frame(view)
        except ProtocolError:
            self.give(size)
            raise
        self.protocol.take(frame, size)

    def _steer_reading(self) -> None:
        if self._linger is not None or self._is_over:
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
        if self._is_over or self._linger is not None:
            return
        self._sent = True
        self._transport.write(data)
        if self._is_paused and not self._holds & WRITE:
            config = self._config
            if self.buffered_bytes >= config.out_buffer_bytes_max + config.reply_bytes_max:
                self._holds |= WRITE
                if not self._consuming:
                    self._steer_reading()

    def _is_deaf(self) -> bool:
        """Whether we could not have heard the client, as its socket is not read, and it is not to blame."""
        before, self._buffered_bytes = self._buffered_bytes, self.buffered_bytes
        if self._reading:
            return False
        return not self._holds & WRITE or self._buffered_bytes < before

    def _close_if_done(self) -> None:
        """Close, once nothing is under way on a connection that takes nothing more."""
        if not self._holds & CLOSING or self._is_over or self._linger is not None or self._consuming:
            return
        if not self.protocol.is_done:
            return
        if self._last_word:
            self._say_last_word()
        else:
            self._is_over = True
            self._transport.close()

    def _finish(self, *, failed: bool) -> None:
        """Take nothing more, and close when there is nothing left to answer."""
        if self._is_over:
            return
        self._holds |= CLOSING
        self._guarded(lambda: self.protocol.finish(failed=failed))
        self._steer_reading()
        self._close_if_done()

    def _say_last_word(self) -> None:
        """Close, but pass over what is still coming: a socket closed on unread bytes loses what we wrote."""
        self._write(self._last_word)
        self._linger = self.service.loop.call_later(_LINGER_S, self.abort)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._splitter.keep()
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _pass_over(self, count: int) -> None:
        self._lingered_bytes += count
        if self._lingered_bytes > _LINGER_BYTES_MAX:
            self.abort()
