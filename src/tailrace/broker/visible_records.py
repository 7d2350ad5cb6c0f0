"""Reading a partition for its records: immediate while the bytes are hot, awaited when they are cold.

Every reader in this process uses it: feeds of subscriptions and live tails, reads by HTTP, the search for the
newest records, delayed messages, internal topics, the embedded broker. Only the Kafka listener, which serves
bytes, does not. A read gives a `Portion`: whole batches, of which `records.Walk` shows the visible ones.

The bound of a read is the partition's last stable offset: to deliver, show or acknowledge a record of a
transaction that may still be aborted makes no sense. Records of aborted transactions are not visible. With
`read_uncommitted` the bound is the high watermark, and records of open and aborted transactions are visible:
for readers that must find a record whether or not a transaction is open before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tailrace.broker.partition import Partition
from tailrace.model import Offset
from tailrace.records import NO_END, BatchError, OnDamage, Record, Visible, Walk, refuse, span_of
from tailrace.storage.api import Slice
from tailrace.storage.opening import Visit, visit_records


class Portion:
    """The batches that one read found; `next_offset` is where the next read goes on."""

    __slots__ = ("_aborted", "_end", "_start", "data", "next_offset")

    def __init__(
        self, found: Slice, data: bytes, start: int, end: int, *, aborted: Sequence[tuple[int, int]] = ()
    ) -> None:
        following = found.next_offset if found.next_offset < end else end
        self.next_offset = following if following > start else start
        self.data = data
        """Whole batches. The first may begin before `start`, the last may end after `end`."""
        self._start = start
        self._end = end
        self._aborted = aborted

    def __repr__(self) -> str:
        return f"<Portion of {len(self.data)} bytes, offsets {self._start}-{self.next_offset - 1}>"

    def batches(self, *, shows_control: bool = False, on_damage: OnDamage = refuse) -> Iterator[Visible]:
        """The visible batches, with the offsets to keep of each."""
        return Walk(self._start).over(
            self.data,
            end=self._end,
            aborted=self._aborted,
            shows_control=shows_control,
            on_damage=on_damage,
        )

    async def visit(self, visit: Visit, *, on_damage: OnDamage = refuse) -> None:
        """Show the visible records to `visit`, as `records` gives them, until it returns True.

        Others have turns meanwhile: a portion may hold a million records (`storage.opening`).
        """
        following, is_over = 0, False

        def visit_counted(record: Record) -> bool:
            nonlocal following, is_over
            following = record.offset + 1
            is_over = visit(record)
            return is_over

        for visible in self.batches(on_damage=on_damage):
            following = visible.first
            try:
                await visit_records(visible.batch, visit_counted, first=visible.first, end=visible.end)
            except BatchError as error:
                span = span_of(visible.batch, visible.position, error)
                is_over = not on_damage(replace(span, first_offset=following))
            if is_over:
                return

    def records(self, *, on_damage: OnDamage = refuse) -> Iterator[Record]:
        """The visible records, decoded one at a time.

        A producer can send records that make no sense with a correct checksum: `on_damage` decides about such
        a batch too. Its span begins at the first record that was not read.
        """
        for visible in self.batches(on_damage=on_damage):
            following = visible.first
            try:
                for record in visible.records():
                    following = record.offset + 1
                    yield record
            except BatchError as error:
                span = span_of(visible.batch, visible.position, error)
                if not on_damage(replace(span, first_offset=following)):
                    return


def read_nowait(
    partition: Partition, offset: int, *, bytes_max: int, end: int = NO_END, read_uncommitted: bool = False
) -> Portion | None:
    """Batches from the one that holds `offset`, at least one, else at most `bytes_max` bytes.

    Records at or above `end` or the bound are not shown. None if the bytes must come from the disk
    first. Raises BrokerError, OffsetOutOfRange among them.
    """
    bound = partition.high_watermark if read_uncommitted else partition.last_stable_offset
    found = partition.read_nowait(Offset(offset), bytes_max=bytes_max, up_to=bound)
    if found is None or (data := _load_nowait(found)) is None:
        return None
    aborted = () if read_uncommitted else partition.aborted(Offset(offset), found.next_offset)
    return Portion(found, data, offset, end if end < bound else bound, aborted=aborted)


async def read(
    partition: Partition, offset: int, *, bytes_max: int, end: int = NO_END, read_uncommitted: bool = False
) -> Portion:
    """Like `read_nowait`, waiting for the disk where it must; LogDamaged where the bytes are damaged."""
    bound = partition.high_watermark if read_uncommitted else partition.last_stable_offset
    # Before the wait: compaction may remove the last trace of a transaction whose records are being read.
    aborted = () if read_uncommitted else partition.aborted(Offset(offset), bound)
    found = await partition.read(Offset(offset), bytes_max=bytes_max, up_to=bound)
    if aborted:
        aborted = [each for each in aborted if each.first_offset < found.next_offset]
    return Portion(found, await found.load(), offset, end if end < bound else bound, aborted=aborted)


def _load_nowait(found: Slice) -> bytes | None:
    """The bytes of a slice if all are in memory. Copied: decoding is lazy and buffers are pooled."""
    parts = []
    for extent in found.extents:
        view = extent.load_nowait()
        if view is None:
            return None
        parts.append(bytes(view))
        extent.release()
    return parts[0] if len(parts) == 1 else b"".join(parts)
