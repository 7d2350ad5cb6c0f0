"""Batches that follow one another in a segment file, without an index and without knowing how far it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.records import HEADER_BYTES, Batch, BatchError, read_batch
from tailrace.runtime import File

_PIECE_BYTES = 1 << 20
_MAGIC_AT = 16
_MAGIC = b"\x02"
_OFFSETS_AHEAD_MAX = 1 << 31  # more than a segment holds

See = Callable[[Batch, int], None]  # is told of a batch and its position


@dataclass(slots=True)
class Chain:
    """Whole batches from the beginning of a segment."""

    end: int  # position behind the last one
    next_offset: int


async def walk_chain(
    file: File,
    *,
    base: int,
    length: int,
    advance: Callable[[int], None],
    see: See = lambda _batch, _position: None,
) -> Chain:
    """Follow the batches in the first `length` bytes."""
    chain = Chain(0, base)
    buffer = memoryview(bytearray(min(_PIECE_BYTES, max(length, 1))))
    while chain.end < length:
        asked = min(len(buffer), length - chain.end)
        done = await file.read(chain.end, buffer[:asked])
        taken = _take(chain, buffer[:done], see)
        advance(taken)
        if not taken:
            needed = 12 + int.from_bytes(buffer[8:12], "big", signed=True) if done >= HEADER_BYTES else 0
            if done < asked or needed <= asked or chain.end + needed > length:
                break
            buffer = memoryview(bytearray(needed))
    return chain


def _take(chain: Chain, data: memoryview, see: See) -> int:
    taken = 0
    while taken < len(data):
        try:
            batch = read_batch(data, taken)
        except BatchError:
            break
        if batch.base_offset < chain.next_offset or not batch.check_crc():
            break
        see(batch, chain.end)
        taken += batch.size
        chain.end += batch.size
        chain.next_offset = batch.next_offset
    return taken


def holds_later_batch(data: memoryview, next_offset: int) -> bool:
    """Whether a whole batch at or after `next_offset` lies somewhere in `data`, but not at its beginning."""
    raw = bytes(data)
    place = raw.find(_MAGIC, _MAGIC_AT + 1)
    while place >= 0:
        begin = place - _MAGIC_AT
        ahead = int.from_bytes(raw[begin : begin + 8], "big", signed=True) - next_offset
        if 0 <= ahead < _OFFSETS_AHEAD_MAX and _is_batch(data, begin):
            return True
        place = raw.find(_MAGIC, place + 1)
    return False


def _is_batch(data: memoryview, position: int) -> bool:
    try:
        return read_batch(data, position).check_crc()
    except BatchError:
        return False
