"""The WebSocket shell of the protocol: messages in, frames in order, messages out.

    binary message    one native frame or several, whole ones, as on a TCP socket
    text message      one frame as a JSON object (`wire.native.json_frame`)

A client is spoken to in the form in which it spoke last: text, until it sends its first binary message.

One task receives and takes, another sends. Between two messages, and between two frames of one, the first
waits as long as something holds the connection: the same as of a TCP socket (`connection`).

    the protocol is busy · the node has no bytes left · the client does not read · too much is unanswered

A message is taken whole from the native listener's share of the request bytes before its first frame is, and
given back frame by frame as they are answered. While the shell waits it holds one message, and the socket is
not read. What is sent goes through one outbox: over
`out_buffer_bytes_max` subscriptions deliver nothing more, and with `reply_bytes_max` on top no request is
taken. A client that takes nothing out of it for three heartbeat intervals is given up. Heartbeats are the
WebSocket's own pings, which the server of the socket sees to.

The socket belongs to the HTTP listener, and is known here by what it does (`MessageSocket`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tailrace.model import ErrorCode, ProtocolError
from tailrace.native.config import INTERVALS_TO_DEATH
from tailrace.native.protocol import NativeProtocol
from tailrace.wire.native import FRAME_BYTES_MAX, PROPERTIES_BYTES_MAX, Frame, FrameReader, write_error
from tailrace.wire.native.json_frame import BadJsonFrame, read_json_frame, write_json_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailrace.model.session import Session
    from tailrace.native.service import NativeService

logger = logging.getLogger(__name__)

_GOING_AWAY = 1001
_PROTOCOL = 1002
_MISTAKE = 1011
_TOO_SLOW = 1013
_PIECE_BYTES = 64 * 1024
_SWEEP_S_MAX = 5.0


class MessageSocket(Protocol):
    """A WebSocket that was accepted."""

    @property
    def peer(self) -> str:
        """Who is at the other end, for people."""

    async def receive(self) -> bytes | str | None:
        """The next message, of a bounded size; None once the client has left."""

    async def send(self, message: bytes | str) -> None:
        """Waits while the client does not read; ConnectionError if it has left."""

    async def close(self, code: int, reason: str) -> None:
        """End it with a code of RFC 6455 section 7.4."""


class _End(NamedTuple):
    """How the connection comes to its end."""

    code: int
    reason: str


class WebSocketShell:
    """One WebSocket; its protocol's outlet."""

    def __init__(self, service: NativeService, socket: MessageSocket, session: Session) -> None:
        self._service = service
        self._config = service.config
        self._socket = socket
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._has_output = asyncio.Event()
        self._moved = asyncio.Event()  # something changed that somebody may wait for
        self._is_busy = False
        self._is_paused = False  # the client does not read, and over out_buffer_bytes_max wait for it
        self._speaks_text = True
        self._flush_is_due = False
        self._taken = 0  # requests since the loop had its turn
        self._stopped = asyncio.Event()
        self._last_word = b""  # behind the replies under way
        self._end: _End | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self.protocol = NativeProtocol(service, self)
        self.protocol.identify(session)

    def __repr__(self) -> str:
        return f"<WebSocketShell {self.peer}, {self._outbox_bytes} bytes to send, {self.protocol}>"

    @property
    def buffered_bytes(self) -> int:
        """What waits for the client in our memory, beside one message that is being sent."""
        return self._outbox_bytes

    async def serve(self) -> None:
        """Take requests until the client leaves, breaks the protocol, or the node stops."""
        self._sweep()
        sending = asyncio.create_task(self._send_all(), name="native WebSocket out")
        taking = asyncio.create_task(self._take_all(), name="native WebSocket in")
        stopping = asyncio.create_task(self._stopped.wait(), name="native WebSocket end")
        try:
            await asyncio.wait({sending, taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            if self._end is not None and not sending.done():
                await self._finish(sending, self._end)
        finally:
            if self._sweeper is not None:
                self._sweeper.cancel()
            for task in (sending, taking, stopping):
                task.cancel()
            await asyncio.gather(sending, taking, stopping, return_exceptions=True)
            self._guarded(self.protocol.close)
        if self._end is not None:
            await self._socket.close(self._end.code, self._end.reason)

    def close_soon(self) -> None:
        """Take nothing more; close when the replies under way have left."""
        self._stop(_GOING_AWAY, "the node is stopping")

    # ---- the protocol's side

    @property
    def peer(self) -> str:
        return self._socket.peer

    def send(self, data: bytes) -> None:
        if not data:
            return
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        if self._outbox_bytes >= self._config.out_buffer_bytes_max:
            self._is_paused = True
        self._has_output.set()

    def is_open(self) -> bool:
        return not self._is_paused and self._end is None

    def hold(self) -> None:
        self._is_busy = True

    def unhold(self) -> None:
        self._is_busy = False
        self._moved.set()

    def settled(self) -> None:
        self._moved.set()

    def give(self, size: int) -> None:
        self._service.budget.give(size)

    def failed(self, error: Exception) -> None:
        self._service.counters.failures += 1
        logger.error("request failed: %s: %s", self.protocol.name, error, exc_info=error)
        self._outbox.clear()
        self._outbox_bytes = 0
        self._stop(_MISTAKE, "a mistake of the broker, whose log has the details")

    # ---- inside: taking

    async def _take_all(self) -> None:
        """Messages, one after the other, until there are no more."""
        try:
            while self._end is None and (message := await self._socket.receive()) is not None:
                await self._take_message(message)
        except ProtocolError as error:
            self._service.counters.protocol_errors += 1
            logger.debug("protocol broken: %s: %s", self.protocol.name, error)
            self._last_word = write_error(0, code=ErrorCode.INVALID_REQUEST, message=str(error))
            self._stop(_PROTOCOL, str(error))
        except Exception as error:
            self.failed(error)

    async def _take_message(self, message: bytes | str) -> None:
        self._speaks_text = isinstance(message, str)
        budget, left = self._service.budget, len(message)
        await budget.take(left)
        try:
            for frame, size in self._frames_of(message):
                await self._wait_free()
                self._service.counters.requests += 1
                self._taken += 1
                left -= size  # it is the protocol's now
                self.protocol.take(frame, size)
                self._flush_soon()
                if self._taken >= self._config.turn_requests:
                    await asyncio.sleep(0)
        finally:
            if left:  # of a message that is broken
                budget.give(left)

    def _frames_of(self, message: bytes | str) -> Iterator[tuple[Frame, int]]:
        """The frames of a message with their sizes; ProtocolError where it stops making sense."""
        if isinstance(message, str):
            try:
                yield read_json_frame(message), len(message)
            except BadJsonFrame as error:
                self.protocol.refuse(error.sequence, error)
            return
        reader = FrameReader(self._config.frame_bytes_max, properties_bytes_max=PROPERTIES_BYTES_MAX)
        reader.feed(message)
        before = len(message)
        while (frame := reader.next_frame()) is not None:
            yield frame, before - reader.pending_bytes
            before = reader.pending_bytes
        if before or not message:
            raise ProtocolError("a binary message holds whole frames, at least one")

    def _flush_soon(self) -> None:
        """Have what was published stored together, when everything that is here was taken."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._service.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        self._taken = 0
        self._guarded(self.protocol.flush)

    async def _wait_free(self) -> None:
        """Wait until the next request may be taken, or none will be any more."""
        while self._is_held():
            await self._wait_moved()  # the loop turns, and what was taken is stored

    def _is_held(self) -> bool:
        config, protocol = self._config, self.protocol
        return (
            self._is_busy
            or protocol.unanswered >= config.unanswered_requests_max
            or protocol.unanswered_bytes >= config.unanswered_bytes_max
            or self._outbox_bytes >= config.out_buffer_bytes_max + config.reply_bytes_max
        )

    # ---- inside: sending

    async def _send_all(self) -> None:
        """Empty the outbox, for ever; ends when the client is gone, or does not read."""
        patience_s = self._config.heartbeat_interval_ms * INTERVALS_TO_DEATH / 1000
        try:
            while True:
                await self._has_output.wait()
                size, messages = self._next_messages()
                for message in messages:
                    async with asyncio.timeout(patience_s):
                        await self._socket.send(message)
                self._sent(size)
        except TimeoutError:
            logger.debug("connection closed: %s: does not read", self.protocol.name)
            self._end = _End(_TOO_SLOW, "nothing was read for too long")
        except ConnectionError:
            self._end = None  # there is nobody to tell
        except Exception as error:
            self.failed(error)
        finally:
            self._moved.set()

    def _next_messages(self) -> tuple[int, list[bytes] | list[str]]:
        """What is sent next, in the client's own form, and how much of the outbox it is."""
        pieces: list[bytes] = []
        size = 0
        while self._outbox and size < _PIECE_BYTES:
            pieces.append(self._outbox.popleft())
            size += len(pieces[-1])
        data = b"".join(pieces)
        if not self._outbox:
            self._has_output.clear()
        if not self._speaks_text:
            return size, [data] if data else []  # a mistake may have emptied the outbox
        reader = FrameReader(FRAME_BYTES_MAX)
        reader.feed(data)
        texts: list[str] = []
        while (frame := reader.next_frame()) is not None:
            texts.append(write_json_frame(frame))
        return size, texts

    def _sent(self, size: int) -> None:
        self._outbox_bytes = max(self._outbox_bytes - size, 0)
        if self._is_paused and self._outbox_bytes <= self._config.out_buffer_bytes_max // 4:
            self._is_paused = False
            self._guarded(self.protocol.resume)
        self._moved.set()

    # ---- inside: ending

    def _stop(self, code: int, reason: str) -> None:
        """Take nothing more, and end when there is nothing left to answer."""
        if self._end is None:
            self._end = _End(code, reason)
            self._stopped.set()

    async def _finish(self, sending: asyncio.Task[None], end: _End) -> None:
        """Nothing more is taken: have what is under way answered and sent, for a while."""
        if end.code == _MISTAKE:
            return
        self._guarded(lambda: self.protocol.finish(failed=end.code != _GOING_AWAY))
        deadline = asyncio.timeout(self._config.close_grace_s)
        try:
            async with deadline:
                while not self.protocol.is_done and not sending.done():
                    await self._wait_moved()
                self.send(self._last_word)
                while self._outbox_bytes and not sending.done():
                    await self._wait_moved()
        except TimeoutError:
            if not deadline.expired():
                raise

    async def _wait_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self.failed(error)

    def _sweep(self) -> None:
        """Answer, every now and then, what was not durable in time."""
        loop = self._service.loop
        self._guarded(lambda: self.protocol.expire(loop.time()))
        wait_s = min(self._config.request_timeout_s / 4, _SWEEP_S_MAX)
        self._sweeper = loop.call_later(wait_s, self._sweep)
