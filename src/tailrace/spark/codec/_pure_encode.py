"""Columns to records, and keys to hashes, with numpy and Arrow's own kernels: half of the pure twin.

A record is a few varints, the key, a varint, the value, a varint and the headers. The varints of all rows are
made as matrices, a column per byte, and packed into binary columns; Arrow's `binary_join_element_wise` then
joins the parts of every row, and the bytes of the joined column are the records, one after the other.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.spark.codec.columns import Binary, Bytes, Ints, Rows
from tailrace.wire.kafka.partitioner import murmur2

_NOTHING = pa.scalar(b"", pa.large_binary())

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_STEPPED_BYTES_MAX = 1024
"""Keys up to this length are hashed together, a word of all of them at a time; the few longer ones alone."""


def write_payloads(rows: Rows, bounds: list[int], *, reserve: int) -> list[bytearray]:
    """For every two neighbours in `bounds` the records of the rows between them, after `reserve` zero bytes.

    Offset deltas count from 0 and timestamp deltas from the first row's, batch by batch.
    """
    edges: Ints = np.array(bounds, dtype=np.int64)
    firsts = edges[:-1]
    counts: Ints = edges[1:] - firsts
    key_lengths, value_lengths = _lengths_of(rows.key), _lengths_of(rows.value)
    blobs, blob_bytes, header_counts = _header_blobs(rows)
    head = [
        _Varints(rows.timestamps - np.repeat(rows.timestamps[firsts], counts)),
        _Varints(np.arange(bounds[-1], dtype=np.int64) - np.repeat(firsts, counts)),
        _Varints(key_lengths),
    ]
    middle, tail = _Varints(value_lengths), _Varints(header_counts)
    size = 1 + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + blob_bytes
    for part in (*head, middle, tail):
        size += part.sizes
    attributes = _Varints(np.zeros(bounds[-1], dtype=np.int64))  # one byte without a meaning so far
    parts = [_packed([_Varints(size), attributes, *head]), _column(rows.key)]
    parts += [_packed([middle]), _column(rows.value), _packed([tail])]
    ends, data = _join(parts if blobs is None else [*parts, blobs])
    view = memoryview(data)
    return [bytearray(reserve) + view[ends[first] : ends[last]] for first, last in pairwise(bounds)]


class _Varints:
    """A zigzag varint per row: its bytes as a matrix, of which the first `sizes` of a row count."""

    __slots__ = ("matrix", "sizes")

    def __init__(self, numbers: Ints) -> None:
        raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        width = max(1, -(-int(raw.max(initial=0)).bit_length() // 7))
        self.sizes = np.ones(len(raw), dtype=np.int64)
        self.matrix = np.empty((len(raw), width), dtype=np.uint8)
        for column in range(width):
            self.matrix[:, column] = raw & np.uint64(0x7F)
            raw >>= np.uint64(7)
            if column + 1 < width:
                goes_on = raw != 0
                self.sizes += goes_on
                self.matrix[:, column] |= goes_on.view(np.uint8) << np.uint8(7)


def _packed(parts: list[_Varints]) -> pa.Array:
    """Varints next to each other, as a binary column."""
    matrix = np.concatenate([part.matrix for part in parts], axis=1)
    counted = np.concatenate(
        [np.arange(part.matrix.shape[1]) < part.sizes[:, np.newaxis] for part in parts], axis=1
    )
    offsets = _ends_of(np.sum([part.sizes for part in parts], axis=0))
    data = matrix.reshape(-1) if offsets[-1] == matrix.size else matrix[counted]
    return _large_binary(offsets, data)


def _header_blobs(rows: Rows) -> tuple[pa.Array | None, Ints, Ints]:
    """The headers of every row as one piece of bytes, how long it is, and how many they are."""
    none = np.zeros(len(rows.timestamps), dtype=np.int64)
    if rows.header_offsets is None or rows.header_key is None or rows.header_value is None:
        return None, none, none
    counts = np.diff(rows.header_offsets)
    if not counts.any():
        return None, none, none
    key, value = rows.header_key, rows.header_value
    parts = [_packed([_Varints(_lengths_of(key))]), _column(key)]
    parts += [_packed([_Varints(_lengths_of(value))]), _column(value)]
    ends, data = _join(parts)
    ends = ends[rows.header_offsets]
    return _large_binary(ends, np.frombuffer(data, dtype=np.uint8)), np.diff(ends), counts


def _join(parts: list[pa.Array]) -> tuple[Ints, pa.Buffer]:
    """The parts of every row joined: where the rows begin and end, and their bytes."""
    joined = pc.binary_join_element_wise(*parts, _NOTHING, null_handling="replace", null_replacement="")
    _, offsets, data = joined.buffers()
    return np.frombuffer(offsets, dtype=np.int64)[: len(joined) + 1], data


def _lengths_of(column: Binary) -> Ints:
    """Of every element; -1 where it is null."""
    lengths = np.diff(column.offsets)
    if column.is_null is not None:
        lengths[column.is_null] = -1
    return lengths


def _ends_of(sizes: Ints) -> Ints:
    ends = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _column(column: Binary) -> pa.Array:
    bits = None
    if column.is_null is not None:
        bits = pa.py_buffer(np.packbits(~column.is_null, bitorder="little"))
    return _large_binary(column.offsets, column.data, bits)


def _large_binary(offsets: Ints, data: Bytes, bits: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def hash_keys(keys: Binary) -> npt.NDArray[np.uint32]:
    """murmur2 of every key, as Kafka's Java client computes it; of a null key, some number."""
    begins = keys.offsets[:-1]
    lengths = np.diff(keys.offsets)
    data = keys.data if len(keys.data) else np.zeros(1, dtype=np.uint8)
    hashes = _SEED ^ lengths.astype(np.uint32)
    rows = np.flatnonzero((lengths >= 4) & (lengths <= _STEPPED_BYTES_MAX))
    at, left = begins[rows], lengths[rows] // 4
    while len(rows):
        k = _words_at(data, at, 4) * _M
        k = (k ^ (k >> np.uint32(24))) * _M
        hashes[rows] = hashes[rows] * _M ^ k
        goes_on = left > 1
        rows, at, left = rows[goes_on], at[goes_on] + 4, left[goes_on] - 1
    for rest in (1, 2, 3):
        rows = np.flatnonzero(lengths & 3 == rest)
        at = begins[rows] + (lengths[rows] & ~3)
        hashes[rows] = (hashes[rows] ^ _words_at(data, at, rest)) * _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(lengths > _STEPPED_BYTES_MAX).tolist():
        hashes[row] = murmur2(data[begins[row] : begins[row] + lengths[row]].tobytes())
    return hashes


def _words_at(data: Bytes, positions: Ints, size: int) -> npt.NDArray[np.uint32]:
    """The little-endian numbers of `size` bytes at the positions."""
    words = data[positions].astype(np.uint32)
    for byte in range(1, size):
        words |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words
