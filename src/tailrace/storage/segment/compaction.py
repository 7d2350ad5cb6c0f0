"""Key compaction, the rules: which records of a compacted log stay.

Of every key the newest record stays, and earlier ones go from the segments that may be rewritten; offsets
never change, so gaps remain. `cleaning` does the work by these rules:

- A record is superseded by a later one of its key that is final and that a checkpoint holds. One that a crash
  or a truncation could still take away supersedes nothing: else both would be gone.
- The newest record of a key, if it has no value, is a *tombstone*. The first compaction that keeps it writes
  a delete horizon into its batch (KIP-534), `delete_retention_ms` ahead; once that is past, the tombstone
  goes. Until then every reader who is not slower than this learns of the deletion.
- A tombstone goes only when no earlier record of its key can be left. So none goes from behind a segment that
  could not be read, and none that this compaction has not gone through all keys for.
- Records without a key stay; the broker refuses them for a compacted topic.
- Everything below the last stable offset is decided, and compaction stays below it. Records of committed
  transactions are like all others; those of aborted ones supersede nothing, and go.
- A marker goes when (a) no batch of its transaction is left in any segment, (b) its delete horizon is past,
  which the first compaction that finds (a), (c) and (d) writes into it, (c) it is not the newest batch of its
  producer, which tells that producer's epoch, and (d) every snapshot that is kept is past it: recovery from
  an older one would find the transaction open for ever. Its entry in the list of aborted transactions goes
  first: an entry that outlived its marker would hide the next transaction of its producer.
- A batch that cannot be decoded stays as it is, and supersedes nothing.
- A batch that lost all of its records goes, but for one that the log remembers of an idempotent producer: its
  header stays, so that the producer's sequence can be told from the log alone.

Keys are held by digest and up to a bound: where the new part of a log has more of them, it is compacted in
several passes, each for the keys of a run of offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

from tailrace.model import BrokerError
from tailrace.records import CONTROL_BIT, TRANSACTIONAL_BIT, Batch, BatchError, Record, read_marker
from tailrace.storage.aborted import AbortedEntry
from tailrace.storage.api import NO_LIMIT
from tailrace.storage.producers import ProducerStates
from tailrace.storage.retention import SegmentFacts
from tailrace.storage.segment.pace import Steps

_DIGEST_BYTES = 16
_RECORDS_PER_STEP = 64
_KEYS_PER_STEP = 1000
_NOWHERE = -1


# ---- when, and what of it


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The segments to go through, ascending, and where the first one begins that may not be rewritten."""

    bases: tuple[int, ...]
    end: int


def plan_compaction(
    segments: Sequence[SegmentFacts],
    *,
    compacted_end: int,
    delete_horizons: Mapping[int, int],
    now_ms: int,
    lag_ms_min: int,
    lag_ms_max: int,
    dirty_ratio_min: float,
) -> CompactionPlan | None:
    """What to do about the segments that may be rewritten, oldest first; None if nothing is due.

    A segment is dirty if it reaches beyond `compacted_end`. With a lag, a dirty one that holds a younger
    record ends the row. If too little is dirty, and no dirty segment is older than `lag_ms_max`, only those
    are gone through whose tombstones may go.
    """
    row: list[SegmentFacts] = []
    for segment in segments:
        young = segment.max_timestamp is None or segment.max_timestamp > now_ms - lag_ms_min
        if lag_ms_min > 0 and segment.next_base > compacted_end and young:
            break
        row.append(segment)
    dirty = [segment for segment in row if segment.next_base > compacted_end]
    dirty_bytes = sum(segment.bytes for segment in dirty)
    overdue = lag_ms_max != NO_LIMIT and any(
        segment.max_timestamp is not None and segment.max_timestamp <= now_ms - lag_ms_max
        for segment in dirty
    )
    enough = dirty_bytes >= dirty_ratio_min * sum(segment.bytes for segment in row)
    if dirty_bytes and (enough or overdue):
        return CompactionPlan(bases=tuple(segment.base for segment in row), end=row[-1].next_base)
    due = tuple(s.base for s in row if s.base in delete_horizons and delete_horizons[s.base] <= now_ms)
    return CompactionPlan(bases=due, end=compacted_end) if due else None


# ---- transactions


class Fates:
    """Which transactional batches were aborted, where every transaction is decided."""

    def __init__(self, entries: Iterable[AbortedEntry]) -> None:
        self._markers: dict[int, list[int]] = {}  # by producer, ascending
        self._firsts: dict[int, list[int]] = {}  # the first offsets of the same transactions
        for entry in entries:
            self._markers.setdefault(entry.producer_id, []).append(entry.marker_offset)
            self._firsts.setdefault(entry.producer_id, []).append(entry.first_offset)

    def is_aborted(self, batch: Batch) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not batch.attributes & TRANSACTIONAL_BIT or batch.producer_id not in self._markers:
            return False
        markers = self._markers[batch.producer_id]
        place = bisect_right(markers, batch.base_offset)
        return place < len(markers) and self._firsts[batch.producer_id][place] <= batch.base_offset


@dataclass(slots=True)
class Remnants:
    """Which markers may go, told by a pass through every batch of a log from its first segment on.

    A producer is in `left` from the first batch of a transaction that stays to the marker of it.
    """

    complete: bool  # no segment was left out so far
    replayed_from: int  # the offset of the oldest snapshot that is kept: markers from here on stay
    left: set[int] = field(default_factory=set)

    def keep(self, batch: Batch) -> None:
        """A batch stays in the log."""
        if batch.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) == TRANSACTIONAL_BIT:
            self.left.add(batch.producer_id)

    def is_last(self, marker: Batch) -> bool:
        """Whether nothing but the marker is left of its transaction, and recovery needs it no more."""
        is_left = marker.producer_id in self.left
        self.left.discard(marker.producer_id)
        return self.complete and not is_left and marker.base_offset < self.replayed_from


# ---- the newest record of every key


@dataclass(slots=True)
class Newest:
    """Offset of the newest record by key, for the keys of a run of offsets that ends at `end`.

    Below `end` every record was taken into account, by this run or by an earlier one. There every transaction
    is decided.
    """

    end: int
    fates: Fates = field(default_factory=lambda: Fates(()))
    offsets: dict[bytes, int] = field(default_factory=dict)

    def take(self, batch: Batch) -> Steps[None]:
        """Take note of the keys of an uncompressed batch, of all or of none."""
        if not batch.attributes & CONTROL_BIT and not self.fates.is_aborted(batch):
            found: dict[bytes, int] = {}
            try:
                for count, (offset, _, key, _, _) in enumerate(batch.records(), start=1):
                    if key is not None:
                        found[_digest(key)] = offset
                    if not count % _RECORDS_PER_STEP:
                        yield
            except BatchError:
                found.clear()
            items = iter(found.items())
            while some := dict(islice(items, _KEYS_PER_STEP)):
                self.offsets.update(some)
                yield
        self.end = batch.next_offset

    def supersedes(self, key: bytes, offset: int) -> bool:
        return self.offsets.get(_digest(key), _NOWHERE) > offset


def _digest(key: bytes) -> bytes:
    """What stands for a key: 128 bits, so that two keys in one log never meet; a shorter key is its own."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


# ---- which records stay


@dataclass(slots=True)
class Sifted:
    """What becomes of a batch."""

    kept: list[Record]
    delete_horizon_ms: int | None = None  # to be written into it
    unchanged: bool = False
    vanishes: bool = False


_UNCHANGED = Sifted([], unchanged=True)


@dataclass(slots=True, kw_only=True)
class Sieve:
    """Tells what stays of one segment; and, once all of it went through, when its first tombstone may go."""

    newest: Newest
    now_ms: int
    delete_retention_ms: int  # negative: tombstones stay for ever
    tombstones_may_go: bool  # no segment before this one was left out
    producers: ProducerStates
    remnants: Remnants
    delete_horizon_ms: int | None = None
    removed_markers: set[int] = field(default_factory=set)

    def applies_to(self, batch: Batch) -> bool:
        """Whether anything of the batch may go: it lies within the run of offsets."""
        return batch.base_offset < self.newest.end

    def sift(self, batch: Batch) -> Steps[Sifted]:
        """Go through the records of an uncompressed batch."""
        if batch.attributes & CONTROL_BIT:
            return self._sift_marker(batch)
        if self.newest.fates.is_aborted(batch):
            return self._judge(batch, [], has_mortals=False)
        horizon_ms = batch.delete_horizon_ms
        mortal = self.tombstones_may_go
        over = mortal and horizon_ms is not None and horizon_ms <= self.now_ms
        kept: list[Record] = []
        tombstones = 0
        try:
            for count, record in enumerate(batch.records(), start=1):
                offset, _, key, value, _ = record
                if key is None:
                    kept.append(record)
                elif not (self.newest.supersedes(key, offset) or (value is None and over)):
                    kept.append(record)
                    tombstones += value is None
                if not count % _RECORDS_PER_STEP:
                    yield
        except BatchError:
            return _UNCHANGED
        return self._judge(batch, kept, has_mortals=mortal and tombstones > 0)

    def _sift_marker(self, marker: Batch) -> Sifted:
        try:
            read_marker(marker)
        except BatchError:
            return _UNCHANGED  # it ends no transaction
        standing = self.producers.standing(marker.producer_id)
        is_newest = standing is not None and standing.end_offset == marker.next_offset
        if not self.remnants.is_last(marker) or is_newest or self.delete_retention_ms < 0:
            return _UNCHANGED
        horizon_ms = marker.delete_horizon_ms
        if horizon_ms is None:
            return Sifted(list(marker.records()), self.now_ms + self.delete_retention_ms)
        if horizon_ms > self.now_ms:
            return _UNCHANGED
        self.removed_markers.add(marker.base_offset)
        return Sifted([], vanishes=True)

    def _judge(self, batch: Batch, kept: list[Record], *, has_mortals: bool) -> Sifted:
        new_horizon_ms = None
        if has_mortals:
            horizon_ms = batch.delete_horizon_ms
            if horizon_ms is None and self.delete_retention_ms >= 0:
                horizon_ms = new_horizon_ms = self.now_ms + self.delete_retention_ms
            self._note_horizon(horizon_ms)
        if not kept and not self._is_remembered(batch):
            return Sifted(kept, vanishes=True)
        if len(kept) == batch.count and new_horizon_ms is None:
            return _UNCHANGED
        return Sifted(kept, new_horizon_ms)

    def _note_horizon(self, horizon_ms: int | None) -> None:
        known = self.delete_horizon_ms
        if horizon_ms is not None and (known is None or horizon_ms < known):
            self.delete_horizon_ms = horizon_ms

    def _is_remembered(self, batch: Batch) -> bool:
        """Whether an idempotent producer's duplicates or next sequence are told by this batch."""
        try:
            found = self.producers.check(batch)
        except BrokerError:
            return False
        return found is not None and found.base_offset == batch.base_offset
