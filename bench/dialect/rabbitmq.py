"""RabbitMQ, in AMQP 0-9-1: basic.publish with confirms, to a stream or, where durable, to a quorum queue.

    frame     type:1 | channel:2 | size:4 | payload | 0xCE
    method    class:2 | method:2 | arguments            frame type 1
    content   header (type 2), then bodies (type 3) of at most `frame_max` bytes

Confirms may come one by one or for all up to a number, and a little out of order; they are counted, and the
oldest unanswered request is taken as the one confirmed.
"""

from __future__ import annotations

import socket
import struct

from bench.dialect.port import Dialect, Unsupported
from bench.load import RECORD_BYTES, Part, WireJob
from tailrace.bench.wire import Lane, LoadError
from tailrace.bench.wire.ring import ring_of
from tailrace.bench.wire.topic import connect, read_exactly

_HEAD = struct.Struct(">BHI")
_METHOD = struct.Struct(">HH")
_ACK = struct.Struct(">BHIHHQB")  # a whole basic.ack, but for its last byte
_END = b"\xce"
_FRAME_MAX = 131_072
_CHANNELS_MAX = 16
_RING_BYTES = 1 << 16
_METHOD_FRAME, _HEADER_FRAME, _BODY_FRAME = 1, 2, 3
_START, _START_OK, _TUNE, _TUNE_OK, _OPEN, _OPEN_OK = (
    (10, 10),
    (10, 11),
    (10, 30),
    (10, 31),
    (10, 40),
    (10, 41),
)
_CHANNEL_OPEN, _CHANNEL_OPEN_OK = (20, 10), (20, 11)
_DECLARE, _DECLARE_OK, _DELETE, _DELETE_OK = (50, 10), (50, 11), (50, 40), (50, 41)
_CONFIRM_SELECT, _CONFIRM_SELECT_OK = (85, 10), (85, 11)
_PUBLISH, _BASIC_ACK = (60, 40), (60, 80)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _HEAD.pack(kind, channel, len(payload)) + payload + _END


def method(channel: int, which: tuple[int, int], arguments: bytes = b"") -> bytes:
    return frame(_METHOD_FRAME, channel, _METHOD.pack(*which) + arguments)


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def text_table(values: dict[str, str]) -> bytes:
    """A table of strings."""
    return long(b"".join(short(key) + b"S" + long(value.encode()) for key, value in values.items()))


def publish(queue: str, body: bytes) -> bytes:
    """A persistent message by the default exchange, cut into frames."""
    header = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)  # one property: delivery mode 2
    step = _FRAME_MAX - 8
    pieces = [body[at : at + step] for at in range(0, len(body), step)]
    return (
        method(1, _PUBLISH, struct.pack(">H", 0) + short("") + short(queue) + b"\0")
        + frame(_HEADER_FRAME, 1, header)
        + b"".join(frame(_BODY_FRAME, 1, piece) for piece in pieces)
    )


class ConfirmReader:
    """Counts what basic.ack confirms."""

    __slots__ = ("_ahead", "_low")

    def __init__(self) -> None:
        self._low = 0  # every number up to this one is confirmed
        self._ahead: set[int] = set()

    def feed(self, data: memoryview) -> tuple[int, int]:
        at = replies = 0
        while len(data) - at > _ACK.size:
            kind, _, _, *which, tag, multiple = _ACK.unpack_from(data, at)
            if kind != _METHOD_FRAME or tuple(which) != _BASIC_ACK:
                raise LoadError(f"rabbitmq sent {bytes(data[at : at + 80])!r}")
            replies += self._confirm(tag, all_before=bool(multiple))
            at += _ACK.size + len(_END)
        return replies, at

    def _confirm(self, tag: int, *, all_before: bool) -> int:
        before = self._low + len(self._ahead)
        if all_before:
            self._low = max(self._low, tag)
            self._ahead = {each for each in self._ahead if each > self._low}
        else:
            self._ahead.add(tag)
        while self._low + 1 in self._ahead:
            self._low += 1
            self._ahead.discard(self._low)
        return self._low + len(self._ahead) - before


class RabbitDialect(Dialect):
    """One queue for each part and partition."""

    def __init__(self, job: WireJob) -> None:
        super().__init__(job)
        self._queues: list[str] = []

    def lanes(self, part: Part, *, name: str) -> list[Lane]:
        if part.kind == "fetch":
            raise Unsupported("RabbitMQ pushes to consumers; it has no request that reads from a position")
        queues = [f"{self.job.topic}-{name}-{each}" for each in range(part.partitions)]
        kind = "quorum" if self.job.durable else "stream"
        with self._connect() as sock:
            for queue in queues:
                _call(sock, _DELETE, struct.pack(">H", 0) + short(queue) + b"\0", _DELETE_OK)
                arguments = struct.pack(">H", 0) + short(queue) + b"\x02"  # durable
                _call(sock, _DECLARE, arguments + text_table({"x-queue-type": kind}), _DECLARE_OK)
                self._queues.append(queue)
        return [
            self._lane(part, queues[each % part.partitions], name=name) for each in range(part.connections)
        ]

    def clean(self) -> None:
        with self._connect() as sock:
            for queue in self._queues:
                _call(sock, _DELETE, struct.pack(">H", 0) + short(queue) + b"\0", _DELETE_OK)

    def _lane(self, part: Part, queue: str, *, name: str) -> Lane:
        size = part.batch_bytes or RECORD_BYTES
        request = publish(queue, bytes(size))
        ring = ring_of([request] * max(part.in_flight, _RING_BYTES // len(request)), payload_bytes=size)
        sock = self._connect()
        _call(sock, _CONFIRM_SELECT, b"\0", _CONFIRM_SELECT_OK)
        return Lane(sock=sock, ring=ring, reader=ConfirmReader(), in_flight=part.in_flight, name=name)

    def _connect(self) -> socket.socket:
        """A connection with channel 1 open, without heartbeats."""
        sock = connect(self.job.host, self.job.port)
        sock.sendall(b"AMQP\x00\x00\x09\x01")
        _wait(sock, _START)
        sock.sendall(
            method(0, _START_OK, text_table({}) + short("PLAIN") + long(b"\0guest\0guest") + short("en_US"))
        )
        _wait(sock, _TUNE)
        sock.sendall(method(0, _TUNE_OK, struct.pack(">HIH", _CHANNELS_MAX, _FRAME_MAX, 0)))
        sock.sendall(method(0, _OPEN, short("/") + b"\0\0"))
        _wait(sock, _OPEN_OK)
        _call(sock, _CHANNEL_OPEN, short(""), _CHANNEL_OPEN_OK)
        return sock


def _call(sock: socket.socket, which: tuple[int, int], arguments: bytes, answer: tuple[int, int]) -> None:
    sock.sendall(method(1, which, arguments))
    _wait(sock, answer)


def _wait(sock: socket.socket, which: tuple[int, int]) -> None:
    _, _, size = _HEAD.unpack(read_exactly(sock, _HEAD.size))
    payload = read_exactly(sock, size + len(_END))
    if _METHOD.unpack_from(payload) != which:
        raise LoadError(f"rabbitmq answered {payload[:200]!r}")
