"""What looking into a data directory brings to light.

A *problem* is something that a healthy directory never shows: a checksum that does not hold, a file that is
missing. A *note* is something worth saying that needs no action: a torn tail, rounds not yet applied, a file
that recovery is about to remove; all of it normal after a crash, or while the directory is being served.
Paths are relative to the data directory; byte ranges and offset ranges exclude their end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something is wrong: where, what it means, what a person can do."""

    path: str
    message: str
    hint: str
    position: int | None = None  # first byte concerned, where that is known
    end: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something is worth knowing, and needs no action."""

    path: str
    message: str
    position: int | None = None


@dataclass(slots=True)
class Findings:
    """Problems and notes while they are being collected."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        self.problems += other.problems
        self.notes += other.notes

    def note(self, path: str, message: str, *, position: int | None = None) -> None:
        self.notes.append(Note(path=path, message=message, position=position))

    def problem(
        self,
        path: str,
        message: str,
        hint: str,
        *,
        position: int | None = None,
        end: int | None = None,
        first_offset: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        self.problems.append(
            Problem(
                path=path,
                message=message,
                hint=hint,
                position=position,
                end=end,
                first_offset=first_offset,
                next_offset=next_offset,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who served the directory last, as LOCK says, and whether such a process runs on this machine."""

    pid: int
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """What CHECKPOINT says."""

    lsn: int
    next_life: int
    journal_files: tuple[int, ...]
    partitions: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFileReport:
    """One journal file. What it does not hold, or does not say readably, is None."""

    path: str
    bytes: int
    listed: bool  # by CHECKPOINT; a file that is not was made for a checkpoint that never was
    journal_id: int | None = None
    first_lsn: int | None = None
    last_lsn: int | None = None
    rounds: int = 0
    rounds_above: int = 0  # above the checkpoint: what a restart replays
    bytes_used: int = 0
    entries: Mapping[str, int] = field(default_factory=dict)  # how many of each kind


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReport:
    """One entry of a round."""

    kind: str
    life: int
    how: str = ""  # of an append: inline, referenced, and whether loose
    segment: int | None = None
    position: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """One round of the journal."""

    path: str
    position: int
    lsn: int
    synced_lsn: int
    above_checkpoint: bool
    entries: tuple[EntryReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """One batch of a segment."""

    path: str
    position: int
    bytes: int
    first_offset: int
    next_offset: int
    records: int
    leader_epoch: int
    codec: str
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    flags: tuple[str, ...]
    crc_ok: bool


SegmentState = Literal["sealed", "active", "journalled", "unknown"]
"""Complete; the newest of the checkpoint; begun by rounds above it; not to be judged without a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """One segment, by its batch headers and its index."""

    path: str
    base: int
    state: SegmentState
    bytes: int
    batches: int
    records: int
    first_offset: int | None
    next_offset: int
    max_timestamp_ms: int | None
    index: str
    spans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """One snapshot of derived state; None for what is unreadable."""

    path: str
    offset: int
    bytes: int
    epochs: int | None
    producers: int | None
    current: bool  # the one that CHECKPOINT names


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One life of one partition. Start and end are what a restart would serve; None if nothing tells."""

    path: str
    topic_id: UUID
    partition: int
    life: int
    start: int | None
    end: int | None
    checkpoint_end: int | None  # None: the checkpoint does not know it yet
    quarantined_from: int | None
    segments: tuple[SegmentReport, ...]
    snapshots: tuple[SnapshotReport, ...]

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something in the data directory that is not part of any log."""

    path: str
    kind: Literal["stray", "deleted", "unfinished", "foreign"]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything that `inspect_directory` found."""

    path: str
    owner: Owner | None
    checkpoint: CheckpointReport | None
    journal: tuple[JournalFileReport, ...]
    partitions: tuple[PartitionReport, ...]
    leftovers: tuple[Leftover, ...]
    notes: tuple[Note, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What `verify_directory` checked, and what it found."""

    path: str
    partitions: int
    segments: int
    batches: int
    records: int
    bytes_checked: int
    notes: tuple[Note, ...]
    problems: tuple[Problem, ...]
