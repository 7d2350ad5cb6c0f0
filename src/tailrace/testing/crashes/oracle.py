"""The oracle: every entry in the order in which it was sequenced, and how many of them were acknowledged.

The journal keeps the order of the queue, so what a crash leaves of a partition is what some number of its
first entries make, and not fewer than were acknowledged. A partition that does not wait for syncs may lose
its end in a power cut, never more than its end, and never a byte in the middle. A compacted one may lack
records that an acknowledged one of the same key superseded, even if that was truncated later, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tailrace.model import PartitionId
from tailrace.records import Batch, Record
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
        batches = (Batch(memoryview(data)) for data in self.visible().values())
        return {r.offset: r for batch in batches for r in batch.records() if r.offset >= self.start}

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
        self._newest: dict[int, dict[bytes | None, int]] = {}  # by life: the greatest offset of every key

        # Whether the next recovery is the first one after a rebuild. Without a checkpoint the start of a log
        # may be lost: of a compacted one it may rise to the first record, of one that was truncated below
        # every snapshot it may fall to the base of its first segment.
        self.is_rebuilt = False
        self._truncated: set[PartitionId] = set()

    def adopt(self, lives: dict[int, PartitionId]) -> None:
        """Which life is whose, after a recovery."""
        self._lives = dict(lives)

    def sequenced(self, entry: Entry) -> None:
        """The engine queued an entry."""
        if isinstance(entry, Create):
            self._lives[entry.life] = entry.partition_id
        if isinstance(entry, Truncate):
            self._truncated.add(self._lives[entry.life])
        expected = self.partitions.setdefault(self._lives[entry.life], Expected())
        expected.entries.append(entry)
        expected.data.append(bytes(entry.batch.data) if isinstance(entry, Append) else b"")

    def acknowledged(self, entries: list[Entry]) -> None:
        """The engine told the world that these are durable."""
        for entry in entries:
            self.partitions[self._lives[entry.life]].acknowledged += 1
            if isinstance(entry, Append):
                newest = self._newest.setdefault(entry.life, {})
                for record in entry.batch.records():
                    newest[record.key] = max(newest.get(record.key, -1), record.offset)

    def check_recovered(self, found: dict[PartitionId, Content], *, losses: bool) -> None:
        """Compare with what is there after a recovery, which from then on is what must be there."""
        for partition_id in sorted(self.partitions.keys() | found.keys()):
            expected = self.partitions.get(partition_id, Expected())
            actual = found.get(partition_id)
            if not self._explains(partition_id, actual, losses=losses):
                raise Wrong(f"{partition_id}: {_difference(expected, actual)}")
        self.partitions = {partition_id: Expected(content=content) for partition_id, content in found.items()}

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
            newest = _with_newest(self._newest_of(partition_id), wanted)
            there: Mapping[int, object] = served.records()
            due: Mapping[int, object] = wanted.records()
            superseded = {o for o, record in wanted.records().items() if newest[record.key] > o}
        else:
            there, due, superseded = served.batches, wanted.visible(), set()
        other = [offset for offset, found in there.items() if offset in due and due[offset] != found]
        missing = [o for o in due if o not in there and o >= start and o not in superseded]
        if other or missing:
            raise Wrong(f"{partition_id}: other bytes are served at {other}, nothing at {missing}")

    def _newest_of(self, partition_id: PartitionId) -> dict[bytes | None, int]:
        lives = [life for life, owner in self._lives.items() if owner == partition_id]
        return self._newest.get(max(lives, default=0), {})

    def _explains(self, partition_id: PartitionId, actual: Content | None, *, losses: bool) -> bool:
        losses = losses and self._is_loose(partition_id)
        same = _same
        if self._is_compacted(partition_id):
            same = partial(
                _same_but_superseded, newest=self._newest_of(partition_id), rebuilt=self.is_rebuilt
            )
        may_fall = self.is_rebuilt and partition_id in self._truncated
        for state in self.partitions.get(partition_id, Expected()).states():
            if state is None or actual is None:
                if state is actual:
                    return True
                continue
            seen = actual
            if may_fall and actual.start < state.start:
                seen = Content(state.start, actual.end, actual.batches)
            if same(_cut(state, seen.end) if losses else state, seen):
                return True
        return False


def _cut(state: Content, end: int) -> Content:
    """What is left when the end of a log was lost."""
    if state.end <= end:
        return state
    return Content(min(state.start, end), end, {o: data for o, data in state.batches.items() if o < end})


def _same(state: Content, actual: Content) -> bool:
    return (state.start, state.end) == (actual.start, actual.end) and state.visible() == actual.visible()


def _same_but_superseded(
    state: Content, actual: Content, *, newest: dict[bytes | None, int], rebuilt: bool
) -> bool:
    if state.end != actual.end or (actual.start < state.start if rebuilt else actual.start != state.start):
        return False
    wanted, there = state.records(), actual.records()
    newest = _with_newest(newest, state)
    missing = wanted.keys() - there.keys()
    # A rebuild replays what compaction had removed, where a truncation hides which of the two came first.
    again = [o for o in there if rebuilt and o not in wanted and newest.get(there[o].key, -1) > o]
    return all(wanted.get(o) == record for o, record in there.items() if o not in again) and all(
        newest[wanted[offset].key] > offset for offset in missing
    )


def _with_newest(newest: Mapping[bytes | None, int], state: Content) -> dict[bytes | None, int]:
    """Also what came before this process, or is not acknowledged."""
    known = dict(newest)
    for offset, record in state.records().items():
        known[record.key] = max(known.get(record.key, -1), offset)
    return known


def _difference(expected: Expected, actual: Content | None) -> str:
    states = list(expected.states())
    wanted = [state.brief() if state else "absent" for state in (states[0], states[-1])]
    other = []
    if actual is not None and states[0] is not None:
        theirs = states[0].batches
        other = [o for o, data in actual.batches.items() if o in theirs and theirs[o] != data]
    seen = actual.brief() if actual else "absent"
    return f"acknowledged {wanted[0]}; at most {wanted[1]}; found {seen}; other bytes at {other}"


def derived_state(content: Content) -> tuple[LeaderEpochs, ProducerStates]:
    """Epochs and producers as the batches of a log make them."""
    epochs, producers = LeaderEpochs(), ProducerStates()
    for offset in sorted(content.batches):
        batch = Batch(memoryview(content.batches[offset]))
        epochs.apply(batch.leader_epoch, batch.base_offset)
        producers.apply(batch)
    return epochs, producers
