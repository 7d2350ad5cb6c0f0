"""Messages that were delivered and are not settled yet, kept so that they can be delivered again.

A durable log has them still, and keeping them only saves reading them again: past the bound they are not
kept. A log in memory may have moved on: past the bound nothing new is delivered until something is settled,
so that what a member holds is never lost because others were quicker. The bound changes with what the
subscriptions of the node keep in all (`message_memory`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.records import Record

RECORD_BYTES = 250  # what the objects of a record take beside its bytes
_HEADER_BYTES = 120  # likewise of a header


class Retained:
    """Records by where they are, up to so many bytes."""

    __slots__ = ("_records", "bytes", "bytes_max", "required")

    def __init__(self, *, bytes_max: int, required: bool) -> None:
        self.bytes_max = bytes_max
        self.required = required  # the log may lose them
        self._records: dict[tuple[int, int], tuple[Record, int]] = {}  # with what each takes
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_full(self) -> bool:
        """Whether nothing new may be delivered for now."""
        return self.required and self.bytes >= self.bytes_max

    @property
    def has_room(self) -> bool:
        """Whether it is well below the bound, so that it is worth telling."""
        return not self.required or self.bytes * 4 <= self.bytes_max * 3

    def put(self, place: int, record: Record, size: int) -> None:
        """Keep a record of the partition numbered `place`, if there is room or it must be kept."""
        if self.required or self.bytes < self.bytes_max:
            key = place, record.offset
            if key not in self._records:
                self._records[key] = record, size
                self.bytes += size

    def get(self, place: int, offset: int) -> Record | None:
        kept = self._records.get((place, offset))
        return None if kept is None else kept[0]

    def drop(self, place: int, offset: int) -> None:
        kept = self._records.pop((place, offset), None)
        if kept is not None:
            self.bytes -= kept[1]

    def drop_settled(self, place: int, settled: Iterable[tuple[int, object]]) -> None:
        """Forget the records of one partition whose offsets come first in these pairs."""
        pop = self._records.pop
        for offset, _ in settled:
            kept = pop((place, offset), None)
            if kept is not None:
                self.bytes -= kept[1]

    def drop_all(self, place: int) -> None:
        """Forget every record of one partition."""
        for key in [key for key in self._records if key[0] == place]:
            self.drop(*key)

    def clear(self) -> None:
        """Forget every record."""
        self._records.clear()
        self.bytes = 0


def size_of(record: Record) -> int:
    """About what a record takes in memory."""
    _, _, key, value, headers = record
    size = RECORD_BYTES
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    for name, content in headers:
        size += _HEADER_BYTES + len(name) + len(content or b"")
    return size
