"""What a tail shows before it is live: records that are in the log already.

It goes through the log at its client's speed, holding one round at a time: some records of each partition,
merged by their time. It is over for a partition as soon as the ring of the topic has everything from there
on, and from then on the tail takes the rest out of the ring, without a gap and without showing a record
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from tailrace.broker.partition import Partition
from tailrace.broker.topic import Topic
from tailrace.broker.visible_records import read, read_nowait
from tailrace.http.live.entry import Entry, Filter, record_entry
from tailrace.model import OffsetOutOfRange
from tailrace.records import BadSpan, Record, refuse


class Round(NamedTuple):
    """What one look at the log gave."""

    skipped: int  # offsets that were gone
    entries: list[Entry]
    scanned: int  # records that were looked at


class History:
    """One tail's way through the log."""

    def __init__(self, topic: Topic, positions: dict[int, int], *, filter: Filter, bytes_max: int) -> None:
        self._topic = topic
        self._filter = filter
        self._bytes_max = bytes_max  # of one round
        self._skipped = 0
        self._scanned = 0
        self.positions = positions  # by partition: the offset that comes next

    def __repr__(self) -> str:
        return f"<History of {self._topic.name} at {self.positions}>"

    def has_reached(self, kept_from: dict[int, int]) -> bool:
        """Whether a ring that keeps everything from these offsets on can take over."""
        if self._filter.partition is None:
            for partition in kept_from.keys() - self.positions.keys():
                self.positions[partition] = 0  # it is new, and so is all that is in it
        return all(at >= kept_from[partition] for partition, at in self.positions.items())

    async def next_round(self, kept_from: dict[int, int]) -> Round:
        """The next records of the partitions that are not there yet. BrokerError if they cannot be read."""
        share = max(self._bytes_max // len(self.positions), 1)
        found: list[list[Entry]] = []
        room = self._bytes_max
        for index in list(self.positions):
            if room <= 0:
                break
            if self.positions[index] >= kept_from[index]:
                continue
            entries = await self._read(self._topic.partitions[index], share)
            room -= sum([entry.size for entry in entries]) + 1
            found.append(entries)
            self.positions[index] = self.positions.pop(index)  # the others come first next time
        skipped, self._skipped = self._skipped, 0
        scanned, self._scanned = self._scanned, 0
        return Round(skipped, _merged(found), scanned)

    # ---- inside

    async def _read(self, partition: Partition, bytes_max: int) -> list[Entry]:
        """The next records of one partition, at least one unless none is admitted."""
        index = partition.index
        begin = self.positions[index]
        try:
            portion = read_nowait(partition, begin, bytes_max=bytes_max)
            if portion is None:
                portion = await read(partition, begin, bytes_max=bytes_max)
        except OffsetOutOfRange as gone:
            self._skipped += max(gone.start - begin, 0)
            self.positions[index] = gone.start if begin < gone.start else gone.end
            return []
        entries: list[Entry] = []
        size = 0
        following = portion.next_offset

        def visit(record: Record) -> bool:
            nonlocal size, following
            self._scanned += 1
            if not self._filter.admits(record):
                return False
            entries.append(record_entry(partition.topic, index, record))
            size += entries[-1].size
            if size < bytes_max:
                return False
            following = record.offset + 1
            return True

        await portion.visit(visit, on_damage=self._pass_over)
        self.positions[index] = following
        return entries

    def _pass_over(self, span: BadSpan) -> bool:
        """Count what a producer sent with a correct checksum and what is no record."""
        if span.next_offset is None:
            refuse(span)
        else:
            self._skipped += span.next_offset - span.first_offset
        return True


def _merged(found: Iterable[list[Entry]]) -> list[Entry]:
    """Entries by their time; those of one partition stay in their order, whatever times they have."""
    return [entry for _, entry in merge(*map(_timed, found), key=lambda timed: timed[0])]


def _timed(entries: list[Entry]) -> Iterator[tuple[int, Entry]]:
    newest = 0
    for entry in entries:
        newest = max(newest, entry.timestamp)
        yield newest, entry
