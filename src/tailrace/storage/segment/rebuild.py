"""A new checkpoint for a directory whose checkpoint and copy are lost.

Survey (reads only), put the unreadable files aside, then recover as a start does, with the survey's plans in
the place of the checkpoint's rows. Like every recovery it may be killed at any call and repeated: until the
new checkpoint is durable, the journal and all that the survey reads are there.
"""

from __future__ import annotations

import logging
import os
import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.model import StorageError
from tailrace.runtime import Clock, DirectoryLock, Disk, RealDisk, SystemClock
from tailrace.storage.encryption.config import Encryption
from tailrace.storage.encryption.keys_disk import RESTORE_KEYS
from tailrace.storage.encryption.keys_file import KEYS
from tailrace.storage.segment.apply import Applier
from tailrace.storage.segment.checkpoint import NONE
from tailrace.storage.segment.checkpoint_file import load_checkpoint
from tailrace.storage.segment.checkpointing import Checkpointer
from tailrace.storage.segment.config import DirectoryConfig
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.encrypting import open_keyring
from tailrace.storage.segment.journal import Journal
from tailrace.storage.segment.names import (
    CHECKPOINT,
    CHECKPOINT_COPY,
    DAMAGED_CHECKPOINT,
    JOURNAL_DIRECTORY,
    SURVEY,
    TORN,
    numbered,
    read_numbered,
    read_partition_directory,
)
from tailrace.storage.segment.recovery import Recovery
from tailrace.storage.segment.survey import Advance, Survey, Surveyor, TornTail, save_starts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltPartition:
    """One partition as the new checkpoint has it."""

    path: str
    start: int
    end: int
    replayed_batches: int  # out of the journal
    torn_bytes: int  # behind the last whole batch: cut, and kept in a file
    quarantined_from: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild did, or would do."""

    first_lsn: int  # of the rounds that were replayed
    last_lsn: int
    partitions: tuple[RebuiltPartition, ...]
    deleted: tuple[str, ...]  # directories whose deletion is in the journal
    set_aside: tuple[str, ...]  # older lives of partitions, renamed to stray-
    kept: tuple[str, ...] = ()  # files that hold what was replaced


async def rebuild_directory(
    path: str | os.PathLike[str],
    *,
    dry_run: bool,
    advance: Advance,
    config: DirectoryConfig | None = None,
    encryption: Encryption | None = None,
) -> RebuildReport:
    """Rebuild the checkpoint of a directory that no broker serves; StorageError if that cannot be done."""
    root = str(Path(path))
    lock = DirectoryLock(root)
    disk = RealDisk(root, owns_loop=True)
    try:
        rebuild = Rebuild(disk, root, config=config, advance=advance, encryption=encryption)
        return await (rebuild.plan() if dry_run else rebuild.run())
    finally:
        disk.close()
        lock.release()


def bytes_to_survey(path: str | os.PathLike[str]) -> int:
    """At most as many bytes as a rebuild reads: the journal, and the newest segment of every partition."""
    root = Path(path)
    newest = [max(each.glob("*.log"), default=None) for each in root.iterdir() if _is_partition(each)]
    files = [*root.glob(f"{JOURNAL_DIRECTORY}/*"), *(file for file in newest if file is not None)]
    return sum(file.stat().st_size for file in files)


def _is_partition(path: Path) -> bool:
    return path.is_dir() and read_partition_directory(path.name) is not None


class Rebuild:
    """One rebuild of one directory."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        *,
        advance: Advance = lambda _: None,
        config: DirectoryConfig | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._disk = disk
        self._encryption = encryption
        self._path = path
        self._config = config or DirectoryConfig()
        self._clock = clock or SystemClock()
        self._rng = rng or random.SystemRandom()
        self._advance = advance

    async def plan(self) -> RebuildReport:
        """What `run` would do; nothing is written."""
        try:
            return _report(await self._survey(), kept=())
        except OSError as error:
            raise StorageError("rebuild", self._path, str(error), hint="Nothing was changed") from error

    async def run(self) -> RebuildReport:
        """Write the new checkpoint, after everything that it speaks of."""
        try:
            survey = await self._survey()
            await save_starts(self._disk, survey)
            kept = [await self._keep_tail(tail) for tail in survey.tails]
            kept += [await self._set_segment_aside(*segment) for segment in survey.segments]
            kept += await self._set_checkpoints_aside()
            await self._write(survey)
            await self._disk.remove(SURVEY)  # not synced: a start removes one that came back
        except OSError as error:
            raise StorageError(
                "rebuild", self._path, str(error), hint="Mend the disk, and repeat it"
            ) from error
        return _report(survey, kept=tuple(kept))

    async def _write(self, survey: Survey) -> None:
        await self._sync_segments(survey)
        for stem in survey.stale:
            for suffix in ("index", "timeindex"):
                with suppress(FileNotFoundError):
                    await self._disk.remove(stem + suffix)
        directory = self._directory()
        await open_keyring(directory, self._encryption)
        journal = Journal(directory.disk, file_bytes=self._config.journal_file_bytes, rng=self._rng)
        await Recovery(directory, journal).resume(survey)
        self._check_keys(directory)
        if directory.keyring is not None:
            await directory.keyring.rewrite()
        await Checkpointer(directory, journal, Applier(directory)).recovered()

    def _check_keys(self, directory: Directory) -> None:
        """Nothing vouches for a directory whose keys are lost: no checkpoint is left that would tell."""
        if directory.keyring is not None and not directory.keyring.fresh:
            return
        for log in directory.logs.values():
            if any(each.index is not None and each.index.encrypted for each in log.segments.values()):
                raise StorageError(
                    "rebuild", KEYS, f"{log.path} is encrypted, and there are no keys", hint=RESTORE_KEYS
                )

    def _directory(self) -> Directory:
        return Directory(self._disk, self._path, config=self._config, clock=self._clock, rng=self._rng)

    async def _survey(self) -> Survey:
        await open_keyring(self._directory(), self._encryption)  # a wrong key shows before anything is done
        survey = await Surveyor(self._disk, self._advance).survey()
        try:
            loaded = await load_checkpoint(self._disk)
            if loaded is not None:
                loaded.check_rounds(
                    each for each in survey.content.rounds if each.lsn > loaded.checkpoint.lsn
                )
        except StorageError:
            return survey  # neither file is of use
        await self._disk.sync_directory("")  # what a rebuild that was interrupted renamed is so for good
        if loaded is not None:
            which = CHECKPOINT_COPY if loaded.is_copy else CHECKPOINT
            raise StorageError(
                "rebuild",
                self._path,
                f"{which} is whole, so there is nothing to rebuild",
                hint="Start the broker",
            )
        if not survey.plans and not survey.content.last_lsn:
            raise StorageError("rebuild", self._path, "nothing was ever stored here", hint="Start a broker")
        return survey

    async def _sync_segments(self, survey: Survey) -> None:
        """Make everything durable that the new checkpoint vouches for and recovery does not write."""
        for plan in survey.plans:
            try:
                names = await self._disk.list(plan.path)
            except FileNotFoundError:
                continue  # its creation was not applied
            for name in names:
                if read_numbered(name, "log") is not None:
                    file = await self._disk.open(f"{plan.path}/{name}")
                    await file.sync(bulk=True)
                    file.close()
            await self._disk.sync_directory(plan.path)

    async def _keep_tail(self, tail: TornTail) -> str:
        """Save what recovery is about to cut off."""
        name = f"{TORN}{tail.path}-{tail.base}-{tail.position}"
        file = await self._disk.create(name)
        await file.write(0, [tail.data], sync=True)
        file.close()
        await self._disk.sync_directory("")
        return name

    async def _set_segment_aside(self, path: str, base: int) -> str:
        """A segment that is no part of its partition would be removed by recovery: it is kept elsewhere."""
        target = f"{TORN}{path}-{base}.log"
        await self._disk.rename(f"{path}/{numbered(base, 'log')}", target)
        await self._disk.sync_directory("")
        await self._disk.sync_directory(path)
        return target

    async def _set_checkpoints_aside(self) -> list[str]:
        names = await self._disk.list("")
        kept: list[str] = []
        for name in (CHECKPOINT, CHECKPOINT_COPY):
            if name in names:
                number = 1
                while (target := f"{DAMAGED_CHECKPOINT}{number}") in (*names, *kept):
                    number += 1
                await self._disk.rename(name, target)
                kept.append(target)
        await self._disk.sync_directory("")
        return kept


def _report(survey: Survey, *, kept: tuple[str, ...]) -> RebuildReport:
    torn = {tail.path: len(tail.data) for tail in survey.tails}
    partitions = [
        RebuiltPartition(
            path=plan.path,
            start=plan.shape.start,
            end=plan.shape.end,
            replayed_batches=len(plan.surviving()),
            torn_bytes=torn.get(plan.path, 0),
            quarantined_from=None if plan.damaged == NONE else plan.damaged,
        )
        for plan in sorted(survey.plans, key=lambda plan: plan.path)
    ]
    return RebuildReport(
        first_lsn=survey.checkpoint.lsn + 1,
        last_lsn=survey.content.last_lsn,
        partitions=tuple(partitions),
        deleted=tuple(sorted(survey.deleted)),
        set_aside=tuple(sorted(survey.set_aside)),
        kept=kept,
    )
