"""Looking into batches without holding up the loop.

A batch of a megabyte may decompress to 64 MiB and hold a million records, and any client can send one. So
records are looked at in slices, with turns of the loop in between. A compressed batch is large if it is large
as it lies in the log or turns out to be when a bounded part of it is decompressed. A large one is
decompressed by a thread, since codecs release the interpreter's lock, and only two of them at a time. The
others, most by far, are opened in the loop, where it costs less than a thread.

`visit_records` is for lookups and checks: it keeps one of the two places until it has seen the records, so
what they take decompressed is bounded too. Readers that take records as they need them (`broker.reading`,
feeds) have `open_nowait` and `open_records`, and bound by themselves what they keep open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from tailrace.model import ErrorCode, Offset
from tailrace.records import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_END,
    Batch,
    BatchError,
    BytesLike,
    Record,
    UndecodableBatch,
    Visible,
    decompress,
    read_batch,
)

SLICE_RECORDS: Final = 500
"""Looked at in one turn: well under a millisecond."""
_CHEAP_BYTES: Final = 512
"""A smaller compressed batch holds few records, unless it was made to be costly."""
_PACKED_BYTES_MAX: Final = 128 * 1024
"""A larger compressed batch is opened by a thread."""
_OPENED_BYTES_MAX: Final = 256 * 1024
"""One that gives more than this is opened by a thread: a quarter of a millisecond, a whole one with gzip."""
_OPEN_MAX: Final = 2
"""Large batches that are decompressed at a time."""
_LENGTH_AT, _LENGTH_END = 8, LOG_OVERHEAD_BYTES
_ATTRIBUTES_LOW = 22  # the byte that has the codec's bits

_places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

Visit = Callable[[Record], bool]


def is_costly(batch: Batch) -> bool:
    """Whether looking at all records of a batch takes longer than a turn of the loop should."""
    if batch.attributes & COMPRESSION_MASK and batch.size > _CHEAP_BYTES:
        return True
    return batch.count > SLICE_RECORDS


async def visit_records(batch: Batch, visit: Visit, *, first: int = 0, end: int = NO_END) -> None:
    """Show the records to `visit`, one after the other, until it returns True; BatchError as `records` does.

    Those before `first` and from `end` on are not shown.
    """
    opened = _inflate_nowait(batch)
    if opened is not None:
        await _visit_slices(opened, visit, first, end)
        return
    async with _places_of_loop():
        await _visit_slices(await asyncio.to_thread(inflate, batch), visit, first, end)


class Opened(NamedTuple):
    """The visible records of a batch, decoded as they are taken."""

    records: Iterator[Record]
    size: int
    """The bytes that the decompressed batch takes beside the one in the log; 0 if it is not compressed."""


def open_nowait(visible: Visible) -> Opened | None:
    """The records of a batch; None if to reach them takes longer than a turn: then `open_records` does it.

    BatchError, now or with a record, where the bytes stop making sense.
    """
    batch = visible.batch
    if visible.first - batch.base_offset > SLICE_RECORDS:
        return None
    if not batch.attributes & COMPRESSION_MASK:
        return Opened(visible.records(), 0)
    opened = _inflate_nowait(batch)
    return None if opened is None else _opened(visible, opened)


async def open_records(visible: Visible) -> Opened:
    """The records of a large batch, with turns for others until the first of them is there.

    BatchError, now or with a record, where the bytes stop making sense.
    """
    batch = visible.batch
    inflated = _inflate_nowait(batch)
    if inflated is None:
        async with _places_of_loop():
            inflated = await asyncio.to_thread(inflate, batch)
    records, size = _opened(visible._replace(first=batch.base_offset), inflated)
    found = await find_from(records, visible.first)
    return Opened(records if found is None else chain((found,), records), size)


async def find_from(records: Iterator[Record], offset: int) -> Record | None:
    """The first record at or after an offset, None if there is none; it is taken, and those before it."""
    for count, record in enumerate(records, start=1):
        if record.offset >= offset:
            return record
        if count % SLICE_RECORDS == 0:
            await asyncio.sleep(0)
    return None


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


def inflate(batch: Batch, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Batch:
    """The batch without compression, so that its size is what it takes in memory."""
    payload: BytesLike = batch.data[HEADER_BYTES:]
    codec = batch.attributes & COMPRESSION_MASK
    if not codec or not payload:
        return batch
    out = bytearray(batch.data[:HEADER_BYTES])
    out += decompress(codec, payload, bytes_max=bytes_max)
    out[_LENGTH_AT:_LENGTH_END] = (len(out) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    out[_ATTRIBUTES_LOW] &= ~COMPRESSION_MASK & 0xFF
    return read_batch(out)


def _inflate_nowait(batch: Batch) -> Batch | None:
    """The batch without compression; None if it is so large that a thread should do it."""
    if not batch.attributes & COMPRESSION_MASK:
        return batch
    if batch.size > _PACKED_BYTES_MAX:
        return None
    try:
        return inflate(batch, bytes_max=_OPENED_BYTES_MAX)
    except BatchError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            return None
        raise


def _opened(visible: Visible, inflated: Batch) -> Opened:
    size = 0 if inflated is visible.batch else inflated.size
    return Opened(visible._replace(batch=inflated).records(), size)


def _places_of_loop() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    places = _places.get(loop)
    if places is None:
        places = _places[loop] = asyncio.Semaphore(_OPEN_MAX)
    return places


async def _visit_slices(batch: Batch, visit: Visit, first: int, end: int) -> None:
    for count, record in enumerate(batch.records(), start=1):
        if record.offset >= end or (record.offset >= first and visit(record)):
            return
        if count % SLICE_RECORDS == 0:
            await asyncio.sleep(0)
