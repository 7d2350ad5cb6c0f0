"""The one reader of record batches: which batches of some bytes are visible, and which of their offsets.

Everything that reads batches for their records goes through `Walk`: the Kafka client, the Spark codec and the
broker's readers. It yields batches and the range of offsets to keep, never records.

    bytes     | batch | batch | marker | batch | bat      a fetch may end within a batch
    offsets     [start ........................ end)      a batch may reach over either end
    yielded       yes     yes    no       if not aborted

- A batch is checked before it is judged: its length and format, its offsets, which must grow from batch to
  batch, its count, and its CRC with `check_crcs`. A damaged batch goes to the policy `on_damage`. Where even
  the length makes no sense, the rest of the bytes is one damaged span: nothing says where the next batch
  begins.
- Control batches are not visible without `shows_control`.
- `aborted` lists (producer id, first offset) of aborted transactions. The transactional batches of such a
  producer are not visible from that offset up to its next marker (KIP-98).
- A batch that compaction has emptied, and offsets between batches, are passed.
- With `may_be_cut` (a fetch, whose reply is cut by size) a batch that is cut off at the end is left for the
  next fetch. The first batch of a fetch is always whole (KIP-74), so a first batch that is cut off is damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import NamedTuple

from tailrace.model import ErrorCode
from tailrace.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    Batch,
    read_batch,
)
from tailrace.records.error import BatchError
from tailrace.records.record import BytesLike, Record

NO_END = (1 << 63) - 1
"""As the end of a walk: everything that is there."""

_OFFSET_MAX = (1 << 63) - 1
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_MAY_BE_HIDDEN = CONTROL_BIT | TRANSACTIONAL_BIT
_new_tuple = tuple.__new__


class Visible(NamedTuple):
    """A batch that has offsets to show: those from `first` to before `end`."""

    batch: Batch
    first: int
    end: int
    position: int
    """Where the batch begins in the bytes."""

    def records(self) -> Iterator[Record]:
        """The records to keep, decoded one at a time; BatchError where the bytes stop making sense."""
        batch, first, end, _ = self
        records = batch.records()
        base = batch.base_offset
        if first > base:
            records = dropwhile(lambda record: record.offset < first, records)
        if end <= base + batch.last_offset_delta:
            records = takewhile(lambda record: record.offset < end, records)
        return records


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSpan:
    """Bytes that cannot be read, and why: `size` of them, from `position` on."""

    position: int
    size: int
    first_offset: int
    """The first offset that is lost, as far as it can be known."""
    next_offset: int | None
    """The first one after it; None where not even the length of the batch can be believed."""
    reason: str
    code: ErrorCode
    raw: bytes = field(default=b"", repr=False, compare=False)
    """The bytes themselves, where the caller keeps them."""


OnDamage = Callable[[BadSpan], bool]
"""The policy for damage: raises to refuse it; returns True to pass over it, False to end the walk there."""


def refuse(span: BadSpan) -> bool:
    """Raise the damage as a BatchError that names its offset."""
    raise BatchError(f"the batch at offset {span.first_offset}: {span.reason}", code=span.code)


def pass_over(_span: BadSpan) -> bool:
    """Go on behind the damage and say nothing."""
    return True


def stop(_span: BadSpan) -> bool:
    """End before the damage."""
    return False


class Walk:
    """Goes once over the batches of some bytes, from the offset `next_offset` on.

    Every offset before `next_offset` is settled: it lay in a batch before the one yielded last, or in none.
    After the walk it says where to read on.
    """

    __slots__ = ("next_offset",)

    def __init__(self, start: int) -> None:
        self.next_offset = start

    def over(
        self,
        data: BytesLike,
        *,
        end: int = NO_END,
        aborted: Sequence[tuple[int, int]] = (),
        shows_control: bool = False,
        check_crcs: bool = False,
        may_be_cut: bool = False,
        on_damage: OnDamage = refuse,
    ) -> Iterator[Visible]:
        """The visible batches with offsets before `end`, in order."""
        view, start = memoryview(data), self.next_offset
        size = len(view) if start < end else 0
        hidden: _Hidden | None = None  # made for the first batch that needs it
        position = offset_min = claimed = 0
        while position < size:
            try:
                batch = read_batch(view, position)
            except BatchError as error:
                if position and may_be_cut and _is_cut(view, position):
                    break
                on_damage(_span_of_rest(view, position, max(offset_min, start), error))
                return
            base, delta, count = batch.base_offset, batch.last_offset_delta, batch.count
            if base >= end:
                self._pass(end)
                return
            following = base + delta + 1
            # The quick test refuses an emptied batch too: `_fault` tells what is wrong, if anything is.
            if (
                count <= 0
                or delta < 0
                or base < offset_min
                or following > _OFFSET_MAX
                or (check_crcs and not batch.check_crc())
            ) and (fault := _fault(batch, offset_min, check_crcs=check_crcs)) is not None:
                span = span_of(batch, position, fault)
                if not on_damage(span):
                    return
                # The next batch tells where the damage ends; without one the damaged header is believed.
                claimed = span.next_offset or 0
                offset_min = max(offset_min, base + 1)
            else:
                is_hidden = False
                if batch.attributes & _MAY_BE_HIDDEN:
                    hidden = hidden or _Hidden(aborted, shows_control=shows_control)
                    is_hidden = hidden.hides(batch)
                if count and not is_hidden and following > start:
                    # No calls of max, min and Visible: they would show where batches are small.
                    first, last = base if base > start else start, following if following < end else end
                    yield _new_tuple(Visible, (batch, first, last, position))
                claimed, offset_min = 0, following
            if offset_min > start:
                self.next_offset = offset_min if offset_min < end else end
            position += batch.size
        if claimed:
            self._pass(min(claimed, end))

    def _pass(self, offset: int) -> None:
        self.next_offset = max(self.next_offset, offset)


class _Hidden:
    """Which control and transactional batches are not visible; asked for each of them, in order."""

    __slots__ = ("_aborted", "_aborting", "_shows_control")

    def __init__(self, aborted: Sequence[tuple[int, int]], *, shows_control: bool) -> None:
        self._aborted = sorted(aborted, key=lambda each: each[1], reverse=True)  # the earliest last
        self._aborting: set[int] = set()  # producers whose current transaction is one of the aborted
        self._shows_control = shows_control

    def hides(self, batch: Batch) -> bool:
        """Whether the batch is not visible."""
        while self._aborted and self._aborted[-1][1] <= batch.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        if batch.is_control:
            # Either marker ends the transaction, and a committed transaction is not among the aborted.
            self._aborting.discard(batch.producer_id)
            return not self._shows_control
        return batch.producer_id in self._aborting


def span_of(batch: Batch, position: int, error: BatchError) -> BadSpan:
    """A batch that cannot be read. Its own offsets are named as far as its header makes sense."""
    delta = min(max(batch.last_offset_delta, 0), _OFFSET_MAX - 1 - max(batch.base_offset, 0))
    return BadSpan(
        position=position,
        size=batch.size,
        first_offset=batch.base_offset,
        next_offset=batch.base_offset + delta + 1,
        reason=str(error),
        code=error.code,
    )


def _span_of_rest(view: memoryview, position: int, first_offset: int, error: BatchError) -> BadSpan:
    return BadSpan(
        position=position,
        size=len(view) - position,
        first_offset=first_offset,
        next_offset=None,
        reason=str(error),
        code=error.code,
    )


def _is_cut(view: memoryview, position: int) -> bool:
    """Whether the batch at `position` goes on after the end of the bytes."""
    left = len(view) - position
    if left < LOG_OVERHEAD_BYTES:
        return True
    length = int(_OFFSET_AND_LENGTH.unpack_from(view, position)[1])
    return LOG_OVERHEAD_BYTES + length > left


def _fault(batch: Batch, offset_min: int, *, check_crcs: bool) -> BatchError | None:
    """What is wrong with a batch; None if nothing is."""
    base, delta, count = batch.base_offset, batch.last_offset_delta, batch.count
    if base < offset_min:
        return BatchError(f"its base offset is {base}, after the offsets up to {offset_min - 1}")
    if check_crcs and not batch.check_crc():
        return BatchError(f"its CRC is not the {batch.crc:#010x} of its header")
    if delta < 0 or base > _OFFSET_MAX - delta - 1:
        return BatchError(f"offsets {base} + {delta} are out of range")
    if count < 0:
        return BatchError(f"a batch cannot hold {count} records")
    if not count and batch.size != HEADER_BYTES and not batch.is_control:
        return BatchError(f"{batch.size - HEADER_BYTES} bytes follow the last of 0 records")
    return None
