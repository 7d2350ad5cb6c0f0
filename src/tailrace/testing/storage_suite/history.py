"""A log beside the list of batches that it must hold: the oracle of the suite.

The expected bytes of a batch are built apart from the ones handed to the log, with the offset and epoch that
the log should give it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.model import NO_PRODUCER, Epoch, Offset
from tailrace.records import Batch, Compression, build_batch, iter_batches, validate_batch
from tailrace.storage.api import PartitionLog, Slice
from tailrace.testing.clock import FakeClock

_BYTES_MAX = 16 << 20
_serial = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A batch to be appended: one record per timestamp, unlike the records of any other draft."""

    timestamps: Sequence[int]
    value_bytes: int = 16
    compression: Compression = Compression.NONE
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    log_append_time_ms: int | None = None
    serial: int = field(default_factory=_serial.__next__)

    def build(self, *, base_offset: int = 0, leader_epoch: int = -1) -> bytearray:
        return build_batch(
            [
                (timestamp, b"key-%d" % index, b"%0*d" % (self.value_bytes, self.serial), ())
                for index, timestamp in enumerate(self.timestamps)
            ],
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            compression=self.compression,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            log_append_time_ms=self.log_append_time_ms,
        )

    def validated(self, *, base_offset: int = 0, leader_epoch: int = -1) -> Batch:
        """As a producer's batch, or a leader's, arrives at the log."""
        data = self.build(base_offset=base_offset, leader_epoch=leader_epoch)
        return validate_batch(data, bytes_max=_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A batch as the log must give it back."""

    base_offset: int
    next_offset: int
    data: bytes


class History:
    """One log, and what has been done to it."""

    def __init__(self, log: PartitionLog, clock: FakeClock) -> None:
        self.log = log
        self.batches: list[Expected] = []
        self._clock = clock

    def draft(self, count: int = 1, *, value_bytes: int = 16) -> Draft:
        """A batch of `count` records, written now."""
        return Draft(timestamps=[self._clock.now_ms()] * count, value_bytes=value_bytes)

    def draft_of(self, producer_id: int, *, sequence: int, count: int = 1) -> Draft:
        """A batch of an idempotent producer, written now."""
        return Draft(
            timestamps=[self._clock.now_ms()] * count,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )

    def append(self, draft: Draft | None = None, *, epoch: int = 0) -> Expected:
        """Append as a leader does; checks the offset at once."""
        draft = draft or self.draft()
        base_offset = self.log.end_offset
        given = self.log.append(draft.validated(), leader_epoch=Epoch(epoch))
        assert given == base_offset, f"the log ended at {base_offset}, yet the batch got offset {given}"
        return self._expect(draft, base_offset, epoch)

    def follow(self, draft: Draft | None = None, *, base_offset: int, epoch: int = 0) -> Expected:
        """Append as a follower does: the batch comes with its place."""
        draft = draft or self.draft()
        given = self.log.append(draft.validated(base_offset=base_offset, leader_epoch=epoch))
        assert given == base_offset, f"a follower's batch of offset {base_offset} was appended as {given}"
        return self._expect(draft, base_offset, epoch)

    async def append_durably(self, draft: Draft | None = None, *, epoch: int = 0) -> Expected:
        """Append and wait."""
        expected = self.append(draft, epoch=epoch)
        await self.wait_durable()
        return expected

    async def fill(self, *counts: int, epoch: int = 0) -> None:
        """Append one batch of so many records each, and wait for all of them."""
        for count in counts:
            self.append(self.draft(count), epoch=epoch)
        await self.wait_durable()

    async def truncate(self, offset: int) -> None:
        """Cut the log, and the list, from the batch that holds `offset`."""
        await self.log.truncate(Offset(offset))
        kept = [batch for batch in self.batches if batch.next_offset <= offset]
        if len(kept) < len(self.batches):
            first_gone = self.batches[len(kept)].base_offset
            end = self.log.end_offset
            assert end <= first_gone, f"truncated from the batch at {first_gone}, the log still ends at {end}"
        self.batches = kept
        self.check_offsets()

    async def trim(self, offset: int) -> None:
        """Move the start of the log."""
        await self.log.trim(Offset(offset))
        start = self.log.start_offset
        assert start == offset, f"trimmed to {offset}, the log starts at {start}"
        self.check_offsets()

    async def wait_durable(self) -> None:
        """Wait for everything that was appended."""
        end = self.log.end_offset
        await self.log.wait_durable(end)
        durable = self.log.durable_offset
        assert durable >= end, f"wait_durable({end}) returned while only {durable} was durable"

    def _expect(self, draft: Draft, base_offset: int, epoch: int) -> Expected:
        expected = Expected(
            base_offset=base_offset,
            next_offset=base_offset + len(draft.timestamps),
            data=bytes(draft.build(base_offset=base_offset, leader_epoch=epoch)),
        )
        end = self.log.end_offset
        assert end == expected.next_offset, (
            f"the log ends at {end} after a batch up to {expected.next_offset}"
        )
        self.batches.append(expected)
        return expected

    async def read(self, offset: int, *, bytes_max: int = _BYTES_MAX, up_to: int | None = None) -> Slice:
        """Read as a caller does, at once or else waiting; checks that nothing from `up_to` on is shown.

        Without `up_to` the limit is the durable end.
        """
        limit = self.log.durable_offset if up_to is None else Offset(up_to)
        found = self.log.read_nowait(Offset(offset), bytes_max=bytes_max, up_to=limit)
        if found is None:
            found = await self.log.read(Offset(offset), bytes_max=bytes_max, up_to=limit)
        assert found.next_offset <= max(limit, offset), (
            f"a read from {offset} up to {limit} shows batches up to {found.next_offset}"
        )
        return found

    async def check_read(self, offset: int, *, bytes_max: int = _BYTES_MAX, up_to: int | None = None) -> int:
        """Read, and compare what comes with what must; returns the offset to go on at."""
        found = await self.read(offset, bytes_max=bytes_max, up_to=up_to)
        await self.check_slice(found, offset, bytes_max=bytes_max)
        return found.next_offset

    async def check_slice(self, found: Slice, offset: int, *, bytes_max: int) -> None:
        """Whole batches, the right ones, as they were written, and not too many."""
        data = await load_extents(found)
        batches = list(iter_batches(data))
        assert batches, f"a read from {offset} found nothing, below its limit"
        assert len(batches) == 1 or len(data) <= bytes_max, (
            f"a read of {bytes_max} bytes from {offset} found {len(batches)} batches, {len(data)} bytes"
        )
        wanted = [batch for batch in self.batches if batch.next_offset > offset][: len(batches)]
        assert [batch.base_offset for batch in batches] == [batch.base_offset for batch in wanted], (
            f"a read from {offset} found {batches}, not the batches at {[b.base_offset for b in wanted]}"
        )
        for have, want in zip(batches, wanted, strict=True):
            assert bytes(have.data) == want.data, f"the bytes of the batch at {want.base_offset} have changed"
        assert found.next_offset == wanted[-1].next_offset, (
            f"the read ended before {wanted[-1].next_offset}, yet goes on at {found.next_offset}"
        )

    async def check(self, *, bytes_max: int = _BYTES_MAX) -> None:
        """Read everything from start to end, and find every batch there, each once and in order."""
        self.check_offsets()
        offset: int = self.log.start_offset
        while offset < self.log.durable_offset:
            offset = await self.check_read(offset, bytes_max=bytes_max)
        last = self.batches[-1].next_offset if self.batches else self.log.start_offset
        assert offset == self.log.durable_offset >= last, (
            f"reading ended at {offset}: durable is {self.log.durable_offset}, appended was {last}"
        )
        rest = await self.read(offset)
        assert rest.size == 0, f"a read at the durable end, {offset}, found {rest.size} bytes"
        assert not rest.extents, f"a read at the durable end, {offset}, has extents: {rest.extents}"
        assert rest.next_offset == offset, f"an empty read at {offset} goes on at {rest.next_offset}"

    def check_repeated(self, draft: Draft, *, base_offset: int) -> None:
        """Sent again, the batch must be recognised as the one at `base_offset`."""
        found = self.log.producers.check(draft.validated())
        assert found is not None, f"the batch at {base_offset} is not recognised when it is sent again"
        last_offset = base_offset + len(draft.timestamps) - 1
        assert found[:2] == (base_offset, last_offset), (
            f"the batch at {base_offset} to {last_offset} is taken for the one at {found[0]} to {found[1]}"
        )

    def check_offsets(self) -> None:
        start, durable, end = self.log.start_offset, self.log.durable_offset, self.log.end_offset
        assert start <= durable <= end, f"start {start}, durable {durable} and end {end} are out of order"


async def load_extents(found: Slice) -> bytes:
    """All bytes of a slice, each extent loaded as its reader would, and its size compared."""
    parts = []
    for extent in found.extents:
        view = extent.load_nowait()
        if view is None:
            view = await extent.load()
        assert len(view) == extent.size, f"an extent says {extent.size} bytes and has {len(view)}"
        parts.append(bytes(view))
        extent.release()
    data = b"".join(parts)
    assert len(data) == found.size, f"a slice says {found.size} bytes and has {len(data)}"
    return data
