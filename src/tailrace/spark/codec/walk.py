"""Which batches of a fetch have rows to show, and which are not to be trusted.

A fetch is a row of whole batches. The first may begin before the range that is read, the last may end after
it or be cut off, in which case it is left for the next fetch. Control batches are never shown, nor are those
of transactions that the broker lists as aborted, from their first offset to their marker (KIP-98).

A batch is trusted as far as its CRC reaches. Base offset and length lie outside of it: offsets must grow from
batch to batch, and where a length makes no sense the rest of the fetch is one bad span, since nothing in it
says where the next batch would begin.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tailrace.model import ErrorCode
from tailrace.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, Batch, BatchError, BytesLike, read_batch
from tailrace.spark.codec.columns import RECORD_BYTES_MIN

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSpan:
    """Bytes of a fetch that cannot be read, and why: `size` of them, from `position` on."""

    position: int
    size: int
    first_offset: int
    """The first offset that is lost, as far as it can be known."""
    next_offset: int | None
    """The first one after it; None where not even the length of the batch can be believed."""
    reason: str
    code: ErrorCode
    raw: bytes = field(default=b"", repr=False, compare=False)
    """The bytes themselves, where somebody means to keep them."""


class Walk:
    """Goes once over the batches of a fetch; `next_offset` says from where to fetch next."""

    __slots__ = ("_aborted", "_aborting", "_check_crcs", "_end", "_start", "next_offset", "view")

    def __init__(
        self,
        data: BytesLike,
        *,
        start: int,
        end: int,
        aborted: Sequence[tuple[int, int]],
        check_crcs: bool,
    ) -> None:
        self.next_offset = start
        self.view = memoryview(data)
        self._start = start
        self._end = end
        self._check_crcs = check_crcs
        self._aborted = sorted(aborted, key=lambda each: each[1], reverse=True)  # the earliest last
        self._aborting: set[int] = set()  # producers whose current transaction is one of the aborted

    def __iter__(self) -> Iterator[tuple[int, Batch] | BadSpan]:
        """Batches with rows to show, with their positions, and bad spans, in order."""
        position = offset_min = claimed = 0
        while position < len(self.view) and not (position and self._is_cut(position)):
            try:
                batch = read_batch(self.view, position)
            except BatchError as error:
                yield self._rest(position, offset_min, error)
                return
            if batch.base_offset >= self._end:
                self._pass(self._end)
                return
            try:
                self._check(batch, offset_min)
            except BatchError as error:
                span = span_of(batch, position, error)
                yield span
                # Where it ends is told by the next batch; only where none follows its own word is taken.
                claimed = span.next_offset or 0
                offset_min = max(offset_min, batch.base_offset + 1)
            else:
                claimed = 0
                if not self._is_hidden(batch) and batch.next_offset > self._start and batch.count:
                    yield position, batch
                offset_min = batch.next_offset
            self._pass(offset_min)
            position += batch.size
        self._pass(claimed)

    def _pass(self, offset: int) -> None:
        self.next_offset = max(self.next_offset, min(offset, self._end))

    def _is_cut(self, position: int) -> bool:
        """Whether the batch at `position` is only begun. The first one never is (KIP-74)."""
        left = len(self.view) - position
        if left < LOG_OVERHEAD_BYTES:
            return True
        length = int(_OFFSET_AND_LENGTH.unpack_from(self.view, position)[1])
        return length >= 0 and LOG_OVERHEAD_BYTES + length > left

    def _check(self, batch: Batch, offset_min: int) -> None:
        if batch.base_offset < offset_min:
            raise BatchError(
                f"its base offset is {batch.base_offset}, after the offsets up to {offset_min - 1}"
            )
        if self._check_crcs and not batch.check_crc():
            raise BatchError(f"its CRC is not the {batch.crc:#010x} of its header")
        if batch.last_offset_delta < 0 or batch.base_offset > _INT64_MAX - batch.last_offset_delta - 1:
            raise BatchError(f"offsets {batch.base_offset} + {batch.last_offset_delta} are out of range")
        if batch.count < 0:
            raise BatchError(f"a batch cannot hold {batch.count} records")
        if not batch.count and batch.size != HEADER_BYTES and not batch.is_control:
            raise BatchError(f"{batch.size - HEADER_BYTES} bytes follow the last of 0 records")

    def _is_hidden(self, batch: Batch) -> bool:
        while self._aborted and self._aborted[-1][1] <= batch.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        if batch.is_control:
            # Either marker ends the transaction, and a committed one is not among the aborted.
            self._aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborting

    def _rest(self, position: int, offset_min: int, error: BatchError) -> BadSpan:
        return BadSpan(
            position=position,
            size=len(self.view) - position,
            first_offset=max(offset_min, self._start),
            next_offset=None,
            reason=str(error),
            code=error.code,
        )


def span_of(batch: Batch, position: int, error: BatchError) -> BadSpan:
    """A batch that cannot be read. Its own offsets are named as far as its header makes sense."""
    delta = min(max(batch.last_offset_delta, 0), _INT64_MAX - 1 - max(batch.base_offset, 0))
    return BadSpan(
        position=position,
        size=batch.size,
        first_offset=batch.base_offset,
        next_offset=batch.base_offset + delta + 1,
        reason=str(error),
        code=error.code,
    )


def check_count(batch: Batch, payload_bytes: int) -> None:
    """Refuse a record count that the payload cannot hold, before anything is allocated for it."""
    if batch.count > payload_bytes // RECORD_BYTES_MIN:
        raise BatchError(f"{batch.count} records cannot lie in {payload_bytes} bytes")
