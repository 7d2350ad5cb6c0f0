"""The histories of one partition in a run of rounds: a truncation ends one and begins the next. Pure.

The files hold one of them, or a beginning of it, and without a checkpoint only their batches tell which one.
A batch that compaction did not touch has the header that its entry has. One that compaction took records out
of keeps its offsets, its leader epoch and its producer.

A recovery that lost loose batches truncated too, without an entry. The next append begins at a smaller offset
then, and a checkpoint came before it: so everything above it in the run is in the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tailrace.model import Offset
from tailrace.records import HEADER_BYTES, Batch
from tailrace.storage.segment.entry import LOOSE, REFERENCED, Append, Entry, Trim, Truncate
from tailrace.storage.segment.shape import OFFSET_MAX


@dataclass(frozen=True, slots=True)
class History:
    """What the log held from one truncation to the next, as far as the run tells."""

    entries: Sequence[Entry]  # of the whole run
    begin: int  # number of the first one behind the truncation before it
    end: int  # number of the truncation that ended it
    appends: Sequence[Append]  # that no truncation before it undid, and its own
    cut: Truncate | None  # that ended it

    def compacted_segment(self) -> int:
        """The segment that the truncation cut at another place than the entries say, or -1.

        It was compacted before, so a checkpoint had passed it and every older one.
        """
        cut = self.cut
        if cut is None:
            return -1
        kept = [a for a in self.appends if a.segment == cut.segment and a.batch.base_offset < cut.offset]
        return cut.segment if kept and kept[-1].position + kept[-1].batch.size != cut.position else -1

    def entries_behind(self, segment: int) -> list[Entry]:
        """What is to be replayed over files that hold this history up to the end of `segment`."""
        behind = [append for append in self.appends if append.segment > segment]
        wanted = {*map(id, behind), *map(id, self.entries[self.end :])}
        before = [entry for entry in _carried_out(self.entries[: self.begin]) if _is_wanted(entry, wanted)]
        return before + [entry for entry in self.entries[self.begin :] if _is_wanted(entry, wanted)]


def _is_wanted(entry: Entry, wanted: set[int]) -> bool:
    return isinstance(entry, Trim) or id(entry) in wanted


def _carried_out(entries: Sequence[Entry]) -> list[Entry]:
    """The entries without their truncations, below which no trim reaches any more."""
    lowest, kept = OFFSET_MAX, list[Entry]()
    for entry in reversed(entries):
        if isinstance(entry, Truncate):
            lowest = min(lowest, entry.offset)
        elif isinstance(entry, Trim):
            kept.append(replace(entry, offset=min(entry.offset, Offset(lowest))))
        else:
            kept.append(entry)
    return kept[::-1]


def without_passed(entries: list[Entry]) -> list[Entry]:
    """The entries without appends and truncations above the last recovery that lost loose batches."""
    begin, end = 0, 0
    for number, entry in enumerate(entries):
        if isinstance(entry, Truncate):
            end = entry.offset
        elif isinstance(entry, Append):
            if entry.batch.base_offset < end:
                begin = number
            end = entry.batch.next_offset
    trims = [entry for entry in _carried_out(entries[:begin]) if isinstance(entry, Trim)]
    ended_at = next((e.batch.base_offset for e in entries[begin:] if isinstance(e, Append)), Offset(0))
    return [replace(trim, offset=min(trim.offset, ended_at)) for trim in trims] + entries[begin:]


def read_histories(entries: Sequence[Entry]) -> list[History]:
    """All histories, oldest first: one more than there are truncations."""
    histories: list[History] = []
    begin, appends = 0, list[Append]()
    for number, entry in enumerate(entries):
        if isinstance(entry, Append):
            appends.append(entry)
        elif isinstance(entry, Truncate):
            histories.append(History(entries, begin, number, appends, entry))
            begin = number + 1
            appends = [append for append in appends if append.batch.base_offset < entry.offset]
    return [*histories, History(entries, begin, len(entries), appends, None)]


def lowest_cut(entries: Iterable[Entry]) -> int:
    """The offset below which all histories agree."""
    return min((entry.offset for entry in entries if isinstance(entry, Truncate)), default=OFFSET_MAX)


class Comparison:
    """Compares the batches of one segment file, which `see` is given, with one history and all others."""

    def __init__(self, base: int, history: History) -> None:
        self._own = {int(each.batch.base_offset): each for each in history.appends if each.segment == base}
        self._others: dict[int, list[Append]] = {}
        own = set(map(id, history.appends))
        for each in history.entries:
            if isinstance(each, Append) and id(each) not in own:
                self._others.setdefault(int(each.batch.base_offset), []).append(each)
        self._floor = lowest_cut(history.entries)
        self._missing = set(self._own) if history.cut is None else set[int]()
        self.moved = False  # a batch of the history lies at another place, or lacks records: compaction
        self.is_own = False  # a batch is there that only this history has
        self.is_foreign = False  # a batch is there that this history does not have

    def see(self, batch: Batch, position: int) -> None:
        entry = self._own.get(int(batch.base_offset))
        self._missing.discard(int(batch.base_offset))
        is_same = entry is not None and _is_same(entry, batch)
        if entry is not None and (entry.position != position or not is_same):
            self.moved = True
        if batch.base_offset < self._floor:
            return
        others = self._others.get(int(batch.base_offset), [])
        if is_same:
            self.is_own |= not any(_is_same(other, batch) for other in others)
        elif any(_is_same(other, batch) for other in others):
            self.is_foreign = True
        elif entry is not None and _is_rest(entry, batch):
            self.is_own |= not any(_is_rest(other, batch) for other in others)
        else:
            self.is_foreign = True

    def lacks_synced(self) -> bool:
        """Whether a batch is missing that was synced before its entry was written."""
        missing = (self._own[offset].flags for offset in self._missing)
        return any(flags & REFERENCED and not flags & LOOSE for flags in missing)


class Disagreement:
    """Looks for batches in one segment file, which `see` is given, that were moved after they were written.

    `entries` are those of the whole run, `replayed` those that are to be replayed: what their truncations cut
    off may be of a history that began before the run.
    """

    def __init__(self, base: int, entries: Sequence[Entry], replayed: Sequence[Entry]) -> None:
        self._written = _by_offset(base, entries)
        self._replayed = _by_offset(base, replayed)
        self._floor = lowest_cut(replayed)
        self.found = False

    def see(self, batch: Batch, position: int) -> None:
        offset = int(batch.base_offset)
        written, replayed = self._written.get(offset, []), self._replayed.get(offset, [])
        if not replayed or any(each.position == position and _is_same(each, batch) for each in written):
            return
        if offset < self._floor or any(_is_rest(each, batch) for each in replayed):
            self.found = True


def _by_offset(base: int, entries: Iterable[Entry]) -> dict[int, list[Append]]:
    """The appends to one segment."""
    found: dict[int, list[Append]] = {}
    for entry in entries:
        if isinstance(entry, Append) and entry.segment == base:
            found.setdefault(int(entry.batch.base_offset), []).append(entry)
    return found


def _is_same(append: Append, batch: Batch) -> bool:
    return bytes(append.batch.data[:HEADER_BYTES]) == bytes(batch.data[:HEADER_BYTES])


def _is_rest(append: Append, batch: Batch) -> bool:
    """Whether a batch may be what compaction left of an append."""
    return _identity(append.batch) == _identity(batch) and (
        batch.has_delete_horizon or append.batch.base_timestamp == batch.base_timestamp
    )


def _identity(batch: Batch) -> tuple[int, ...]:
    return (
        batch.base_offset,
        batch.next_offset,
        batch.leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
    )
