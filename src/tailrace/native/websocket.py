"""A native client that came by WebSocket: the connection of every client, with what is different.

- What arrives are messages of whole frames (`MessageFrames`). A message is taken from the native listener's
  share of the request bytes before its first frame is taken, and given back frame by frame. While the
  connection is held it keeps one message at most, and the socket is not read.
- Heartbeats are the WebSocket's own pings, which the server of the socket sees to. A client need not say
  anything, but it must read: one that takes nothing of what waits for it, for three heartbeat intervals, is
  given up.
- The client is told why it ends by a close code (RFC 6455 section 7.4).
- Publishes of messages that came together are stored together, when all of them were taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model import BrokerError, ProtocolError
from tailrace.native.connection import Connection
from tailrace.native.websocket_transport import MessageSocket, WebSocketTransport
from tailrace.wire.native import FRAME_BYTES_MIN, LENGTH_BYTES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tailrace.model.session import Session
    from tailrace.native.service import NativeService
    from tailrace.net import RequestBudget
    from tailrace.net.budget import Arrival

_GOING_AWAY = 1001
_PROTOCOL = 1002
_MISTAKE = 1011
_TOO_SLOW = 1013


class WebSocketConnection(Connection):
    """One client by WebSocket, for the session that the HTTP listener knows."""

    __slots__ = ("_flush_is_due", "_grace", "_session", "_web")

    _splitter: MessageFrames

    def __init__(
        self,
        service: NativeService,
        socket: MessageSocket,
        session: Session,
        *,
        on_made: Callable[[Connection], bool],
        on_lost: Callable[[Connection], None],
    ) -> None:
        frames = MessageFrames(service.budget, frame_bytes_max=service.config.frame_bytes_max)
        super().__init__(service, frames, on_made=on_made, on_lost=on_lost)
        self._transport = self._web = WebSocketTransport(socket)
        self._session = session
        self._flush = self._flush_soon
        self._flush_is_due = False
        self._grace: asyncio.TimerHandle | None = None  # what is under way may take so long at the end

    async def serve(self) -> None:
        """Take requests until the client leaves, breaks the protocol, or the node stops."""
        self._open(self._web, self._session)
        try:
            await self._web.run(self)
        finally:
            self.connection_lost(None)
        await self._web.tell_end()

    # ---- the transport's side

    def message_received(self, data: bytes) -> None:
        self._splitter.put(data)
        self._turn_bytes += len(data)
        self._consume()

    def message_refused(self, sequence: int, error: BrokerError) -> None:
        self.protocol.refuse(sequence, error)

    def message_broken(self, error: ProtocolError) -> None:
        self._break(error)
        self._steer_reading()
        self._close_if_done()

    def message_taken(self) -> None:
        self._heard = True

    def connection_lost(self, error: Exception | None) -> None:
        if self._grace is not None:
            self._grace.cancel()
        super().connection_lost(error)

    # ---- how it ends

    def close_soon(self) -> None:
        self._end_with(_GOING_AWAY, "the node is stopping")
        super().close_soon()

    def abort(self) -> None:
        self._web.end_with(_GOING_AWAY, "the node is stopping")  # unless there was another reason before
        super().abort()

    def failed(self, error: Exception) -> None:
        self._web.end_with(_MISTAKE, "a mistake of the broker, whose log has the details")
        super().failed(error)

    def _refuse(self, reason: str) -> None:
        self._web.end_with(_TOO_SLOW, "nothing was read for too long")
        super()._refuse(reason)

    def _break(self, error: ProtocolError) -> None:
        self._end_with(_PROTOCOL, str(error))
        super()._break(error)

    def _end_with(self, code: int, reason: str) -> None:
        """What is under way is answered first, for a while."""
        self._web.end_with(code, reason)
        if self._grace is None:
            self._grace = self.service.loop.call_later(self._config.close_grace_s, self.abort)

    # ---- of the transport's kind

    def _is_excused(self) -> bool:
        """Whether nothing waits for the client."""
        return not self.buffered_bytes

    def _flush_soon(self) -> None:
        """Have what was published stored together, when every message that is here was taken."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self.service.loop.call_soon(self._flush_all)

    def _flush_all(self) -> None:
        self._flush_is_due = False
        self._guarded(self.protocol.flush)


class MessageFrames:
    """The frames of one message after the other (`net.framed.FrameSource`)."""

    __slots__ = (
        "_at",
        "_budget",
        "_frame_bytes_max",
        "_granted",
        "_held",
        "_is_counted",
        "_message",
        "is_growing",
        "wanted",
    )

    # Messages arrive whole; the HTTP listener counts what arrives, and gives it its time.
    frame_bytes = frame_filled = frame_held = 0

    def __init__(self, budget: RequestBudget, *, frame_bytes_max: int) -> None:
        self._budget = budget
        self._frame_bytes_max = frame_bytes_max
        self._message: memoryview | None = None
        self._at = 0
        self._is_counted = False  # whether the message was taken from the budget
        self._held = 0  # bytes of it that were not handed out
        self._granted = 0  # bytes of the budget that were waited for and are there
        self.wanted = 0
        self.is_growing = False

    @property
    def has_rest(self) -> bool:
        return self._message is not None

    def put(self, message: bytes) -> None:
        """A message arrived; the one before it was handed out."""
        assert self._message is None, "a message was received while another one waits"
        self._message, self._at, self._is_counted = memoryview(message), 0, False

    def next_frame(self, arrival: Arrival) -> memoryview | None:  # noqa: ARG002
        """The next frame of the message; ProtocolError where it does not hold whole frames."""
        message = self._message
        if message is None or not (self._is_counted or self._count(len(message))):
            return None
        begin = self._at + LENGTH_BYTES
        size = int.from_bytes(message[self._at : begin], "big")
        self._check(size, left=len(message) - begin)
        self._at = begin + size
        self._held -= LENGTH_BYTES + size
        self._budget.give(LENGTH_BYTES)
        if self._at == len(message):
            self._message = None
        return message[begin : self._at]

    def keep(self) -> None:
        """A message has its own memory."""

    def grant(self) -> None:
        self._granted, self.wanted = self.wanted, 0

    def abandon(self) -> int:
        held = self._granted + self._held
        self._granted = self._held = 0
        self._message = None
        return held

    def _count(self, size: int) -> bool:
        """Take the whole message from the budget; False if its bytes are `wanted`."""
        if self._granted:
            self._granted = 0
        elif not self._budget.take_nowait(size):
            self.wanted = size
            return False
        self._is_counted, self._held = True, size
        return True

    def _check(self, size: int, *, left: int) -> None:
        problem = ""
        if left < 0:
            problem = "a binary message holds whole frames, at least one"
        elif not FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
            problem = f"a frame of {size} bytes is not between {FRAME_BYTES_MIN} and {self._frame_bytes_max}"
        elif size > left:
            problem = "a binary message holds whole frames, at least one"
        if problem:
            held = self.abandon()
            if held:
                self._budget.give(held)
            raise ProtocolError(problem)
