"""A WebSocket as a transport (`net.Transport`) of native frames.

    binary message    one native frame or several, whole ones, as on a TCP socket
    text message      one frame as a JSON object (`wire.native.json_frame`)

Texts are translated here, in both directions, so that the connection sees binary frames only. A client is
spoken to in the form in which it spoke last: text, until it sends its first binary message.

One task receives and hands over, another sends what was written. While reading is paused no message is
received, and the back-pressure of the WebSocket's server reaches the client. The socket belongs to the HTTP
listener, and is known here by what it does (`MessageSocket`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tailrace.model import BrokerError, ProtocolError
from tailrace.wire.native import FRAME_BYTES_MAX, FrameReader, write_frame
from tailrace.wire.native.json_frame import BadJsonFrame, read_json_frame, write_json_frame

if TYPE_CHECKING:
    from tailrace.net import ConnectionFacts

_PIECE_BYTES = 64 * 1024


class MessageSocket(Protocol):
    """A WebSocket that was accepted."""

    @property
    def facts(self) -> ConnectionFacts:
        """Who talks to whom."""

    async def receive(self) -> bytes | str | None:
        """The next message, of a bounded size; None once the client has left."""

    async def send(self, message: bytes | str) -> None:
        """Waits while the client does not read; ConnectionError if it has left."""

    async def close(self, code: int, reason: str) -> None:
        """End it with a code of RFC 6455 section 7.4."""


class MessageConnection(Protocol):
    """What the transport tells."""

    def message_received(self, data: bytes) -> None:
        """A binary message, or a text as the frame that it is."""

    def message_refused(self, sequence: int, error: BrokerError) -> None:
        """A text that is no frame, and the sequence to answer with."""

    def message_broken(self, error: ProtocolError) -> None:
        """A text that cannot even be answered."""

    def message_taken(self) -> None:
        """The client took a message of ours."""

    def pause_writing(self) -> None:
        """The client does not read."""

    def resume_writing(self) -> None:
        """The client reads again."""

    def failed(self, error: Exception) -> None:
        """A bug of ours was met on behalf of this client."""


class End(NamedTuple):
    """How the client is told that it is over."""

    code: int
    reason: str


class WebSocketTransport:
    """The transport of one WebSocket, from `run` until it returns."""

    def __init__(self, socket: MessageSocket) -> None:
        self._socket = socket
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0  # with what is being sent
        self._high = self._low = 0
        self._is_paused = False  # the connection was told that the client does not read
        self._is_closing = False
        self._is_lost = False  # the client has left
        self._speaks_text = True
        self._end: End | None = None
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._has_work = asyncio.Event()  # something to send, or the end
        self._aborted = asyncio.Event()

    def __repr__(self) -> str:
        return f"<WebSocketTransport {self._socket.facts}, {self._outbox_bytes} bytes to send>"

    def end_with(self, code: int, reason: str) -> None:
        """What the client is told at the end; the first reason counts."""
        if self._end is None:
            self._end = End(code, reason)

    # ---- the port

    def write(self, data: bytes | memoryview) -> None:
        if self._is_closing or not data:
            return
        self._outbox.append(bytes(data))
        self._outbox_bytes += len(data)
        self._has_work.set()
        if not self._is_paused and self._outbox_bytes > self._high:
            self._is_paused = True
            self._connection.pause_writing()

    def set_write_buffer_limits(self, *, high: int, low: int) -> None:
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return self._outbox_bytes

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def close(self) -> None:
        self._is_closing = True
        self._may_read.clear()
        self._has_work.set()

    def abort(self) -> None:
        self._is_closing = True
        self._outbox.clear()
        self._outbox_bytes = 0
        self._aborted.set()

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        facts = self._socket.facts
        if name == "peername":
            return facts.peer_host, facts.peer_port
        return (facts.local_host, facts.local_port) if name == "sockname" else None

    # ---- the socket's side

    async def run(self, connection: MessageConnection) -> None:
        """Carry messages until the client leaves or the connection closes. `tell_end` follows."""
        self._connection = connection
        tasks = [
            asyncio.create_task(self._receive_all(), name="native WebSocket in"),
            asyncio.create_task(self._send_all(), name="native WebSocket out"),
            asyncio.create_task(self._aborted.wait(), name="native WebSocket end"),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_closing = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def tell_end(self) -> None:
        """Close the WebSocket with the reason that was given, unless the client has left."""
        if self._end is not None and not self._is_lost:
            await self._socket.close(self._end.code, self._end.reason)

    async def _receive_all(self) -> None:
        try:
            while True:
                await self._may_read.wait()
                message = await self._socket.receive()
                if message is None:
                    self._is_lost = True
                    return
                self._hand_over(message)
        except Exception as error:
            self._connection.failed(error)

    def _hand_over(self, message: bytes | str) -> None:
        connection = self._connection
        self._speaks_text = isinstance(message, str)
        try:
            data = message if isinstance(message, bytes) else _frame_of(message)
        except BadJsonFrame as error:
            connection.message_refused(error.sequence, error)
        except ProtocolError as error:
            connection.message_broken(error)
        else:
            connection.message_received(data)

    async def _send_all(self) -> None:
        """Send what is written; returns after `close`, when all of it has left, or if the client has."""
        try:
            while self._outbox or not self._is_closing:
                self._has_work.clear()
                if not self._outbox:
                    await self._has_work.wait()
                    continue
                data = self._next_piece()
                for message in self._messages_of(data):
                    await self._socket.send(message)
                    self._connection.message_taken()
                self._sent(len(data))
        except ConnectionError:
            self._is_lost = True
        except Exception as error:
            self._connection.failed(error)

    def _next_piece(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while self._outbox and size < _PIECE_BYTES:
            pieces.append(self._outbox.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)

    def _messages_of(self, data: bytes) -> list[bytes] | list[str]:
        """Whole frames in the client's own form: one binary message, or a text for each."""
        if not self._speaks_text:
            return [data]
        reader = FrameReader(FRAME_BYTES_MAX)
        reader.feed(data)
        texts: list[str] = []
        while (frame := reader.next_frame()) is not None:
            texts.append(write_json_frame(frame))
        return texts

    def _sent(self, size: int) -> None:
        self._outbox_bytes = max(self._outbox_bytes - size, 0)  # an abort may have emptied it
        if self._is_paused and self._outbox_bytes <= self._low:
            self._is_paused = False
            self._connection.resume_writing()


def _frame_of(text: str) -> bytes:
    """A text as a binary frame; BadJsonFrame or ProtocolError if it is none."""
    frame = read_json_frame(text)
    return write_frame(
        frame.type,
        sequence=frame.sequence,
        timestamp=frame.timestamp,
        properties=frame.properties,
        body=frame.body,
    )
