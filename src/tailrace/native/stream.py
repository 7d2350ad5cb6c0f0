"""A native client on a stream of bytes: TCP, a Unix socket, TLS.

The client shows that it lives by sending something, at least a HEARTBEAT, and so do we
(docs/protocol/native.md, section 7).

A socket that is closed with unread bytes in it resets the connection, and the client loses what we wrote
last. So a client that has sent more than we took is told that nothing more will come, and what it sends is
read and dropped until a moment after our last byte has left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from tailrace.model.session import Session
from tailrace.native.connection import Connection
from tailrace.native.login import NativeLogin
from tailrace.net import FrameSplitter, Transport, half_close, has_unread
from tailrace.net.framed import WRITE
from tailrace.wire.native import MessageType, write_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.native.service import NativeService

_LINGER_S = 1.0
_LINGER_BYTES_MAX = 16 << 20
_HEARTBEAT = write_frame(MessageType.HEARTBEAT)


class StreamConnection(Connection):
    """The asyncio protocol of one socket."""

    __slots__ = ("_buffered_bytes", "_can_half_close", "_linger", "_lingered_bytes", "_sent_at")

    _splitter: FrameSplitter

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
        super().__init__(service, splitter, on_made=on_made, on_lost=on_lost)
        self._linger: asyncio.TimerHandle | None = None  # it is closed, but for what the client still sends
        self._lingered_bytes = 0
        self._can_half_close = True
        self._sent_at = self._heard_at
        self._buffered_bytes = 0  # at the last sweep

    # ---- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        session = self.service.session_of(self._transport, self.facts)
        self._open(self._transport, session or Session(listener=self.service.name))
        if session is None:
            self.abort()
        elif self.service.logins is not None and not self._is_over:
            self.protocol.login = NativeLogin(self, self.service.logins)
            if not self.protocol.login.begin():
                self.abort()

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
        self._finish(failed=True)
        return not self._is_over

    def connection_lost(self, error: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        if self.protocol.login is not None:
            self.protocol.login.end()
        super().connection_lost(error)

    # ---- for its login

    def limit_frames(self, bytes_max: int) -> None:
        """Refuse larger frames, until it has logged in."""
        self._splitter.frame_bytes_max = bytes_max

    def log_in(self, session: Session) -> None:
        """Requests from now on are of this session."""
        self.protocol.identify(session)
        self._splitter.frame_bytes_max = self._config.frame_bytes_max

    def login_late(self) -> None:
        """It has not logged in in time."""
        self._refuse("it did not log in in time")

    def login_over(self) -> None:
        """The token by which it logged in has ended."""
        self._refuse("its token has ended. Connect again with another one")

    # ---- of the transport's kind

    def _is_excused(self) -> bool:
        """Whether we could not have heard the client, as its socket is not read, and it is not to blame."""
        before, self._buffered_bytes = self._buffered_bytes, self.buffered_bytes
        if self._reading:
            return False
        return not self._holds & WRITE or self._buffered_bytes < before

    def _beat(self, now: float) -> None:
        if self._sent:
            self._sent, self._sent_at = False, now
        elif now - self._sent_at >= self._config.heartbeat_interval_ms / 1000 and not self._is_paused:
            self._write(_HEARTBEAT)
            self._sent, self._sent_at = False, now

    def _close(self) -> None:
        if not self._last_word and not has_unread(self._transport):
            self._transport.close()
            return
        self._linger = self.service.loop.call_later(_LINGER_S, self._end_linger)
        self._can_half_close = half_close(self._transport)
        self._splitter.keep()
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _end_linger(self) -> None:
        if self.buffered_bytes:  # the client still reads; the sweep gives up one that does not
            self._linger = self.service.loop.call_later(_LINGER_S, self._end_linger)
        elif self._can_half_close:
            self.abort()
        else:  # TLS: what it has encrypted may not have left, and is not counted
            self._transport.close()

    def _pass_over(self, count: int) -> None:
        self._lingered_bytes += count
        if self._lingered_bytes > _LINGER_BYTES_MAX:
            self.abort()
