"""Requests of the Kafka protocol written by hand, for what the golden tests ask of a broker.

Built on `tests.interop.raw`, and apart from the broker's own codec for the same reason: a mistake there must
not hide itself here. Only versions with plain (not flexible) encoding are used.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.interop.raw import FETCH, fetch, read_frame, request, text

from tailrace.records import crc32c

PRODUCE, LIST_OFFSETS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, END_TXN = 0, 2, 22, 23, 26
EARLIEST, LATEST = -2, -1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CRC_AT, _CRC_FROM, _EPOCH_AT, _SEQUENCE_AT = 17, 21, 51, 53
_FETCH_BYTES_MAX = 50_000_000
_CUT_BYTES = 12  # base offset and length: the rest of a batch is counted from here


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The answer for one partition."""

    high_watermark: int
    last_stable_offset: int
    records: bytes


@dataclass(frozen=True, slots=True)
class RawBatch:
    """One record batch (magic 2), as it was served."""

    data: bytes

    @property
    def base_offset(self) -> int:
        return int(struct.unpack_from(">q", self.data, 0)[0])

    @property
    def leader_epoch(self) -> int:
        return int(struct.unpack_from(">i", self.data, 12)[0])

    @property
    def attributes(self) -> int:
        return int(struct.unpack_from(">h", self.data, 21)[0])

    @property
    def last_offset(self) -> int:
        return self.base_offset + int(struct.unpack_from(">i", self.data, 23)[0])

    @property
    def timestamp_max(self) -> int:
        return int(struct.unpack_from(">q", self.data, 35)[0])

    @property
    def producer_id(self) -> int:
        return int(struct.unpack_from(">q", self.data, 43)[0])

    @property
    def producer_epoch(self) -> int:
        return int(struct.unpack_from(">h", self.data, _EPOCH_AT)[0])

    @property
    def base_sequence(self) -> int:
        return int(struct.unpack_from(">i", self.data, _SEQUENCE_AT)[0])

    @property
    def count(self) -> int:
        return int(struct.unpack_from(">i", self.data, 57)[0])

    def with_sequence(self, sequence: int, *, epoch: int | None = None) -> RawBatch:
        """The same records as another batch of the same producer."""
        data = bytearray(self.data)
        struct.pack_into(">i", data, _SEQUENCE_AT, sequence)
        if epoch is not None:
            struct.pack_into(">h", data, _EPOCH_AT, epoch)
        struct.pack_into(">I", data, _CRC_AT, crc32c(bytes(data[_CRC_FROM:])))
        return RawBatch(bytes(data))


def fetch_partition(connection: socket.socket, topic: str, partition: int, offset: int) -> Fetched:
    """One Fetch v4 from `offset`."""
    connection.sendall(fetch(topic, partition, offset))
    frame = read_frame(connection)
    at = 4 + 4 + 4 + len(text(topic)) + 4  # correlation, throttle, one topic, its name, one partition
    _, error, high_watermark, stable, aborted = struct.unpack_from(">ihqqi", frame, at)
    assert error == 0, f"fetch of {topic}-{partition} from {offset} answered {error}"
    at += 26 + max(aborted, 0) * 16
    (size,) = struct.unpack_from(">i", frame, at)
    records = frame[at + 4 : at + 4 + max(size, 0)]
    return Fetched(high_watermark=high_watermark, last_stable_offset=stable, records=records)


def fetch_aborted(connection: socket.socket, topic: str, partition: int, offset: int) -> list[list[int]]:
    """The aborted transactions that one Fetch v4 with read_committed names: producer id and first offset."""
    body = struct.pack(">iiiib", -1, 0, 1, _FETCH_BYTES_MAX, 1) + struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iiqi", 1, partition, offset, _FETCH_BYTES_MAX)
    connection.sendall(request(FETCH, 4, body))
    frame = read_frame(connection)
    at = 4 + 4 + 4 + len(text(topic)) + 4
    _, error, _, _, count = struct.unpack_from(">ihqqi", frame, at)
    assert error == 0, f"fetch of {topic}-{partition} from {offset} answered {error}"
    return [list(struct.unpack_from(">qq", frame, at + 26 + 16 * number)) for number in range(max(count, 0))]


def fetch_batches(connection: socket.socket, topic: str, partition: int, offset: int) -> list[RawBatch]:
    """Every batch from `offset` to the end, fetched as often as it takes."""
    batches: list[RawBatch] = []
    while records := fetch_partition(connection, topic, partition, offset).records:
        found = list(cut_batches(records))
        assert found, "an answer with bytes, but without one whole batch"
        batches += found
        offset = found[-1].last_offset + 1
    return batches


def cut_batches(records: bytes) -> Iterator[RawBatch]:
    """The whole batches of an answer; the last one may be cut, and is left out then."""
    at = 0
    while at + _CUT_BYTES <= len(records):
        (length,) = struct.unpack_from(">i", records, at + 8)
        if at + _CUT_BYTES + length > len(records):
            return
        yield RawBatch(records[at : at + _CUT_BYTES + length])
        at += _CUT_BYTES + length


def list_offset(connection: socket.socket, topic: str, partition: int, at_ms: int) -> int:
    """ListOffsets v1: the first offset at or after a time, or EARLIEST, or LATEST; -1 if there is none."""
    body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, partition, at_ms)
    connection.sendall(request(LIST_OFFSETS, 1, body))
    frame = read_frame(connection)
    error, _, offset = struct.unpack_from(">hqq", frame, 4 + 4 + len(text(topic)) + 4 + 4)
    assert error == 0, f"list offsets of {topic}-{partition} answered {error}"
    return int(offset)


def epoch_end(connection: socket.socket, topic: str, partition: int, epoch: int) -> int:
    """OffsetForLeaderEpoch v2: where a leader epoch ends."""
    body = struct.pack(">i", 1) + text(topic) + struct.pack(">iiii", 1, partition, -1, epoch)
    connection.sendall(request(OFFSET_FOR_LEADER_EPOCH, 2, body))
    frame = read_frame(connection)
    error, _, _, end = struct.unpack_from(">hiiq", frame, 4 + 4 + 4 + len(text(topic)) + 4)
    assert error == 0, f"offset for leader epoch of {topic}-{partition} answered {error}"
    return int(end)


def init_producer_id(connection: socket.socket) -> tuple[int, int]:
    """InitProducerId v0 of a producer without transactions: its id and epoch."""
    connection.sendall(request(INIT_PRODUCER_ID, 0, text(None) + struct.pack(">i", 60_000)))
    error, producer_id, epoch = struct.unpack_from(">hqh", read_frame(connection), 4 + 4)
    assert error == 0, f"init producer id answered {error}"
    return producer_id, epoch


def end_transaction(
    connection: socket.socket, transactional_id: str, producer_id: int, epoch: int, *, commit: bool
) -> None:
    """EndTxn v1 in the name of a producer."""
    body = text(transactional_id) + struct.pack(">qhb", producer_id, epoch, commit)
    connection.sendall(request(END_TXN, 1, body))
    (error,) = struct.unpack_from(">h", read_frame(connection), 4 + 4)
    assert error == 0, f"end of the transaction of {transactional_id} answered {error}"


def produce(connection: socket.socket, topic: str, partition: int, batch: bytes) -> tuple[int, int]:
    """Produce v3 of one batch with acks=all: the error code, and the base offset."""
    body = text(None) + struct.pack(">hii", -1, 30_000, 1) + text(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    connection.sendall(request(PRODUCE, 3, body))
    frame = read_frame(connection)
    error, offset = struct.unpack_from(">hq", frame, 4 + 4 + len(text(topic)) + 4 + 4)
    return error, offset
