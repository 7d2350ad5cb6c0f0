"""Recovery: from whatever a crash left to a directory that serves.

Read the checkpoint and every round above it; sync the journal before any other write; plan; examine what must
already be there; write the surviving inline batches, cut every planned segment to its length, remove what the
plan does not know; sync; checkpoint; serve. It may be killed at any call, any number of times: until the new
checkpoint is durable, the next run finds the same journal and makes the same plan.

Caches are dropped before reading: after a failed sync the page cache holds what the disk does not.

Damage below what was acknowledged is never cut. If it touches the journal or the checkpoint the directory
does not open; if it touches one partition, that partition is quarantined: its files stay as they are, what is
readable is served, and appends are refused.
"""

from __future__ import annotations

import logging

from tailrace.runtime import Disk, File
from tailrace.storage.encryption.keys_disk import RESTORE_KEYS
from tailrace.storage.encryption.keys_file import KEYS
from tailrace.storage.segment.adoption import Adoption
from tailrace.storage.segment.apply import remove_partition
from tailrace.storage.segment.cache import read_file
from tailrace.storage.segment.checkpoint import NONE, Checkpoint
from tailrace.storage.segment.checkpoint_file import REBUILD, load_checkpoint, write_checkpoint_file
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.entry import REFERENCED, Append
from tailrace.storage.segment.examination import Examiner, Findings, runs_of
from tailrace.storage.segment.journal import Journal, JournalFile, read_header, read_rounds
from tailrace.storage.segment.names import (
    CHECKPOINT,
    CUT,
    DELETED,
    JOURNAL_DIRECTORY,
    LABEL,
    SEGMENT_SUFFIXES,
    STRAY,
    SURVEY,
    journal_file,
    numbered,
    read_journal_file,
    read_numbered,
    read_partition_directory,
)
from tailrace.storage.segment.plan import JournalContent, Plan, damage, plan_recovery, read_journal
from tailrace.storage.segment.shape import wholly_below
from tailrace.storage.segment.survey import Survey

logger = logging.getLogger(__name__)


class Recovery:
    """One run over one directory."""

    def __init__(self, directory: Directory, journal: Journal) -> None:
        self._directory = directory
        self._disk: Disk = directory.disk
        self._journal = journal
        self._examiner = Examiner(directory.disk)

    async def run(self) -> None:
        """Leave the directory's logs as they were acknowledged. The caller checkpoints, then serves."""
        loaded = await load_checkpoint(self._disk)
        if loaded is None:
            await self._format()
            return
        checkpoint = loaded.checkpoint
        self._check_keys(checkpoint)
        content = read_journal(await self._open_journal(checkpoint), checkpoint)
        loaded.check_rounds(content.rounds)
        await self._remove_unlisted(checkpoint)
        await self._sync_journal()
        plans, deleted, greatest_life = plan_recovery(checkpoint.rows, content.rounds)
        self._take_over(checkpoint, content, greatest_life)
        await self._carry_out(plans, deleted, outdated=(SURVEY,))

    def _check_keys(self, checkpoint: Checkpoint) -> None:
        keyring = self._directory.keyring
        if checkpoint.format > 1 and (keyring is None or keyring.fresh):
            raise damage(
                KEYS, "the directory is encrypted, and the file of its keys is missing", hint=RESTORE_KEYS
            )

    async def resume(self, survey: Survey) -> None:
        """The same for a directory without a checkpoint, whose plans were made from its files."""
        await self._open_journal(survey.checkpoint)
        await self._sync_journal()
        await self._disk.sync_directory(
            JOURNAL_DIRECTORY
        )  # no checkpoint may have listed the newest file yet
        self._take_over(survey.checkpoint, survey.content, survey.greatest_life)
        await self._carry_out(survey.plans, survey.deleted)

    async def _carry_out(
        self, plans: list[Plan], deleted: set[str], *, outdated: tuple[str, ...] = ()
    ) -> None:
        found = [await self._examiner.examine(plan) for plan in plans]
        for each in found:
            await self._restore(each)
        await self._remove_others({plan.path for plan in plans}, deleted, outdated)
        await self._disk.sync_directory("")
        adoption = Adoption(self._directory)
        for each in found:
            await adoption.adopt(each)

    def _take_over(self, checkpoint: Checkpoint, content: JournalContent, greatest_life: int) -> None:
        """Number rounds and lives on from what was found."""
        directory = self._directory
        directory.durable_lsn = directory.applied_lsn = content.last_lsn
        directory.checkpointed_lsn = checkpoint.lsn
        directory.next_life = max(checkpoint.next_life, greatest_life + 1)
        self._journal.synced_lsn = content.last_lsn

    # ---- a new directory

    async def _format(self) -> None:
        names = await self._disk.list("")
        if any(read_partition_directory(name.rstrip("/")) for name in names):
            raise damage(CHECKPOINT, "the checkpoint is missing, and partitions are there", hint=REBUILD)
        if JOURNAL_DIRECTORY + "/" in names:
            await self._check_unused()
        else:
            await self._disk.make_directory(JOURNAL_DIRECTORY)
        self._journal.files.append(await self._journal.create_file())
        await self._disk.sync_directory("")
        await write_checkpoint_file(self._disk, Checkpoint(lsn=0, next_life=1, journal_files=(1,), rows=()))

    async def _check_unused(self) -> None:
        """A crash while formatting leaves journal files without rounds; else CHECKPOINT was lost."""
        for name in await self._disk.list(JOURNAL_DIRECTORY):
            data = memoryview(await read_file(self._disk, f"{JOURNAL_DIRECTORY}/{name}", fresh=True) or b"")
            header = read_header(data)
            if header is not None and any(True for _ in read_rounds(data, header)):
                raise damage(
                    CHECKPOINT, "the checkpoint is missing, and the journal holds rounds", hint=REBUILD
                )

    # ---- the journal

    async def _open_journal(self, checkpoint: Checkpoint) -> dict[int, memoryview]:
        """The bytes of every file that the checkpoint lists."""
        contents: dict[int, memoryview] = {}
        for number in checkpoint.journal_files:
            try:
                file = await self._disk.open(journal_file(number), fresh=True)
            except FileNotFoundError:
                raise damage(journal_file(number), "the journal file is missing") from None
            data = bytearray(file.size())
            await file.read(0, memoryview(data))
            contents[number] = memoryview(data)
            self._journal.files.append(JournalFile(number, file, len(data)))
        return contents

    async def _remove_unlisted(self, checkpoint: Checkpoint) -> None:
        """Journal files that were made for a checkpoint that never was hold nothing."""
        listed = set(checkpoint.journal_files)
        for name in await self._disk.list(JOURNAL_DIRECTORY):
            if read_journal_file(name) not in listed:
                await self._disk.remove(f"{JOURNAL_DIRECTORY}/{name}")

    async def _sync_journal(self) -> None:
        """What is replayed must not be lost by the next crash, whose recovery would plan without it."""
        for file in self._journal.files:
            await file.file.sync()

    # ---- restore: the files become what the plan says

    async def _restore(self, found: Findings) -> None:
        plan, disk = found.plan, self._disk
        if found.names is None:
            await disk.make_directory(plan.path)
            found.names = []
        if plan.damaged == NONE:
            for name in _unplanned(found):
                await disk.remove(f"{plan.path}/{name}")
                found.names.remove(name)
        await self._create_missing(found)
        for run in runs_of(plan.surviving()):
            if not run[0].flags & REFERENCED:
                await write_run(found.files[run[0].segment], run)
        for base, length in plan.shape.segments.items():
            if plan.damaged == NONE:
                await found.files[base].truncate(length)
            await found.files[base].sync(bulk=True)
        await disk.sync_directory(plan.path)

    async def _create_missing(self, found: Findings) -> None:
        """A new segment is durable in its directory before its first byte."""
        created = False
        for base in found.plan.shape.segments:
            if await self._examiner.open(found, base) is None:
                found.files[base] = await self._disk.create(f"{found.plan.path}/{numbered(base, 'log')}")
                created = True
        if created:
            await self._disk.sync_directory(found.plan.path)

    async def _remove_others(self, known: set[str], deleted: set[str], outdated: tuple[str, ...]) -> None:
        """Finish deletions; what nobody knows is put aside and reported, never removed.

        A survey is outdated once a start has read the checkpoint that it led to: the log may end before the
        start that it names, and no round would tell a later rebuild so.
        """
        for entry in await self._disk.list(""):
            if entry in outdated:
                await self._disk.remove(entry)
                continue
            name = entry.rstrip("/")
            if name in (entry, JOURNAL_DIRECTORY) or name in known or name.startswith(STRAY):
                continue
            if name.startswith(CUT):
                self._directory.old_cuts.append(name)
            elif name in deleted or name.startswith(DELETED):
                await remove_partition(self._directory, name)
            elif read_partition_directory(name) is not None:
                logger.warning("partition directory that nothing knows, put aside: %s", STRAY + name)
                await self._disk.rename(name, STRAY + name)


async def write_run(file: File, run: list[Append]) -> None:
    """Write what survives, whether or not it seems to be there: only the plan knows."""
    await file.write(run[0].position, [append.stored.data for append in run])


def _unplanned(found: Findings) -> list[str]:
    """Names that are not part of the partition.

    Those are: segments that the plan does not know, from the end of the solid part on; what lies below the
    start; snapshots past the solid part; unfinished files.
    """
    plan = found.plan
    known = {base for base in found.bases if base <= plan.solid[0]} | set(plan.shape.segments)
    known.difference_update(wholly_below(known, plan.shape.start))
    names = {numbered(base, suffix) for base in known for suffix in SEGMENT_SUFFIXES}

    def planned(name: str) -> bool:
        offset = read_numbered(name, "snapshot")
        return name in names or name == LABEL if offset is None else offset <= plan.solid_offset

    return [name for name in found.names or [] if not planned(name)]
