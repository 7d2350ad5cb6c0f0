"""The segment engine: a data directory that serves."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.model import PartitionExists, PartitionId, StorageError, UnknownPartition
from tailrace.runtime import Clock, DirectoryLock, Disk, RealDisk, Supervisor, SystemClock
from tailrace.storage.api import Cut, LogConfig
from tailrace.storage.counters import StorageCounters
from tailrace.storage.encryption.config import Encryption
from tailrace.storage.segment.apply import Applier
from tailrace.storage.segment.checkpointing import Checkpointer
from tailrace.storage.segment.commit import Committer
from tailrace.storage.segment.config import DirectoryConfig
from tailrace.storage.segment.cut import Cutter
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.encrypting import forget_unused_keys, open_keyring
from tailrace.storage.segment.entry import Create, Delete
from tailrace.storage.segment.housekeeping import Housekeeper
from tailrace.storage.segment.journal import Journal
from tailrace.storage.segment.label import Label, write_label
from tailrace.storage.segment.last_seen import LastSeen
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.names import CUT, RESTORING
from tailrace.storage.segment.recovery import Recovery

logger = logging.getLogger(__name__)


class SegmentStorage:
    """Logs in segment files, with one journal for all of them. Open one with `SegmentStorage.open`."""

    durable = True

    def __init__(
        self,
        disk: Disk,
        path: str,
        *,
        config: DirectoryConfig | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._disk = disk
        self._encryption = encryption
        config = config or DirectoryConfig()
        rng = rng or random.SystemRandom()
        self.directory = Directory(disk, path, config=config, clock=clock or SystemClock(), rng=rng)
        self._journal = Journal(self.directory.disk, file_bytes=config.journal_file_bytes, rng=rng)
        self._applier = Applier(self.directory)
        self._checkpointer = Checkpointer(self.directory, self._journal, self._applier)
        self._committer = Committer(
            self.directory,
            self._journal,
            self._applier,
            free_journal=self._checkpointer.free_journal,
            journal_half_full=self._checkpointer.request_room,
            checkpoint_due=self._checkpointer.request_checkpoint,
        )
        self._cutter = Cutter(self.directory, self._applier, self._checkpointer)
        self._last_seen = LastSeen(self.directory.disk, self.directory.clock)
        self._housekeeper = Housekeeper(
            self.directory,
            self._journal,
            self._committer,
            self._last_seen,
            checkpoint=self._checkpointer.checkpoint_all,
        )
        self._tasks = Supervisor(self._fail)
        self._closed = False
        self._serving = False  # recovered: before that nothing may be settled, since nothing is known
        self._lock: DirectoryLock | None = None

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        config: DirectoryConfig | None = None,
        clock: Clock | None = None,
        owns_loop: bool = False,
        encryption: Encryption | None = None,
    ) -> SegmentStorage:
        """Recover a data directory, or begin a new one, and serve it; encrypted if there is a key.

        `owns_loop` says that the running event loop is ours alone, so that short syncs may run in it.
        """
        root = str(Path(path))
        os.makedirs(root, exist_ok=True)
        lock = _lock(root)
        disk = RealDisk(root, owns_loop=owns_loop)
        storage = cls(disk, root, config=config, clock=clock, encryption=encryption)
        storage._lock = lock
        try:
            await storage.start()
        except BaseException:
            await storage._let_go()
            raise
        return storage

    async def start(self) -> None:
        """Recover, then serve."""
        directory = self.directory
        try:
            await open_keyring(directory, self._encryption)
            await Recovery(directory, self._journal).run()
            if directory.keyring is not None:
                await directory.keyring.rewrite()
            await self._checkpointer.recovered()
            if directory.keyring is not None:
                await forget_unused_keys(directory, directory.keyring)
            await self._last_seen.begin()
        except OSError as error:
            raise StorageError("recover", directory.path, str(error), hint="Nothing is served") from error
        self._serving = True
        directory.check_space()
        self._tasks.start("commit", self._committer.run())
        self._tasks.start("apply", self._applier.run())
        self._tasks.start("checkpoint", self._checkpointer.run())
        self._tasks.start("housekeeping", self._housekeeper.run())
        if directory.old_cuts:
            self._tasks.start("old cuts", self._cutter.remove_old(directory.old_cuts))

    # ---- the port

    @property
    def counters(self) -> StorageCounters:
        return self.directory.counters

    def logs(self) -> Sequence[SegmentLog]:
        return list(self.directory.serving.values())

    def get(self, partition_id: PartitionId) -> SegmentLog | None:
        return self.directory.serving.get(partition_id)

    async def create(self, partition_id: PartitionId, config: LogConfig) -> SegmentLog:
        self._check_open()
        directory = self.directory
        known = directory.serving.get(partition_id)
        if partition_id in directory.creating or (known is not None and not known.deleting):
            raise PartitionExists(partition_id)
        log = SegmentLog(directory, life=directory.next_life, partition_id=partition_id, config=config)
        directory.next_life += 1
        directory.logs[log.life] = log
        log.unapplied = 1
        directory.creating.add(partition_id)
        await directory.sequence(Create(log.life, partition_id))
        self._housekeeper.settings_changed()
        return log

    async def delete(self, partition_id: PartitionId) -> None:
        self._check_open()
        log = self.directory.serving.get(partition_id)
        if log is None or log.deleting:
            raise UnknownPartition(partition_id)
        log.deleting = True
        log.fail(StorageError("use", log.path, "the log is deleted"))
        self.counters.damaged.discard(partition_id)
        log.unapplied += 1
        await self.directory.sequence(Delete(log.life))

    def configure(self, partition_id: PartitionId, config: LogConfig) -> None:
        log = self.directory.serving.get(partition_id)
        if log is None:
            raise UnknownPartition(partition_id)
        log.configure(config)
        self._housekeeper.settings_changed()

    def label(self, partition_id: PartitionId, *, cluster_id: str, topic: str) -> None:
        log = self.directory.serving.get(partition_id)
        if log is None:
            raise UnknownPartition(partition_id)
        label = Label(cluster_id=cluster_id, topic=topic, partition_id=partition_id)
        self.directory.labels[log.life] = write_label(label)
        self._applier.write_labels_soon()

    async def maintain(self) -> None:
        self._check_open()
        await self._guarded(self._housekeeper.maintain())

    async def compact(self) -> None:
        self._check_open()
        await self._guarded(self._housekeeper.compact())

    async def wait_failed(self) -> Exception:
        return await self.directory.wait_failed()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._serving and self.directory.failure is None:
                with suppress(StorageError):  # what failed has fenced the directory, and was logged
                    await self._guarded(self._settle_logs())
        finally:
            await self._let_go()

    async def wait_applied(self) -> None:
        """Return when everything durable is in the segment files."""
        await self._applier.wait_applied()

    async def checkpoint(self) -> None:
        """Apply and checkpoint everything durable now."""
        await self._guarded(self._checkpointer.checkpoint_all())

    async def cut(self) -> Cut:
        """Links to the files of a checkpoint that holds everything durable now, until `remove_cut`.

        StorageError if there is no room, or the file system has no hard links; the directory goes on.
        """
        self._check_open()
        cut = Cut(name=f"{CUT}{self.directory.rng.getrandbits(64):016x}", root=self.directory.path)
        await self._guarded(self._cutter.take(cut))
        return cut

    async def remove_cut(self, cut: Cut) -> None:
        """Remove a cut; what the log does not need any more is gone then."""
        await self._cutter.remove(cut)

    # ---- inside

    def _fail(self, error: BaseException) -> None:
        """A background task failed: nothing of this directory goes on."""
        self.directory.fence(error)
        self._tasks.cancel()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on behalf of a caller: its trouble with the disk ends the directory, and so does others'."""
        working = asyncio.ensure_future(work)
        try:
            await self.directory.wait_done_or_failed(working)
            if working.done():
                working.result()
        except OSError as error:
            self._fail(error)
        finally:
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
        self.directory.check_fence()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("use", self.directory.path, "the storage is closed")
        if self.directory.failure is not None:
            raise self.directory.failure

    async def _settle_logs(self) -> None:
        """Everything appended becomes durable, applied and checkpointed."""
        for log in self.logs():
            await log.close()
        await self._committer.wait_idle()
        await self._checkpointer.checkpoint_all()
        await self._last_seen.write()
        await self._applier.write_labels()

    async def _let_go(self) -> None:
        await self._housekeeper.wait_idle()
        await self._tasks.stop()
        closed = StorageError("use", self.directory.path, "the storage is closed")
        for log in list(self.directory.logs.values()):
            log.fail(self.directory.failure or closed)
        if isinstance(self._disk, RealDisk):
            self._disk.close()
        if self._lock is not None:
            self._lock.release()


def _lock(root: str) -> DirectoryLock:
    """The right to serve a directory; StorageError if a restore has not ended there."""
    lock = DirectoryLock(root)
    if os.path.exists(os.path.join(root, RESTORING)):
        lock.release()
        raise StorageError(
            "open",
            root,
            "a restore into it was interrupted",
            hint=f"Repeat it: tailrace restore BACKUP --data-dir {root}",
        )
    return lock
