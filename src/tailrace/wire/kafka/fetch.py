"""Fetch (API 1), versions 4-17, by hand: a response is pieces, and records stay the objects they are.

    request     replica_id:int32 (4-14) | max_wait_ms:int32 | min_bytes:int32 | max_bytes:int32
                | isolation_level:int8 | session_id:int32 | session_epoch:int32 (7+)
                | [ topic | [ partition:int32 | current_leader_epoch:int32 (9+) | fetch_offset:int64
                            | last_fetched_epoch:int32 (12+) | log_start_offset:int64 (5+)
                            | partition_max_bytes:int32 ] ]
                | forgotten [ topic | [ partition:int32 ] ] (7+) | rack_id (11+)
    response    throttle_time_ms:int32 | error_code:int16 | session_id:int32 (7+)
                | [ topic | [ partition:int32 | error_code:int16 | high_watermark:int64
                            | last_stable_offset:int64 | log_start_offset:int64 (5+)
                            | aborted [ producer_id:int64 | first_offset:int64 ]
                            | preferred_read_replica:int32 (11+) | records ] ]

Version 12 is flexible: compact lengths, and a tag buffer behind every struct. From version 13 on a topic is
named by its id, 16 bytes (KIP-516). Tags (cluster id, replica state, diverging epoch, current leader,
snapshot id, node endpoints, directory id) are neither written nor looked at. Records that are None travel as
empty, not as null, which librdkafka takes for a mistake.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NoReturn, Protocol, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from tailrace.model import ProtocolError
from tailrace.wire.kafka.cursor import Cursor, cursor_errors, write_count, write_string
from tailrace.wire.kafka.schema import read_uuid
from tailrace.wire.kafka.tag import read_tag_count, read_tag_extent, skip_tags
from tailrace.wire.kafka.varint import read_uvarint, read_uvarint_tail

FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
_WITHOUT_REPLICA_FROM = 15
_REPLICA_TAG = 1
_REPLICA_ID_BYTES = 4

TopicRef: TypeAlias = str | UUID
"""How a request and its answer name a topic: by its name, from version 13 on by its id."""

R = TypeVar("R")
T = TypeVar("T", bound=TopicRef)


class Extent(Protocol):
    """Record bytes that need not be in memory yet."""

    @property
    def size(self) -> int: ...


E = TypeVar("E", bound=Extent)


class FetchPartition(msgspec.Struct, gc=False):
    """From where one partition is to be read."""

    index: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class FetchTopic(msgspec.Struct, gc=False):
    """The partitions of one topic in a request."""

    topic: TopicRef
    partitions: list[FetchPartition]


class FetchRequest(msgspec.Struct, gc=False):
    """A request to read records; within a session (KIP-227) only what changed since the last one."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[tuple[TopicRef, list[int]]]
    rack_id: str
    by_id: bool = False  # topics are named by their ids


class FetchResult(msgspec.Struct, Generic[R], gc=False):
    """What one partition answers. `aborted` holds (producer_id, first_offset), None for read_uncommitted."""

    index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: R | None = None


class FetchResponse(msgspec.Struct, gc=False):
    """An answer, as our client reads it: records are slices of the frame."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[tuple[TopicRef, list[FetchResult[memoryview]]]]


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEAD = struct.Struct(">iiiib")
_HEAD_15 = struct.Struct(">iiib")
_ID = struct.Struct("16s")
_SESSION = struct.Struct(">ii")
_ANSWER = struct.Struct(">ihi")
_ABORTED = struct.Struct(">qq")
_RESULT_4 = struct.Struct(">ihqq")
_RESULT_5 = struct.Struct(">ihqqq")
_PARTITION_4 = struct.Struct(">iqi")
_PARTITION_5 = struct.Struct(">iqqi")
_PARTITION_9 = struct.Struct(">iiqqi")
_PARTITION_12 = struct.Struct(">iiqiqiB")  # with the first byte of its tag buffer

_ReadTopic: TypeAlias = Callable[[memoryview, int, int], tuple[TopicRef, int]]

_int16_at = _INT16.unpack_from
_int32_at = _INT32.unpack_from


def read_fetch_request(body: memoryview, version: int) -> FetchRequest:
    """The request in a frame, behind its header. ProtocolError for anything else, a longer one included."""
    try:
        return _read_flexible(body, version) if version >= FLEXIBLE_FROM else _read_classic(body, version)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"FetchRequest version {version}: cut short") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"FetchRequest version {version}: a string is not UTF-8") from error


def _read_classic(d: memoryview, version: int) -> FetchRequest:
    n = len(d)
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD.unpack_from(d)
    p = 17
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(d, p)
        p += 8
    (count,) = _int32_at(d, p)
    p += 4
    if count < 0 or count * 6 > n - p:
        _refuse_count()
    topics = []
    for _ in range(count):
        name, p = _read_classic_string(d, p, n)
        partitions, p = _read_classic_partitions(d, p, n, version)
        topics.append(FetchTopic(name, partitions))
    forgotten: list[tuple[TopicRef, list[int]]] = []
    if version >= 7:
        p = _read_classic_forgotten(d, p, n, forgotten)
    rack_id = ""
    if version >= 11:
        rack_id, p = _read_classic_string(d, p, n)
    if p != n:
        _refuse_rest()
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )


def _read_classic_partitions(d: memoryview, p: int, n: int, version: int) -> tuple[list[FetchPartition], int]:
    """Partitions all have the same size here, and are read in one sweep."""
    (count,) = _int32_at(d, p)
    p += 4
    layout = _PARTITION_9 if version >= 9 else _PARTITION_5 if version >= 5 else _PARTITION_4
    q = p + count * layout.size
    if count < 0 or q > n:
        _refuse_count()
    sweep = layout.iter_unpack(d[p:q])
    if version >= 9:
        return [FetchPartition(i, epoch, at, -1, start, size) for i, epoch, at, start, size in sweep], q
    if version >= 5:
        return [FetchPartition(i, -1, at, -1, start, size) for i, at, start, size in sweep], q
    return [FetchPartition(i, -1, at, -1, -1, size) for i, at, size in sweep], q


def _read_classic_forgotten(
    d: memoryview, p: int, n: int, forgotten: list[tuple[TopicRef, list[int]]]
) -> int:
    (count,) = _int32_at(d, p)
    p += 4
    if count < 0 or count * 6 > n - p:
        _refuse_count()
    for _ in range(count):
        name, p = _read_classic_string(d, p, n)
        (partition_count,) = _int32_at(d, p)
        p += 4
        if partition_count < 0 or partition_count * 4 > n - p:
            _refuse_count()
        forgotten.append((name, list(struct.unpack_from(f">{partition_count}i", d, p))))
        p += partition_count * 4
    return p


def _read_classic_string(d: memoryview, p: int, n: int) -> tuple[str, int]:
    (size,) = _int16_at(d, p)
    p += 2
    q = p + size
    if size < 0 or q > n:
        _refuse_length()
    return str(d[p:q], "utf-8"), q


def _read_flexible(d: memoryview, version: int) -> FetchRequest:
    n = len(d)
    if version >= _WITHOUT_REPLICA_FROM:
        replica_id, p = -1, 13
        max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD_15.unpack_from(d)
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD.unpack_from(d)
        p = 17
    session_id, session_epoch = _SESSION.unpack_from(d, p)
    count, p = read_uvarint(d, p + 8)
    if not count or (count - 1) * 3 > n - p:
        _refuse_count()
    by_id = version >= TOPIC_IDS_FROM
    read_topic: _ReadTopic = _read_id if by_id else _read_compact_string
    topics = []
    for _ in range(count - 1):
        topic, p = read_topic(d, p, n)
        partitions, p = _read_compact_partitions(d, p, n)
        p = skip_tags(d, p) if d[p] else p + 1
        topics.append(FetchTopic(topic, partitions))
    forgotten: list[tuple[TopicRef, list[int]]] = []
    p = _read_compact_forgotten(d, p, n, forgotten, by_id=by_id)
    rack_id, p = _read_compact_string(d, p, n)
    if version >= _WITHOUT_REPLICA_FROM and d[p]:
        replica_id = _read_replica_tag(d, p)
    if skip_tags(d, p) != n:
        _refuse_rest()
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        by_id,
    )


def _read_replica_tag(d: memoryview, p: int) -> int:
    """The number of the replica that asks (KIP-903); -1 for a consumer."""
    count, p = read_tag_count(d, p)
    for _ in range(count):
        tag, start, p = read_tag_extent(d, p)
        if tag == _REPLICA_TAG:
            if p - start < _REPLICA_ID_BYTES:
                _refuse_length()
            return int(_int32_at(d, start)[0])
    return -1


def _read_compact_partitions(d: memoryview, p: int, n: int) -> tuple[list[FetchPartition], int]:
    count, p = read_uvarint(d, p)
    if not count or (count - 1) * _PARTITION_12.size > n - p:
        _refuse_count()
    partitions = []
    read = _PARTITION_12.unpack_from
    for _ in range(count - 1):
        i, epoch, at, last_epoch, start, size, tags = read(d, p)
        p += 33
        if tags:
            p = skip_tags(d, p - 1)
        partitions.append(FetchPartition(i, epoch, at, last_epoch, start, size))
    return partitions, p


def _read_compact_forgotten(
    d: memoryview, p: int, n: int, forgotten: list[tuple[TopicRef, list[int]]], *, by_id: bool
) -> int:
    count, p = read_uvarint(d, p)
    if not count or (count - 1) * 3 > n - p:
        _refuse_count()
    read_topic: _ReadTopic = _read_id if by_id else _read_compact_string
    for _ in range(count - 1):
        topic, p = read_topic(d, p, n)
        partition_count, p = read_uvarint(d, p)
        partition_count -= 1
        if partition_count < 0 or partition_count * 4 > n - p:
            _refuse_count()
        forgotten.append((topic, list(struct.unpack_from(f">{partition_count}i", d, p))))
        p = skip_tags(d, p + partition_count * 4)
    return p


def _read_compact_string(d: memoryview, p: int, n: int) -> tuple[str, int]:
    size = d[p]
    p += 1
    if size > 127:
        size, p = read_uvarint_tail(d, p, size)
    q = p + size - 1
    if not size or q > n:
        _refuse_length()
    return str(d[p:q], "utf-8"), q


def _read_id(d: memoryview, p: int, n: int) -> tuple[UUID, int]:
    q = p + 16
    if q > n:
        _refuse_length()
    return read_uuid(bytes(d[p:q])), q


def _refuse_count() -> NoReturn:
    raise ProtocolError("FetchRequest: an array has more elements than the message can hold, or is null")


def _refuse_length() -> NoReturn:
    raise ProtocolError("FetchRequest: a length goes past the end")


def _refuse_rest() -> NoReturn:
    raise ProtocolError("FetchRequest: bytes are left over")


def write_fetch_response(
    version: int,
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    topics: Sequence[tuple[TopicRef, Sequence[FetchResult[E]]]],
) -> list[bytes | E]:
    """The body of a response: bytes, and between them the `records` that are not empty."""
    flexible = version >= FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    pieces: list[bytes | E] = []
    if version >= 7:
        head = [
            _ANSWER.pack(throttle_time_ms, error_code, session_id),
            write_count(len(topics), flexible=flexible),
        ]
    else:
        head = [_INT32.pack(throttle_time_ms), write_count(len(topics), flexible=flexible)]
    for topic, results in topics:
        head += (_write_topic(topic, flexible=flexible), write_count(len(results), flexible=flexible))
        for result in results:
            _write_result(head, result, version)
            records = result.records
            size = 0 if records is None else records.size
            head.append(write_count(size, flexible=flexible))
            if records is not None and size:
                pieces += (b"".join(head), records)
                head = []
            head.append(tags)
        head.append(tags)
    head.append(tags)
    rest = b"".join(head)
    if rest:
        pieces.append(rest)
    return pieces


def _write_topic(topic: TopicRef, *, flexible: bool) -> bytes:
    return topic.bytes if isinstance(topic, UUID) else write_string(topic, flexible=flexible)


def _write_result(head: list[bytes], r: FetchResult[E], version: int) -> None:
    if version >= 5:
        head.append(
            _RESULT_5.pack(r.index, r.error_code, r.high_watermark, r.last_stable_offset, r.log_start_offset)
        )
    else:
        head.append(_RESULT_4.pack(r.index, r.error_code, r.high_watermark, r.last_stable_offset))
    flexible = version >= FLEXIBLE_FROM
    if r.aborted is None:
        head.append(b"\0" if flexible else b"\xff\xff\xff\xff")
    else:
        head.append(write_count(len(r.aborted), flexible=flexible))
        tags = b"\0" if flexible else b""
        head += (_ABORTED.pack(*pair) + tags for pair in r.aborted)
    if version >= 11:
        head.append(_INT32.pack(r.preferred_read_replica))


def fetch_response_size(pieces: Sequence[bytes | Extent]) -> int:
    """How many bytes the pieces of a response are together."""
    size = 0
    for piece in pieces:
        size += len(piece) if isinstance(piece, bytes) else piece.size
    return size


def write_fetch_request(
    version: int,
    *,
    topics: Mapping[T, Sequence[FetchPartition]],
    replica_id: int = -1,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 0x7FFFFFFF,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Mapping[T, Sequence[int]] | None = None,
    rack_id: str = "",
) -> bytes:
    """The body of a request. Session id 0 and epoch -1 ask for a full fetch without a session."""
    flexible = version >= FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    if version >= _WITHOUT_REPLICA_FROM:
        out = [_HEAD_15.pack(max_wait_ms, min_bytes, max_bytes, isolation_level)]
    else:
        out = [_HEAD.pack(replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level)]
    if version >= 7:
        out.append(_SESSION.pack(session_id, session_epoch))
    out.append(write_count(len(topics), flexible=flexible))
    for topic, partitions in topics.items():
        out += (_write_topic(topic, flexible=flexible), write_count(len(partitions), flexible=flexible))
        out += (_write_partition(partition, version) for partition in partitions)
        out.append(tags)
    if version >= 7:
        out.append(write_count(len(forgotten or ()), flexible=flexible))
        for topic, indexes in (forgotten or {}).items():
            out += (_write_topic(topic, flexible=flexible), write_count(len(indexes), flexible=flexible))
            out += (struct.pack(f">{len(indexes)}i", *indexes), tags)
    if version >= 11:
        out.append(write_string(rack_id, flexible=flexible))
    out.append(tags)
    return b"".join(out)


def _write_partition(p: FetchPartition, version: int) -> bytes:
    if version >= 12:
        return _PARTITION_12.pack(
            p.index,
            p.current_leader_epoch,
            p.fetch_offset,
            p.last_fetched_epoch,
            p.log_start_offset,
            p.partition_max_bytes,
            0,
        )
    if version >= 9:
        return _PARTITION_9.pack(
            p.index, p.current_leader_epoch, p.fetch_offset, p.log_start_offset, p.partition_max_bytes
        )
    if version >= 5:
        return _PARTITION_5.pack(p.index, p.fetch_offset, p.log_start_offset, p.partition_max_bytes)
    return _PARTITION_4.pack(p.index, p.fetch_offset, p.partition_max_bytes)


def read_fetch_response(body: memoryview, version: int) -> FetchResponse:
    """The answer in a frame, behind its header."""
    with cursor_errors("FetchResponse", version):
        cursor = Cursor(body, flexible=version >= FLEXIBLE_FROM)
        error_code = session_id = 0
        if version >= 7:
            throttle_time_ms, error_code, session_id = cursor.unpack(_ANSWER)
        else:
            (throttle_time_ms,) = cursor.unpack(_INT32)
        topics: list[tuple[TopicRef, list[FetchResult[memoryview]]]] = []
        for _ in range(cursor.count(size_min=3)):
            if version >= TOPIC_IDS_FROM:
                topic: TopicRef = read_uuid(cursor.unpack(_ID)[0])
            else:
                topic = cursor.string()
            results = [_read_result(cursor, version) for _ in range(cursor.count(size_min=24))]
            cursor.tags()
            topics.append((topic, results))
        cursor.tags()
        cursor.end()
        return FetchResponse(throttle_time_ms, error_code, session_id, topics)


def _read_result(cursor: Cursor, version: int) -> FetchResult[memoryview]:
    result: FetchResult[memoryview] = FetchResult(*cursor.unpack(_RESULT_5 if version >= 5 else _RESULT_4))
    count = cursor.count(size_min=16)
    if count >= 0:
        result.aborted = []
        for _ in range(count):
            producer_id, first_offset = cursor.unpack(_ABORTED)
            result.aborted.append((producer_id, first_offset))
            cursor.tags()
    if version >= 11:
        (result.preferred_read_replica,) = cursor.unpack(_INT32)
    result.records = cursor.nullable_bytes()
    cursor.tags()
    return result
