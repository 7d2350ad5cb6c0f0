"""NATS JetStream, in its text protocol: PUB with a reply subject, and direct get for reading.

A batch of the Kafka loads is one message of as many bytes here. Replies are messages on the inbox of the
connection:

    MSG inbox sid bytes            payload          an acknowledgement: {"stream":"...","seq":7}
    HMSG inbox sid head_bytes bytes   head payload  a message that was asked for
"""

from __future__ import annotations

import json
import socket

from bench.dialect.port import Dialect
from bench.load import RECORD_BYTES, Part, WireJob
from tailrace.bench.wire import Lane, LoadError
from tailrace.bench.wire.ring import ring_of
from tailrace.bench.wire.topic import connect

_INBOX = "_INBOX.bench"
_FETCH_PLACES = 16
_RING_BYTES = 1 << 16
_LINE_BYTES_MAX = 200
_PING = b"PING"
_HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class NatsReader:
    """Messages on the inbox, whole."""

    __slots__ = ("_missing",)

    def __init__(self) -> None:
        self._missing = 0  # bytes of the message that has begun

    def feed(self, data: memoryview) -> tuple[int, int]:
        available = len(data)
        if self._missing > available:
            self._missing -= available
            return 0, available
        at = self._missing
        replies = 1 if at else 0
        self._missing = 0
        while at < available:
            seen = bytes(data[at : at + _LINE_BYTES_MAX])
            line = seen.find(b"\r\n")
            if line < 0:
                if len(seen) == _LINE_BYTES_MAX:
                    raise LoadError(f"nats sent {seen[:80]!r}")
                break
            if seen[:line] == _PING:
                at += line + 2  # a connection is closed for want of a PONG after minutes, and ends before
                continue
            end = at + line + 2 + _message_bytes(seen[:line], seen[line + 2 :]) + 2
            if end > available:
                self._missing = end - available
                return replies, available
            at = end
            replies += 1
        return replies, at


def _message_bytes(line: bytes, begins: bytes) -> int:
    words = line.split()
    if words[0] not in (b"MSG", b"HMSG") or b'"error"' in begins:
        raise LoadError(f"nats sent {line[:60]!r} {begins[:120]!r}")
    if words[0] == b"HMSG" and not begins.startswith(b"NATS/1.0\r\n"[: len(begins)]):
        raise LoadError(f"nats refused: {begins[:60]!r}")
    return int(words[-1])


class NatsDialect(Dialect):
    """One stream for each part; a partition is a subject of it."""

    def __init__(self, job: WireJob) -> None:
        super().__init__(job)
        self._streams: list[str] = []

    def lanes(self, part: Part, *, name: str) -> list[Lane]:
        stream = f"{self.job.topic}-{name}"
        size = part.batch_bytes or RECORD_BYTES
        with self._connect() as sock:
            _ask(sock, f"STREAM.DELETE.{stream}", {}, may_fail=True)
            made = {"name": stream, "subjects": [f"{stream}.*"], "storage": "file", "retention": "limits"}
            _ask(sock, f"STREAM.CREATE.{stream}", {**made, "num_replicas": 1, "allow_direct": True})
            self._streams.append(stream)
            if part.kind == "fetch":
                for _ in range(_FETCH_PLACES):
                    sock.sendall(_publish(sock, f"{stream}.0", bytes(size)))
                    _read_message(sock)
        return [self._lane(part, stream, each, name=name) for each in range(part.connections)]

    def _lane(self, part: Part, stream: str, number: int, *, name: str) -> Lane:
        sock = self._connect()
        size = part.batch_bytes or RECORD_BYTES
        if part.kind == "fetch":
            asked = [json.dumps({"seq": 1 + place}).ljust(16).encode() for place in range(_FETCH_PLACES)]
            requests = [_publish(sock, f"$JS.API.DIRECT.GET.{stream}", each) for each in asked]
        else:
            request = _publish(sock, f"{stream}.{number % part.partitions}", bytes(size))
            requests = [request] * max(part.in_flight, _RING_BYTES // len(request))
        ring = ring_of(requests, payload_bytes=size)
        return Lane(sock=sock, ring=ring, reader=NatsReader(), in_flight=part.in_flight, name=name)

    def clean(self) -> None:
        with self._connect() as sock:
            for stream in self._streams:
                _ask(sock, f"STREAM.DELETE.{stream}", {})

    def _connect(self) -> socket.socket:
        """A connection that is subscribed to an inbox of its own."""
        sock = connect(self.job.host, self.job.port)
        sock.sendall(_HELLO + f"SUB {_inbox(sock)} 1\r\nPING\r\n".encode())
        said = b""
        while not said.endswith(b"PONG\r\n"):
            piece = sock.recv(4096)
            if not piece or b"-ERR" in said:
                raise LoadError(f"nats refused the connection: {said[-80:]!r}")
            said += piece
        return sock


def _inbox(sock: socket.socket) -> str:
    return f"{_INBOX}.{sock.getsockname()[1]}"


def _publish(sock: socket.socket, subject: str, payload: bytes) -> bytes:
    return f"PUB {subject} {_inbox(sock)} {len(payload)}\r\n".encode() + payload + b"\r\n"


def _ask(sock: socket.socket, subject: str, request: dict[str, object], *, may_fail: bool = False) -> None:
    sock.sendall(_publish(sock, f"$JS.API.{subject}", json.dumps(request).encode()))
    answer = _read_message(sock)
    if not may_fail and b'"error"' in answer:
        raise LoadError(f"nats: {answer[-200:]!r}")


def _read_message(sock: socket.socket) -> bytes:
    """One message of the inbox, its payload."""
    said = b""
    while True:
        piece = sock.recv(1 << 16)
        if not piece:
            raise LoadError("nats closed the connection")
        said = (said + piece).removeprefix(_PING + b"\r\n")
        line, crlf, rest = said.partition(b"\r\n")
        if crlf and len(rest) >= int(line.split()[-1]) + 2:
            return rest
