"""The oracle: every entry in the order in which it was sequenced, and how many of them were acknowledged.

The journal keeps the order of the queue, so what a crash leaves of a partition is what some number of its
first entries make, and not fewer than were acknowledged. A partition that does not wait for syncs may lose
its end in a power cut, never more than its end, and never a byte in the middle. A compacted one may lack
records that an acknowledged one of the same key superseded, even if that was truncated later, and no other
but those of aborted transactions. Batches of transactions are never lost, whether their partition waits for
syncs or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tailrace.model import PartitionId
from tailrace.records import Batch, Record
from tailrace.storage.aborted import AbortedList
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates
from tailrace.storage.segment.entry import Append, Create, Delete, Entry, Trim, Truncate


class Wrong(Exception):
    """The engine shows something that it must not, or lacks something that it must have."""


@dataclass(slots=True)
class Content:
    """What a log holds: its offsets, and the bytes of its batches by base offset."""

    start: int
    end: int
    batches: dict[int, bytes]
    trimmed: bool = False

    def copy(self) -> Content:
        return Content(self.start, self.end, dict(self.batches), self.trimmed)

    def visible(self) -> dict[int, bytes]:
        """The batches that a reader can reach."""
        return {
            o: data for o, data in self.batches.items() if Batch(memoryview(data)).next_offset > self.start
        }

    def records(self) -> dict[int, Record]:
        """The records that a reader can reach, by offset."""
        return {r.offset: r for batch in self._readable() for r in batch.records() if r.offset >= self.start}

    def serials(self) -> dict[int, int]:
        """By offset: the serial number of the transaction that a record belongs to, if it belongs to one."""
        batches = [batch for batch in self._readable() if batch.is_transactional]
        return {r.offset: serial_of(batch) for batch in batches for r in batch.records()}

    def transactional_end(self) -> int:
        """Where the last batch of a transaction ends, marker or not; 0 without any."""
        batches = (Batch(memoryview(data)) for data in self.batches.values())
        return max((batch.next_offset for batch in batches if batch.is_transactional), default=0)

    def _readable(self) -> Iterator[Batch]:
        """The batches that hold records: all that a reader can reach, but for markers."""
        batches = (Batch(memoryview(data)) for data in self.visible().values())
        return (batch for batch in batches if not batch.is_control)

    def brief(self) -> str:
        return f"{self.start} to {self.end}, batches at {sorted(self.visible())}"


@dataclass(slots=True)
class Expected:
    """One partition: what was certain at the last recovery, and every entry since."""

    content: Content | None = None
    entries: list[Entry] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)  # of the appends: the engine owns the batch itself
    acknowledged: int = 0

    def states(self) -> Iterator[Content | None]:
        """What is there after the acknowledged entries, and after each one more."""
        content = self.content.copy() if self.content else None
        for count, (entry, data) in enumerate(zip(self.entries, self.data, strict=True)):
            if count >= self.acknowledged:
                yield content.copy() if content else None
            content = apply(content, entry, data)
        yield content


def serial_of(batch: Batch) -> int:
    """Histories number their transactions, and every batch of one carries the number as its time."""
    return batch.max_timestamp


def apply(content: Content | None, entry: Entry, data: bytes) -> Content | None:
    """What one entry makes of a partition."""
    if isinstance(entry, Create):
        return Content(0, 0, {})
    if isinstance(entry, Delete):
        return None
    assert content is not None
    if isinstance(entry, Append):
        batch = Batch(memoryview(data))
        content.batches[batch.base_offset] = data
        content.end = batch.next_offset
    elif isinstance(entry, Truncate):
        content.batches = {o: each for o, each in content.batches.items() if o < entry.offset}
        content.end = entry.offset
        content.start = min(content.start, content.end)
    elif isinstance(entry, Trim):
        content.start = max(content.start, entry.offset)
        content.trimmed = True
    return content


class Oracle:
    """Knows what must be there."""

    def __init__(
        self, *, is_loose: Callable[[PartitionId], bool], is_compacted: Callable[[PartitionId], bool]
    ) -> None:
        self._is_loose = is_loose  # whether a partition does not wait for syncs
        self._is_compacted = is_compacted
        self.partitions: dict[PartitionId, Expected] = {}
        self._lives: dict[int, PartitionId] = {}
        self._records: dict[int, list[tuple[bytes | None, int, int | None]]] = {}
        """By life: key, offset and transaction of every record that was acknowledged or recovered."""
        self.outcomes: dict[int, set[bool]] = {}
        """By transaction: how it was ended, commit or not; in two ways if its first marker was undone."""
        self.ended: dict[int, dict[int, int]] = {}
        """By life: transactions whose marker was acknowledged, and where that is."""
        self._cuts: list[Truncate] = []  # sequenced and not acknowledged: a crash may keep or lose them

        # Whether the next recovery is the first one after a rebuild. Without a checkpoint the start of a log
        # may be lost: of a compacted one it may rise to the first record, of one that was truncated below
        # every snapshot it may fall to the base of its first segment.
        self.is_rebuilt = False
        self._truncated: set[PartitionId] = set()

    def adopt(self, lives: dict[int, PartitionId]) -> None:
        """Which life is whose, after a recovery."""
        self._lives = dict(lives)
        self._cuts = []

    def sequenced(self, entry: Entry) -> None:
        """The engine queued an entry."""
        if isinstance(entry, Create):
            self._lives[entry.life] = entry.partition_id
        if isinstance(entry, Truncate):
            self._truncated.add(self._lives[entry.life])
            self._undo_markers(entry)
            self._cuts.append(entry)
        expected = self.partitions.setdefault(self._lives[entry.life], Expected())
        expected.entries.append(entry)
        expected.data.append(bytes(entry.batch.data) if isinstance(entry, Append) else b"")

    def acknowledged(self, entries: list[Entry]) -> None:
        """The engine told the world that these are durable."""
        for entry in entries:
            self.partitions[self._lives[entry.life]].acknowledged += 1
            if isinstance(entry, Append):
                self._acknowledge(entry)
            elif isinstance(entry, Truncate):
                self._cuts.remove(entry)

    def _undo_markers(self, entry: Truncate) -> None:
        ended = self.ended.get(entry.life, {})
        self.ended[entry.life] = {serial: at for serial, at in ended.items() if at < entry.offset}

    def _acknowledge(self, entry: Append) -> None:
        batch = entry.batch
        if batch.is_control:
            if not any(cut.life == entry.life and cut.offset <= batch.base_offset for cut in self._cuts):
                self.ended.setdefault(entry.life, {})[serial_of(batch)] = batch.base_offset
            return
        serial = serial_of(batch) if batch.is_transactional else None
        known = self._records.setdefault(entry.life, [])
        known += [(record.key, record.offset, serial) for record in batch.records()]

    def may_count(self, serial: int | None) -> bool:
        """Whether the records of a transaction may supersede others."""
        return serial is None or True in self.outcomes.get(serial, ())

    def may_vanish(self, serial: int | None) -> bool:
        """Whether compaction may have removed the records of a transaction for its own sake."""
        return serial is not None and False in self.outcomes.get(serial, ())

    def check_recovered(self, found: dict[PartitionId, Content], *, losses: bool) -> None:
        """Compare with what is there after a recovery, which from then on is what must be there."""
        for partition_id in sorted(self.partitions.keys() | found.keys()):
            expected = self.partitions.get(partition_id, Expected())
            actual = found.get(partition_id)
            if not self._explains(partition_id, actual, losses=losses):
                raise Wrong(f"{partition_id}: {_difference(expected, actual)}")
        self.partitions = {partition_id: Expected(content=content) for partition_id, content in found.items()}
        for partition_id, content in found.items():
            self._note_recovered(partition_id, content)

    def _note_recovered(self, partition_id: PartitionId, content: Content) -> None:
        """What a recovery kept supersedes others, as if acknowledged, also once it is truncated."""
        serials = content.serials()
        known = self._records.setdefault(self._life_of(partition_id), [])
        known += [(record.key, offset, serials.get(offset)) for offset, record in content.records().items()]

    def last_round_lost(self, found: dict[PartitionId, Content], last: list[Entry]) -> bool:
        """Whether everything agrees without the entries acknowledged last: a flip may cost those."""
        for entry in last:
            self.partitions[self._lives[entry.life]].acknowledged -= 1
        return all(
            self._explains(partition_id, found.get(partition_id), losses=False)
            for partition_id in self.partitions.keys() | found.keys()
        )

    def check_served(
        self, partition_id: PartitionId, wanted: Content, served: Content, *, start: int
    ) -> None:
        """Compare what a reader got while others wrote with what was acknowledged when it began."""
        if self._is_compacted(partition_id):
            there: Mapping[int, object] = served.records()
            due: Mapping[int, object] = wanted.records()
            superseded = self._may_lack(self._newest_of(partition_id), wanted)
        else:
            there, due, superseded = served.batches, wanted.visible(), set()
        other = [offset for offset, found in there.items() if offset in due and due[offset] != found]
        missing = [o for o in due if o not in there and o >= start and o not in superseded]
        if other or missing:
            raise Wrong(f"{partition_id}: other bytes are served at {other}, nothing at {missing}")

    def _life_of(self, partition_id: PartitionId) -> int:
        """Its newest life; 0 if it has none."""
        return max((life for life, owner in self._lives.items() if owner == partition_id), default=0)

    def _newest_of(self, partition_id: PartitionId) -> dict[bytes | None, int]:
        """The greatest offset of every key, of acknowledged records that may supersede others."""
        newest: dict[bytes | None, int] = {}
        for key, offset, serial in self._records.get(self._life_of(partition_id), ()):
            if self.may_count(serial):
                newest[key] = max(newest.get(key, -1), offset)
        return newest

    def _may_lack(self, newest: Mapping[bytes | None, int], state: Content) -> set[int]:
        """The offsets of records that a compacted log may lack."""
        serials = state.serials()
        newest = self._with_newest(newest, state)
        return {
            offset
            for offset, record in state.records().items()
            if newest.get(record.key, -1) > offset or self.may_vanish(serials.get(offset))
        }

    def _with_newest(self, newest: Mapping[bytes | None, int], state: Content) -> dict[bytes | None, int]:
        """Also what came before this process, or is not acknowledged."""
        known, serials = dict(newest), state.serials()
        for offset, record in state.records().items():
            if self.may_count(serials.get(offset)):
                known[record.key] = max(known.get(record.key, -1), offset)
        return known

    def _explains(self, partition_id: PartitionId, actual: Content | None, *, losses: bool) -> bool:
        losses = losses and self._is_loose(partition_id)
        same = _same
        if self._is_compacted(partition_id):
            same = partial(self._same_but_superseded, newest=self._newest_of(partition_id))
        certain = next(iter(self.partitions.get(partition_id, Expected()).states()))
        may_fall = self.is_rebuilt and partition_id in self._truncated
        for state in self.partitions.get(partition_id, Expected()).states():
            if state is None or actual is None:
                if state is actual:
                    return True
                continue
            if losses and certain is not None and min(certain.transactional_end(), state.end) > actual.end:
                continue
            wanted, seen = _cut(state, actual.end) if losses else state, actual
            if may_fall and actual.start < wanted.start:
                seen = Content(wanted.start, actual.end, actual.batches)
            if same(wanted, seen):
                return True
        return False

    def _same_but_superseded(
        self, state: Content, actual: Content, *, newest: Mapping[bytes | None, int]
    ) -> bool:
        rebuilt = self.is_rebuilt
        if state.end != actual.end or (
            actual.start < state.start if rebuilt else actual.start != state.start
        ):
            return False
        wanted, there = state.records(), actual.records()
        known = self._with_newest(newest, state)
        missing = wanted.keys() - there.keys()
        # A rebuild replays what compaction had removed, where a truncation hides which of the two came first.
        again = [o for o in there if rebuilt and o not in wanted and known.get(there[o].key, -1) > o]
        return all(
            wanted.get(o) == record for o, record in there.items() if o not in again
        ) and missing <= self._may_lack(newest, state)


def _cut(state: Content, end: int) -> Content:
    """What is left when the end of a log was lost."""
    if state.end <= end:
        return state
    return Content(min(state.start, end), end, {o: data for o, data in state.batches.items() if o < end})


def _same(state: Content, actual: Content) -> bool:
    return (state.start, state.end) == (actual.start, actual.end) and state.visible() == actual.visible()


def _difference(expected: Expected, actual: Content | None) -> str:
    states = list(expected.states())
    wanted = [state.brief() if state else "absent" for state in (states[0], states[-1])]
    other = []
    if actual is not None and states[0] is not None:
        theirs = states[0].batches
        other = [o for o, data in actual.batches.items() if o in theirs and theirs[o] != data]
    seen = actual.brief() if actual else "absent"
    return f"acknowledged {wanted[0]}; at most {wanted[1]}; found {seen}; other bytes at {other}"


def derived_state(content: Content) -> tuple[LeaderEpochs, ProducerStates, AbortedList]:
    """Epochs, producers and aborted transactions as the batches of a log make them."""
    epochs, producers, aborted = LeaderEpochs(), ProducerStates(), AbortedList()
    for offset in sorted(content.batches):
        batch = Batch(memoryview(content.batches[offset]))
        epochs.apply(batch.leader_epoch, batch.base_offset)
        if (ended := producers.apply(batch)) is not None:
            aborted.add(ended)
    producers.settle()
    return epochs, producers, aborted
