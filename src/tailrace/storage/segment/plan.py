"""What recovery decides before it touches a file.

`read_journal` finds the rounds above the checkpoint and tells a torn tail from damage. A `Plan` takes the
entries of one partition in order and ends up knowing which batches survive and how long each segment must be.
Planning comes first because entries undo each other: applying "what is missing" would, after a truncation and
new appends, bring old bytes back under a right checksum.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tailrace.model import Offset, PartitionId, StorageError
from tailrace.records import BatchError
from tailrace.storage.segment.checkpoint import NONE, Checkpoint, Row
from tailrace.storage.segment.entry import (
    LOOSE,
    Append,
    Create,
    Delete,
    Entry,
    EntryError,
    Trim,
    Truncate,
    read_entries,
)
from tailrace.storage.segment.journal import Round, holds_only_old_rounds, read_header, read_rounds
from tailrace.storage.segment.names import journal_file, partition_directory
from tailrace.storage.segment.shape import Shape

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class JournalContent:
    """Rounds to be replayed, in order, and the LSN after which new ones are numbered."""

    rounds: list[Round]
    last_lsn: int


_RESTORE = "Nothing was changed. `tailrace log inspect DIR` shows what is there; restore it from a copy"


def damage(path: str, reason: str, *, hint: str = _RESTORE) -> StorageError:
    return StorageError("recover", path, reason, hint=hint)


def read_journal(files: Mapping[int, memoryview], checkpoint: Checkpoint) -> JournalContent:
    """The rounds above the checkpoint, out of the bytes of every journal file.

    A round is written only when the one before it is written, and names the LSN that was synced by then; a
    newer file's header proves all rounds before its first. A missing round that is proved was acknowledged
    and is damage; one that is not is a torn tail, and what was written behind it was promised to nobody.
    """
    found: dict[int, Round] = {}
    proved = newest = checkpoint.lsn
    for number, data in files.items():
        header = read_header(data)
        if header is None:
            if holds_only_old_rounds(data, checkpoint.lsn):
                logger.error("header unreadable, and not needed: %s is written anew", journal_file(number))
                continue
            raise damage(journal_file(number), "the header of the journal file is unreadable")
        proved = max(proved, header.first_lsn - 1)
        for each in read_rounds(data, header):
            proved = max(proved, each.synced_lsn)
            newest = max(newest, each.lsn)
            if each.lsn > checkpoint.lsn:
                found[each.lsn] = each
    rounds: list[Round] = []
    lsn = checkpoint.lsn
    while (following := found.get(lsn + 1)) is not None:
        rounds.append(following)
        lsn += 1
    if proved > lsn:
        raise damage(
            "journal", f"round {lsn + 1} was acknowledged and is unreadable, round {proved} came after it"
        )
    return JournalContent(rounds, max(newest, lsn))


@dataclass(slots=True)
class Plan:
    """What the checkpoint and the journal leave of one life of one partition."""

    life: int
    partition_id: PartitionId
    row: Row | None  # None: created by the journal, so its directory may be missing
    shape: Shape
    solid: tuple[int, int]  # the files hold everything before this segment and position
    solid_offset: int
    appends: list[Append] = field(default_factory=list)
    damaged: int = NONE

    @property
    def path(self) -> str:
        return partition_directory(self.partition_id, self.life)

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Append):
            self._check_place(entry)
            self.appends.append(entry)
        elif isinstance(entry, Truncate):
            self.appends = [a for a in self.appends if a.batch.base_offset < entry.offset]
            if (entry.segment, entry.position) <= self.solid:
                self.solid = entry.segment, entry.position
                self.solid_offset = min(self.solid_offset, entry.offset)
        elif isinstance(entry, Trim) and entry.offset >= self.shape.end:
            self.damaged = NONE  # it gave up everything, and with it what is damaged
        self.shape.apply(entry)

    def _check_place(self, entry: Append) -> None:
        offset = entry.batch.base_offset
        expected = (self.shape.last(), (offset, 0))
        if offset < self.shape.end or (entry.segment, entry.position) not in expected:
            raise damage(self.path, f"journal and checkpoint disagree at offset {offset}")

    def surviving(self) -> list[Append]:
        """The appends whose segment is still part of the log."""
        return [append for append in self.appends if append.segment in self.shape.segments]

    def cut_loose(self, append: Append) -> bool:
        """End the log before an append that was never synced, if none behind it was; whether that was so."""
        place = self.appends.index(append)
        if not all(later.flags & LOOSE for later in self.appends[place:]):
            return False
        self.appends = self.appends[:place]
        self.shape.apply(Truncate(self.life, append.batch.base_offset, append.segment, append.position))
        return True


def plan_recovery(rows: Iterable[Row], rounds: Iterable[Round]) -> tuple[list[Plan], set[str], int]:
    """A plan for every partition, the directories of those deleted, and the greatest life seen."""
    plans: dict[int, Plan] = {}
    deleted: set[str] = set()
    greatest = 0
    for row in rows:
        shape = Shape(row.start, row.end, {row.segment: row.length})
        plans[row.life] = Plan(
            row.life, row.partition_id, row, shape, (row.segment, row.length), row.end, damaged=row.damaged
        )
    for each in rounds:
        for entry in entries_of(each):
            if isinstance(entry, Create):
                plans[entry.life] = Plan(entry.life, entry.partition_id, None, Shape(), (0, 0), Offset(0))
            elif entry.life not in plans:
                raise damage(
                    "journal", f"round {each.lsn} speaks of life {entry.life}, which nothing created"
                )
            elif isinstance(entry, Delete):
                deleted.add(plans.pop(entry.life).path)
            else:
                plans[entry.life].add(entry)
            greatest = max(greatest, entry.life)
    for plan in plans.values():
        plan.shape.prune()
        greatest = max(greatest, plan.life)
    return list(plans.values()), deleted, greatest


def entries_of(each: Round) -> list[Entry]:
    try:
        return list(read_entries(each.entries, each.count))
    except (EntryError, BatchError) as error:
        raise damage("journal", f"round {each.lsn} holds an entry that makes no sense: {error}") from error
