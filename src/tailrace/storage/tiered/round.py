"""What one round does, planned purely: entries that waited, as steps of one transaction.

Appends of one log that follow one another become chunks, no larger than its segment.bytes: retention moves by
chunks. A round that only appends is one step, and one call.
With other entries the order of a log's entries is the order of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tailrace.records import CONTROL_BIT, TRANSACTIONAL_BIT, Batch, crc32c
from tailrace.storage.tiered.chunk import Chunk, ChunkName, max_time
from tailrace.storage.tiered.entry import Append, Control, Entry
from tailrace.storage.tiered.log import TieredLog
from tailrace.storage.tiered.retention_class import KEPT, day_of_append, retention_class

_OF_TRANSACTIONS = TRANSACTIONAL_BIT | CONTROL_BIT


@dataclass(slots=True)
class Draft:
    """A chunk without the epoch of its writer, which a takeover in between changes."""

    log: TieredLog
    retention: int
    batches: list[Batch] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True, kw_only=True)
class Round:
    """One transaction."""

    number: int
    appended_ms: int  # of every chunk; the same again when it is sent again
    steps: list[list[Draft] | Control]
    synced: bool  # whether its acknowledgement waits for the disk
    size: int

    @property
    def controls(self) -> list[Control]:
        return [step for step in self.steps if not isinstance(step, list)]

    @property
    def drafts(self) -> Iterator[Draft]:
        for step in self.steps:
            if isinstance(step, list):
                yield from step

    def days(self) -> set[tuple[int, int]]:
        """The classes and days whose tables it needs."""
        return {
            (draft.retention, day_of_append(draft.retention, self.appended_ms))
            for draft in self.drafts
            if draft.retention != KEPT
        }


def plan_round(entries: Sequence[Entry], *, number: int, appended_ms: int, chunk_bytes: int) -> Round:
    """The transaction that makes the entries durable."""
    steps: list[list[Draft] | Control] = []
    open_drafts: dict[int, Draft] = {}
    synced, size = False, 0
    for entry in entries:
        if not isinstance(entry, Append):
            steps.append(entry)
            open_drafts = {}
            synced = True
            continue
        log, batch = entry.log, entry.batch
        size += batch.size
        synced = synced or log.fsync.awaited or batch.attributes & _OF_TRANSACTIONS != 0
        draft = open_drafts.get(log.id)
        if draft is None or draft.size + batch.size > min(chunk_bytes, log.config.segment_bytes):
            draft = open_drafts[log.id] = Draft(log, retention_class(log.config))
            if not steps or not isinstance(steps[-1], list):
                steps.append([])
            last = steps[-1]
            assert isinstance(last, list)
            last.append(draft)
        draft.batches.append(batch)
        draft.size += batch.size
    return Round(number=number, appended_ms=appended_ms, steps=steps, synced=synced, size=size)


def make_chunk(draft: Draft, *, appended_ms: int, epoch: int) -> Chunk:
    """The chunk that a writer of this epoch writes."""
    first, last = draft.batches[0], draft.batches[-1]
    data = b"".join([batch.data for batch in draft.batches])
    name = ChunkName(
        retention=draft.retention,
        log=draft.log.id,
        base_offset=first.base_offset,
        next_offset=last.next_offset,
        appended_ms=appended_ms,
        max_timestamp=max_time(draft.batches, appended_ms=appended_ms),
        writer_epoch=epoch,
        size=len(data),
        crc=crc32c(data),
    )
    return Chunk(name, data)
