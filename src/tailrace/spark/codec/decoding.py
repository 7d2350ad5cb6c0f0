"""A fetch to rows: the bytes of many record batches become Arrow columns in one go.

`decode` is strict: the first broken batch is a BatchError that names topic, partition and offset.
`decode_sound` gives what is good and lists what is not. `decode_pieces` gives the rows in pieces of bounded
size, which is how a backlog is read in bounded memory. A batch is taken whole or not at all: rows of a broken
one are never shown, even those before the fault.

A piece is an arena (the fetched bytes themselves or, where a batch is compressed, all payloads joined) and a
matrix that says where its batches lie; a twin reads all of its records at once. Only where that fails is each
batch read by itself, to find the one to name.

Spark's timestamps are microseconds in 64 bits. A record whose milliseconds do not fit (the year 294247) makes
its batch a broken one, as it fails Spark's own source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from tailrace.model import ErrorCode, TopicPartition
from tailrace.records import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    BadSpan,
    Batch,
    BatchError,
    BytesLike,
    Walk,
    decompress,
    span_of,
)
from tailrace.spark.codec.columns import (
    BATCH_FIELDS,
    INT32_MAX,
    RECORD_BYTES_MIN,
    Columns,
    Ints,
    repeated_text,
)
from tailrace.spark.codec.schema import KAFKA_SCHEMA, plan_schema
from tailrace.spark.codec.twin import read_columns

PIECE_BYTES_MAX = 64 * 1024 * 1024
"""Uncompressed bytes of records in one piece, unless a single batch has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some rows of a fetch, and what could not be read among or after them."""

    rows: pa.RecordBatch
    bad: list[BadSpan]
    next_offset: int
    """Where to go on: every record before it is in the rows, or in a bad span, of some piece so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """What is good in a fetch, in as few record batches as can hold it, and what is not."""

    rows: list[pa.RecordBatch]
    bad: list[BadSpan]
    next_offset: int


def decode(
    data: BytesLike,
    *,
    start: int,
    end: int,
    topic: str,
    partition: int,
    headers: bool,
    schema: pa.Schema = KAFKA_SCHEMA,
    aborted: Sequence[tuple[int, int]] = (),
    check_crcs: bool = True,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> pa.RecordBatch:
    """The records of a fetch with offsets from `start` up to, not including, `end`.

    `aborted` lists (producer id, first offset) of transactions to leave out. `bytes_max` is the most that one
    compressed batch may give. More than 2 GiB of records are refused: `decode_pieces` gives those.
    """
    pieces = decode_pieces(
        data,
        start=start,
        end=end,
        topic=topic,
        partition=partition,
        headers=headers,
        schema=schema,
        aborted=aborted,
        check_crcs=check_crcs,
        bytes_max=bytes_max,
        piece_bytes_max=INT32_MAX,
    )
    rows = next(pieces).rows
    if next(pieces, None) is not None:
        raise BatchError(
            f"{topic}-{partition} from offset {start} on: more than {INT32_MAX} bytes are too many for one"
            " record batch of Arrow. Use decode_pieces",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
    return rows


def decode_sound(
    data: BytesLike,
    *,
    start: int,
    end: int,
    topic: str,
    partition: int,
    headers: bool,
    schema: pa.Schema = KAFKA_SCHEMA,
    aborted: Sequence[tuple[int, int]] = (),
    check_crcs: bool = True,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Sound:
    """Like `decode`, but a broken batch is listed instead of raised, and the others are still read."""
    pieces = list(
        decode_pieces(
            data,
            start=start,
            end=end,
            topic=topic,
            partition=partition,
            headers=headers,
            schema=schema,
            aborted=aborted,
            check_crcs=check_crcs,
            bytes_max=bytes_max,
            piece_bytes_max=INT32_MAX,
            keeps_bad=True,
        )
    )
    return Sound(
        rows=[piece.rows for piece in pieces],
        bad=[span for piece in pieces for span in piece.bad],
        next_offset=pieces[-1].next_offset,
    )


def decode_pieces(
    data: BytesLike,
    *,
    start: int,
    end: int,
    topic: str,
    partition: int,
    headers: bool,
    schema: pa.Schema = KAFKA_SCHEMA,
    aborted: Sequence[tuple[int, int]] = (),
    check_crcs: bool = True,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    piece_bytes_max: int = PIECE_BYTES_MAX,
    keeps_bad: bool = False,
) -> Iterator[Piece]:
    """The rows of a fetch, piece by piece, at least one; a piece is decompressed when it is asked for.

    With `keeps_bad` broken batches are listed in the pieces with their bytes, else the first is raised.
    """
    columns = plan_schema(schema, headers=headers)
    fetched = memoryview(data)
    reader = _Reader(
        TopicPartition(topic, partition),
        columns,
        fetched,
        start=start,
        end=end,
        keeps_bad=keeps_bad,
        bytes_max=bytes_max,
    )
    walk = Walk(start)
    batches = walk.over(
        fetched,
        end=end,
        aborted=aborted,
        check_crcs=check_crcs,
        may_be_cut=True,
        on_damage=reader.refuse,
    )
    rows_max = INT32_MAX // max(len(topic.encode()), 4)  # so that the topic column has room as well
    is_first = True
    load = _Load(fetched)
    for batch, _, _, position in batches:
        payload = reader.payload_of(batch, position)
        if payload is None:
            continue
        if load.batches and not load.has_room(batch, payload, bytes_max=piece_bytes_max, rows_max=rows_max):
            yield reader.read(load, next_offset=max(start, load.batches[-1].next_offset))
            is_first = False
            load = _Load(fetched)
        load.add(batch, position, payload)
    if load.batches or is_first or reader.bad:
        yield reader.read(load, next_offset=walk.next_offset)


class _Load:
    """The batches of a piece that is being collected."""

    __slots__ = ("batches", "bytes", "count", "fetched", "payloads", "positions")

    def __init__(self, fetched: memoryview) -> None:
        self.fetched = fetched
        self.batches: list[Batch] = []
        self.positions: list[int] = []
        self.payloads: list[BytesLike] = []
        self.bytes = 0
        self.count = 0

    def has_room(self, batch: Batch, payload: BytesLike, *, bytes_max: int, rows_max: int) -> bool:
        return self.bytes + len(payload) <= bytes_max and self.count + batch.count <= rows_max

    def add(self, batch: Batch, position: int, payload: BytesLike) -> None:
        self.batches.append(batch)
        self.positions.append(position)
        self.payloads.append(payload)
        self.bytes += len(payload)
        self.count += batch.count


class _Reader:
    """Reads pieces of one partition. `bad` collects spans until the next piece takes them along."""

    __slots__ = (
        "_bytes_max",
        "_end",
        "_fetched",
        "_headers",
        "_keeps_bad",
        "_schema",
        "_start",
        "_tp",
        "bad",
    )

    def __init__(
        self,
        tp: TopicPartition,
        schema: pa.Schema,
        fetched: memoryview,
        *,
        start: int,
        end: int,
        keeps_bad: bool,
        bytes_max: int,
    ) -> None:
        self._tp = tp
        self._fetched = fetched
        self._start = start
        self._end = end
        self._schema = schema
        self._headers = "headers" in schema.names
        self._keeps_bad = keeps_bad
        self._bytes_max = bytes_max
        self.bad: list[BadSpan] = []

    def refuse(self, span: BadSpan) -> bool:
        """List a bad span and pass over it, or raise it with its place."""
        if not self._keeps_bad:
            raise BatchError(f"{self._tp} at offset {span.first_offset}: {span.reason}", code=span.code)
        raw = bytes(self._fetched[span.position : span.position + span.size])
        self.bad.append(replace(span, raw=raw))
        return True

    def payload_of(self, batch: Batch, position: int) -> BytesLike | None:
        """The records of a batch, decompressed; None where they cannot be had."""
        payload: BytesLike = batch.data[HEADER_BYTES:]
        try:
            if batch.attributes & COMPRESSION_MASK:
                payload = decompress(
                    batch.attributes & COMPRESSION_MASK, payload, bytes_max=min(self._bytes_max, INT32_MAX)
                )
            _check_count(batch, len(payload))
        except BatchError as error:
            self.refuse(span_of(batch, position, error))
            return None
        return payload

    def read(self, load: _Load, *, next_offset: int) -> Piece:
        """The rows of the collected batches, without the broken ones."""
        columns = self._read_all(load)
        rows = self._assemble(columns)
        bad, self.bad = sorted(self.bad, key=lambda span: span.position), []
        return Piece(rows=rows, bad=bad, next_offset=next_offset)

    def _read_all(self, load: _Load) -> Columns:
        try:
            return self._read(load)
        except BatchError:
            # Which batch is at fault is found by reading each by itself: slow, and only here.
            return self._read(self._sound_part(load))

    def _sound_part(self, load: _Load) -> _Load:
        sound = _Load(load.fetched)
        for batch, position, payload in zip(load.batches, load.positions, load.payloads, strict=True):
            single = _Load(load.fetched)
            single.add(batch, position, payload)
            try:
                self._read(single)
            except BatchError as error:
                self.refuse(span_of(batch, position, error))
            else:
                sound.add(batch, position, payload)
        return sound

    def _read(self, load: _Load) -> Columns:
        arena, begins = _plan_arena(load)
        matrix = _plan_matrix(load, begins)
        return read_columns(arena, matrix, start=self._start, end=self._end, headers=self._headers)

    def _assemble(self, columns: Columns) -> pa.RecordBatch:
        count = len(columns.offset)
        made = {
            "key": columns.key,
            "value": columns.value,
            "offset": columns.offset,
            "timestamp": columns.timestamp,
            "timestampType": columns.timestamp_type,
            "headers": columns.headers,
        }
        arrays = []
        for field in self._schema:
            if field.name == "topic":
                array = repeated_text(self._tp.topic, count)
            elif field.name == "partition":
                # Not pa.array: of numpy's arrays it asks pandas first, whose import takes half a second.
                same = pa.py_buffer(np.full(count, self._tp.partition, dtype=np.int32))
                array = pa.Array.from_buffers(pa.int32(), count, [None, same])
            else:
                array = made[field.name]
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _check_count(batch: Batch, payload_bytes: int) -> None:
    """Refuse a record count that the payload cannot hold, before anything is allocated for it."""
    if batch.count > payload_bytes // RECORD_BYTES_MIN:
        raise BatchError(f"{batch.count} records cannot lie in {payload_bytes} bytes")


def _plan_arena(load: _Load) -> tuple[BytesLike, list[int]]:
    """One piece of memory that holds all payloads, and where each begins in it.

    Batches that are not compressed already lie in one, the fetched bytes.
    """
    if not load.batches:
        return b"", []
    first = load.positions[0]
    size = load.positions[-1] + load.batches[-1].size - first
    if size <= INT32_MAX and not any(batch.attributes & COMPRESSION_MASK for batch in load.batches):
        return load.fetched[first : first + size], [at - first + HEADER_BYTES for at in load.positions]
    begins = list(accumulate((len(payload) for payload in load.payloads[:-1]), initial=0))
    return (load.payloads[0] if len(begins) == 1 else b"".join(load.payloads)), begins


def _plan_matrix(load: _Load, begins: list[int]) -> Ints:
    """Where the batches lie in the arena, and what their records are relative to."""
    rows = [
        (
            begin,
            begin + len(payload),
            batch.count,
            batch.base_offset,
            batch.last_offset_delta,
            batch.base_timestamp,
            int(batch.is_log_append_time),
            batch.max_timestamp,
        )
        for batch, payload, begin in zip(load.batches, load.payloads, begins, strict=True)
    ]
    return np.array(rows, dtype=np.int64).reshape(len(rows), BATCH_FIELDS)
