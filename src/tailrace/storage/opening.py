"""Looking into batches without holding up the loop.

A batch of a megabyte may decompress to 64 MiB and hold a million records, and any client can send one. So
records are looked at in slices, with turns of the loop in between. A compressed batch is decompressed by a
thread, since codecs release the interpreter's lock, and only so many are open at a time: what they take
decompressed is bounded too.

For lookups and checks. Readers of many records (`broker.reading`, feeds) have paces of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final
from weakref import WeakKeyDictionary

from tailrace.model import Offset
from tailrace.records import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Batch,
    BatchError,
    BytesLike,
    Record,
    UndecodableBatch,
    decompress,
    read_batch,
)

_SLICE_RECORDS: Final = 500
"""Looked at in one turn: well under a millisecond."""
_THREAD_BYTES: Final = 512
"""A smaller compressed batch is opened in the loop: it cannot hold many records."""
_OPEN_MAX: Final = 2
"""Batches that are open decompressed at a time."""
_LENGTH_AT, _LENGTH_END = 8, LOG_OVERHEAD_BYTES
_ATTRIBUTES_LOW = 22  # the byte that has the codec's bits

_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

Visit = Callable[[Record], bool]


def is_costly(batch: Batch) -> bool:
    """Whether looking at all records of a batch takes longer than a turn of the loop should."""
    if batch.attributes & COMPRESSION_MASK and batch.size > _THREAD_BYTES:
        return True
    return batch.count > _SLICE_RECORDS


async def visit_records(
    batch: Batch, visit: Visit, *, records_of: Callable[[Batch], Iterator[Record]] = Batch.records
) -> None:
    """Show the records to `visit`, one after the other, until it returns True; BatchError as `records` does.

    `records_of` may choose some of them; it is given the batch without compression.
    """
    if not batch.attributes & COMPRESSION_MASK or batch.size <= _THREAD_BYTES:
        await _visit_slices(records_of(batch), visit)
        return
    loop = asyncio.get_running_loop()
    places = _places.get(loop)
    if places is None:
        places = _places[loop] = asyncio.Semaphore(_OPEN_MAX)
    async with places:
        await _visit_slices(records_of(await asyncio.to_thread(inflate, batch)), visit)


async def find_record_at(batch: Batch, timestamp_ms: int, *, start: int = 0) -> tuple[Offset, int] | None:
    """Offset and timestamp of the first record at or after `timestamp_ms`, or None; none before `start`.

    Looks at every record up to it: producers' timestamps go back and forth. Raises UndecodableBatch if it
    meets one that cannot be decoded.
    """
    found: tuple[Offset, int] | None = None

    def visit(record: Record) -> bool:
        nonlocal found
        if record.timestamp < timestamp_ms or record.offset < start:
            return False
        found = Offset(record.offset), record.timestamp
        return True

    if batch.max_timestamp < timestamp_ms:
        return None
    try:
        await visit_records(batch, visit)
    except BatchError as error:
        raise UndecodableBatch(error, offset=batch.base_offset, next_offset=batch.next_offset) from error
    return found


def inflate(batch: Batch) -> Batch:
    """The batch without compression, so that its size is what it takes in memory."""
    payload: BytesLike = batch.data[HEADER_BYTES:]
    codec = batch.attributes & COMPRESSION_MASK
    if not codec or not payload:
        return batch
    out = bytearray(batch.data[:HEADER_BYTES])
    out += decompress(codec, payload, bytes_max=DECOMPRESSED_BYTES_MAX)
    out[_LENGTH_AT:_LENGTH_END] = (len(out) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    out[_ATTRIBUTES_LOW] &= ~COMPRESSION_MASK & 0xFF
    return read_batch(out)


async def _visit_slices(records: Iterator[Record], visit: Visit) -> None:
    for count, record in enumerate(records, start=1):
        if visit(record):
            return
        if count % _SLICE_RECORDS == 0:
            await asyncio.sleep(0)
