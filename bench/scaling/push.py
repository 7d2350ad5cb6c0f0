"""A fixed number of requests, as fast as they are answered.

Where the driver runs for a time, this ends with the last answer. Frames are taken one by one as there is room
for them, so that ten gibibytes of them need no memory: a frame may be the same buffer each time, because the
next one is asked for only when the last byte of the one before has left.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.bench.wire import LoadError, Reader

_BUFFER_BYTES = 1 << 20
_SILENCE_S = 30.0


@dataclass(slots=True, kw_only=True)
class Line:
    """One connection, what it sends, and how much of it may be unanswered."""

    sock: socket.socket
    frames: Iterator[bytes | bytearray]
    reader: Reader
    in_flight: int = 1


def push(lines: Sequence[Line]) -> float:
    """Send everything; the seconds until the last answer. LoadError if a peer refuses, closes or is silent.

    The connections are closed.
    """
    began = time.monotonic()
    try:
        with selectors.DefaultSelector() as selector:
            runs = [_Run(line, selector) for line in lines]
            while any(run.busy for run in runs):
                events = selector.select(_SILENCE_S)
                if not events:
                    raise LoadError(f"no reply for {_SILENCE_S:.0f} s")
                for key, mask in events:
                    key.data.turn(mask)
    finally:
        for line in lines:
            line.sock.close()
    return time.monotonic() - began


class _Run:
    """A line while it runs."""

    __slots__ = ("_buffer", "_ended", "_line", "_rest", "_selector", "_unanswered", "_unsent")

    def __init__(self, line: Line, selector: selectors.BaseSelector) -> None:
        line.sock.setblocking(False)
        self._line = line
        self._selector = selector
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._rest = b""
        self._unsent = memoryview(b"")
        self._unanswered = 0
        self._ended = False  # there are no more frames
        selector.register(line.sock, selectors.EVENT_READ, self)
        self._send()

    @property
    def busy(self) -> bool:
        return bool(self._unanswered or self._unsent)

    def turn(self, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._receive()
        self._send()

    def _receive(self) -> None:
        rest = len(self._rest)
        self._buffer[:rest] = self._rest
        try:
            arrived = self._line.sock.recv_into(self._buffer[rest:])
        except BlockingIOError:
            return
        except OSError as error:
            raise LoadError(f"the connection broke: {error}") from error
        if not arrived:
            raise LoadError("the peer closed the connection")
        replies, used = self._line.reader.feed(self._buffer[: rest + arrived])
        self._rest = bytes(self._buffer[used : rest + arrived])
        self._unanswered -= replies
        if self._unanswered < 0:
            raise LoadError("more replies than requests")

    def _send(self) -> None:
        while self._unsent or self._take():
            try:
                sent = self._line.sock.send(self._unsent)
            except BlockingIOError:
                break
            except OSError as error:
                raise LoadError(f"the connection broke: {error}") from error
            self._unsent = self._unsent[sent:]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._line.sock, events, self)

    def _take(self) -> bool:
        """The next frame, if there is one and room for it."""
        if self._ended or self._unanswered >= self._line.in_flight:
            return False
        frame = next(self._line.frames, None)
        if frame is None:
            self._ended = True
            return False
        self._unsent = memoryview(frame)
        self._unanswered += 1
        return True
