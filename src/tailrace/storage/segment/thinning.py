"""Taking records out of a batch without holding the loop.

A batch may hold a hundred thousand records and take megabytes. So its records are encoded in portions, each
of which `rebuild_batch` makes as a small batch of its own; the payloads, one after the other, are the payload
of the whole, because every record names its offset and time relative to the same header. Codecs work on the
whole payload; where that is large they do it in a thread, in single calls that release the GIL.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from tailrace.records import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    UNCHECKED_BYTES,
    Batch,
    BytesLike,
    Record,
    compress,
    crc32c,
    decompress,
    read_batch,
    rebuild_batch,
)
from tailrace.storage.segment.pace import Pace

_PORTION_RECORDS = 256
# From here on a thread is worth its price. What is packed may become a thousand times as much.
_THREAD_BYTES = 32 * 1024
_THREAD_PACKED_BYTES = 4 * 1024

# The fields of the header that depend on all portions; the diagram of the header stands in tailrace.records.
_LENGTH, _LENGTH_AT = struct.Struct(">i"), 8
_CRC, _CRC_AT = struct.Struct(">I"), 17
_ATTRIBUTES, _ATTRIBUTES_AT = struct.Struct(">h"), 21
_MAX_TIMESTAMP, _MAX_TIMESTAMP_AT = struct.Struct(">q"), 35
_COUNT, _COUNT_AT = struct.Struct(">i"), 57


async def read_plain(batch: Batch) -> Batch:
    """The batch with its records uncompressed; to be read and not to be stored, for its CRC does not hold.

    BatchError if the records cannot be decompressed.
    """
    codec = batch.attributes & COMPRESSION_MASK
    if not codec:
        return batch
    packed = batch.data[HEADER_BYTES:]
    payload: BytesLike = b""
    if len(packed) > _THREAD_PACKED_BYTES:
        payload = await asyncio.to_thread(
            decompress, batch.compression, packed, bytes_max=DECOMPRESSED_BYTES_MAX
        )
    elif packed:
        payload = decompress(batch.compression, packed, bytes_max=DECOMPRESSED_BYTES_MAX)
    data = bytearray(batch.data[:HEADER_BYTES])
    data += payload
    _LENGTH.pack_into(data, _LENGTH_AT, len(data) - LOG_OVERHEAD_BYTES)
    _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, batch.attributes & ~COMPRESSION_MASK)
    return read_batch(data)


async def thin(
    batch: Batch, plain: Batch, kept: Sequence[Record], *, delete_horizon_ms: int | None, pace: Pace
) -> bytearray:
    """`batch` with only `kept` left in it, byte for byte what `rebuild_batch` makes.

    `plain` is what `read_plain` made of the batch.
    """
    if plain is batch and len(kept) <= _PORTION_RECORDS:
        return rebuild_batch(batch, kept, delete_horizon_ms=delete_horizon_ms)
    header = rebuild_batch(plain, (), delete_horizon_ms=delete_horizon_ms)
    if not kept:
        return header
    payload, max_timestamp = bytearray(), None
    for first in range(0, len(kept), _PORTION_RECORDS):
        portion = kept[first : first + _PORTION_RECORDS]
        part = read_batch(rebuild_batch(plain, portion, delete_horizon_ms=delete_horizon_ms))
        payload += part.data[HEADER_BYTES:]
        max_timestamp = (
            part.max_timestamp if max_timestamp is None else max(max_timestamp, part.max_timestamp)
        )
        await pace.wait_turn()
    assert max_timestamp is not None
    return _join(
        header,
        await _pack(batch, payload),
        codec=batch.attributes & COMPRESSION_MASK,
        max_timestamp=max_timestamp,
        count=len(kept),
    )


async def _pack(batch: Batch, payload: bytearray) -> BytesLike:
    if not batch.attributes & COMPRESSION_MASK:
        return payload
    if len(payload) > _THREAD_BYTES:
        return await asyncio.to_thread(compress, batch.compression, payload)
    return compress(batch.compression, payload)


def _join(header: bytearray, payload: BytesLike, *, codec: int, max_timestamp: int, count: int) -> bytearray:
    """A whole batch out of the header of an emptied one and a payload."""
    (attributes,) = _ATTRIBUTES.unpack_from(header, _ATTRIBUTES_AT)
    header += payload
    _LENGTH.pack_into(header, _LENGTH_AT, len(header) - LOG_OVERHEAD_BYTES)
    _ATTRIBUTES.pack_into(header, _ATTRIBUTES_AT, attributes | codec)
    _MAX_TIMESTAMP.pack_into(header, _MAX_TIMESTAMP_AT, max_timestamp)
    _COUNT.pack_into(header, _COUNT_AT, count)
    _CRC.pack_into(header, _CRC_AT, crc32c(memoryview(header)[UNCHECKED_BYTES:]))
    return header
