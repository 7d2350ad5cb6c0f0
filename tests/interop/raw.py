"""A few requests written by hand, for what no client shows: the batches as they are stored and sent.

Kept apart from the broker's own codec on purpose: a mistake there must not hide itself here. Only versions
with plain (not flexible) encoding are used.
"""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_TIMEOUT_S = 60
_CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, API_VERSIONS = 1, 2, 3, 9, 18


class StoredBatch(NamedTuple):
    """What the head of a record batch (magic 2) tells."""

    base_offset: int
    records: int
    codec: str
    producer_id: int
    first_sequence: int
    size_bytes: int


def connect(bootstrap: str, *, timeout_s: float = _TIMEOUT_S) -> socket.socket:
    """A plain connection; every call on it has the deadline."""
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout_s)


def text(value: str | None) -> bytes:
    """A string, or null."""
    if value is None:
        return struct.pack(">h", -1)
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def request(key: int, version: int, body: bytes, *, correlation: int = 7, client_id: str = "raw") -> bytes:
    """A whole frame with a request header of version 1."""
    head = struct.pack(">hhi", key, version, correlation) + text(client_id)
    return struct.pack(">i", len(head) + len(body)) + head + body


def read_frame(connection: socket.socket) -> bytes:
    """One answer, without its size; ConnectionError when the peer closes."""
    (size,) = struct.unpack(">i", _read_exactly(connection, 4))
    return _read_exactly(connection, size)


def api_versions(correlation: int = 7) -> bytes:
    """The cheapest of all requests."""
    return request(API_VERSIONS, 0, b"", correlation=correlation)


def fetch(topic: str, partition: int, offset: int, *, bytes_max: int = 50_000_000, wait_ms: int = 0) -> bytes:
    """Fetch v4 of one partition."""
    body = struct.pack(">iiiib", -1, wait_ms, 1, bytes_max, 0)
    body += struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iiqi", 1, partition, offset, bytes_max)
    return request(FETCH, 4, body)


def fetch_all(connection: socket.socket, topic: str, partition: int) -> int:
    """The bytes of a partition's records, fetched as often as it takes."""
    total = offset = 0
    while True:
        connection.sendall(fetch(topic, partition, offset))
        frame = read_frame(connection)
        at = 4 + 4 + 4 + len(text(topic)) + 4 + 4 + 2 + 8 + 8 + 4  # v4, one partition, nothing aborted
        (size,) = struct.unpack_from(">i", frame, at)
        if not size:
            return total
        total += size
        offset = _offset_behind(frame[at + 4 :])


def _offset_behind(records: bytes) -> int:
    """Where the batches that were fetched end."""
    at = following = 0
    while at < len(records):
        base, length = struct.unpack_from(">qi", records, at)
        (delta,) = struct.unpack_from(">i", records, at + 23)
        following, at = base + delta + 1, at + 12 + length
    return int(following)


def leads(bootstrap: str, topic: str, partition: int) -> bool:
    """Whether the broker answers for a partition (ListOffsets v1)."""
    body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, partition, -1)
    with connect(bootstrap) as connection:
        connection.sendall(request(LIST_OFFSETS, 1, body))
        frame = read_frame(connection)
    (error,) = struct.unpack_from(">h", frame, 4 + 4 + 2 + len(topic) + 4 + 4)
    return bool(error == 0)


def committed(bootstrap: str, group: str, topic: str, partition: int) -> tuple[int, str]:
    """Offset and metadata of a group (OffsetFetch v1)."""
    body = text(group) + struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, partition)
    with connect(bootstrap) as connection:
        connection.sendall(request(OFFSET_FETCH, 1, body))
        frame = read_frame(connection)
    at = 4 + 4 + 2 + len(topic) + 4 + 4
    offset, size = struct.unpack_from(">qh", frame, at)
    note = frame[at + 10 : at + 10 + size].decode()
    (error,) = struct.unpack_from(">h", frame, at + 10 + size)
    assert error == 0, f"offset fetch answered {error}"
    return offset, note


def read_batches(bootstrap: str, topic: str, partition: int = 0) -> list[StoredBatch]:
    """The heads of every batch of a partition, from its beginning."""
    batches: list[StoredBatch] = []
    offset = 0
    with connect(bootstrap) as connection:
        while True:
            connection.sendall(fetch(topic, partition, offset))
            records = _records(read_frame(connection), topic)
            if not records:
                return batches
            found = _heads(records)
            assert found, "an answer with bytes, but without one whole batch"
            batches += found
            offset = found[-1].base_offset + found[-1].records


def _records(frame: bytes, topic: str) -> bytes:
    at = 4 + 4 + 4 + 2 + len(topic) + 4  # correlation, throttle, one topic, its name, one partition
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", frame, at)
    assert error == 0, f"fetch answered {error}"
    at += 26 + max(aborted, 0) * 16
    (size,) = struct.unpack_from(">i", frame, at)
    return frame[at + 4 : at + 4 + max(size, 0)]


def _heads(records: bytes) -> list[StoredBatch]:
    heads = []
    at = 0
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break  # the last one may be cut
        magic, _, attributes, last_delta = struct.unpack_from(">bIhi", records, at + 16)
        assert magic == 2, f"magic {magic}"
        producer_id, _, sequence, _ = struct.unpack_from(">qhii", records, at + 43)
        codec = _CODECS[attributes & 7]
        heads.append(StoredBatch(base, last_delta + 1, codec, producer_id, sequence, 12 + length))
        at += 12 + length
    return heads


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        piece = connection.recv(min(size - len(pieces), 1 << 20))
        if not piece:
            raise ConnectionError(f"closed after {len(pieces)} of {size} bytes")
        pieces += piece
    return bytes(pieces)
