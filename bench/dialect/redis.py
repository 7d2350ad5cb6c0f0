"""Redis Streams, in RESP 2: XADD with one field, XRANGE for reading.

A batch of the Kafka loads is one entry of as many bytes here: Redis has no batches. Reading goes over entries
of 100 bytes, as many as fill the size, with ids of one width, so that every reply has the same length.
"""

from __future__ import annotations

import socket

from bench.dialect.port import Dialect
from bench.load import RECORD_BYTES, Part, WireJob
from tailrace.bench.wire import FixedReader, Lane, LoadError
from tailrace.bench.wire.ring import Ring, ring_of
from tailrace.bench.wire.topic import connect, read_exactly

_FIRST_ID = 10**9  # ids of one width
_FETCH_PLACES = 16
_RING_BYTES = 1 << 16
_PIPELINE = 500


def resp(*words: bytes) -> bytes:
    """One command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class BulkReader:
    """Replies that are one short bulk string each: `$15\\r\\n1700000000000-0\\r\\n`."""

    __slots__ = ()

    def feed(self, data: memoryview) -> tuple[int, int]:
        seen = bytes(data)
        if seen[:1] != b"$":
            raise LoadError(f"redis answered {seen[:80]!r}")
        lines = seen.count(b"\r\n")
        replies = lines // 2
        if not replies:
            return 0, 0
        end = seen.rfind(b"\r\n")
        if lines % 2:
            end = seen.rfind(b"\r\n", 0, end)
        return replies, end + 2


class RedisDialect(Dialect):
    """One stream for each part and partition."""

    def __init__(self, job: WireJob) -> None:
        super().__init__(job)
        self._streams: list[bytes] = []

    def lanes(self, part: Part, *, name: str) -> list[Lane]:
        streams = [f"{self.job.topic}-{name}-{each}".encode() for each in range(part.partitions)]
        self._streams += streams
        with connect(self.job.host, self.job.port) as sock:
            self._set_up(sock, streams)
            if part.kind == "fetch":
                self._fill(sock, streams[0], part)
        return [self._lane(part, name, streams[each % part.partitions]) for each in range(part.connections)]

    def clean(self) -> None:
        with connect(self.job.host, self.job.port) as sock:
            sock.sendall(resp(b"DEL", *self._streams))
            _expect(sock, b":")

    def _set_up(self, sock: socket.socket, streams: list[bytes]) -> None:
        sync = b"always" if self.job.durable else b"no"
        sock.sendall(resp(b"CONFIG", b"SET", b"appendfsync", sync))
        _expect(sock, b"+OK")
        sock.sendall(resp(b"DEL", *streams))
        _expect(sock, b":")

    def _lane(self, part: Part, name: str, stream: bytes) -> Lane:
        sock = connect(self.job.host, self.job.port)
        if part.kind == "produce":
            size = part.batch_bytes or RECORD_BYTES
            request = resp(b"XADD", stream, b"*", b"v", bytes(size))
            places = max(part.in_flight, _RING_BYTES // len(request))
            ring = ring_of([request] * places, payload_bytes=size)
            return Lane(sock=sock, ring=ring, reader=BulkReader(), in_flight=part.in_flight, name=name)
        ring = self._reading(part, stream)
        sock.sendall(ring.data[: ring.request_bytes])
        reader = FixedReader(
            reply_bytes=_reply_bytes(sock, _entries(part)), begins=b"*%d\r\n" % _entries(part)
        )
        return Lane(sock=sock, ring=ring, reader=reader, in_flight=part.in_flight, name=name)

    def _reading(self, part: Part, stream: bytes) -> Ring:
        count = b"%d" % _entries(part)
        starts = [b"%d-1" % (_FIRST_ID + place) for place in range(_FETCH_PLACES)]
        requests = [resp(b"XRANGE", stream, start, b"+", b"COUNT", count) for start in starts]
        return ring_of(requests, payload_bytes=_entries(part) * RECORD_BYTES)

    def _fill(self, sock: socket.socket, stream: bytes, part: Part) -> None:
        value = bytes(RECORD_BYTES)
        ids = [b"%d-1" % (_FIRST_ID + each) for each in range(_entries(part) + _FETCH_PLACES)]
        reply = b"$%d\r\n%s\r\n" % (len(ids[0]), ids[0])
        for at in range(0, len(ids), _PIPELINE):
            some = ids[at : at + _PIPELINE]
            sock.sendall(b"".join(resp(b"XADD", stream, each, b"v", value) for each in some))
            if not read_exactly(sock, len(reply) * len(some)).startswith(b"$"):
                raise LoadError("redis refused an entry")


def _entries(part: Part) -> int:
    return max(part.batch_bytes // RECORD_BYTES, 1)


def _reply_bytes(sock: socket.socket, entries: int) -> int:
    """How long the reply is that stands in the socket: every entry is an id and a list of two strings."""
    identity = b"%d-1" % _FIRST_ID
    entry = b"*2\r\n" + b"$%d\r\n%s\r\n" % (len(identity), identity) + resp(b"v", bytes(RECORD_BYTES))
    size = len(b"*%d\r\n" % entries) + entries * len(entry)
    if not read_exactly(sock, size).endswith(b"\r\n"):
        raise LoadError("redis answered XRANGE with other entries than were put in")
    return size


def _expect(sock: socket.socket, begins: bytes) -> None:
    said = sock.recv(4096)
    if not said.startswith(begins):
        raise LoadError(f"redis answered {said[:80]!r}")
