"""What the parts of the engine share: the data directory, its logs, its counters, and its end.

LSNs number the rounds of the journal. `checkpointed <= applied <= durable` always holds: rounds up to
`durable` are acknowledged, up to `applied` in the segment files, up to `checkpointed` in files that survive
anything.

The first failed sync, or failed write of the journal, fences the directory: no append is taken, nobody who
waits is told that anything is durable, no sync is tried again. A restart recovers.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.model import NoSpace, PartitionId, StorageError
from tailrace.runtime import BufferPool, Clock, Disk
from tailrace.storage.api import Cut
from tailrace.storage.counters import StorageCounters
from tailrace.storage.segment.cache import SegmentCache
from tailrace.storage.segment.config import DirectoryConfig
from tailrace.storage.segment.guard import GuardedDisk
from tailrace.storage.segment.snapshot import Snapshots

if TYPE_CHECKING:
    from tailrace.storage.encryption.keyring import Keyring
    from tailrace.storage.segment.entry import Control, Done, Entry
    from tailrace.storage.segment.log import SegmentLog

logger = logging.getLogger(__name__)

SHORTAGES = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
)
"""Errors that pass: of room, open files or memory there may be enough in a while. No other error does."""


class Directory:
    """The shared state of one data directory."""

    def __init__(
        self, disk: Disk, path: str, *, config: DirectoryConfig, clock: Clock, rng: random.Random
    ) -> None:
        self.disk: Disk = GuardedDisk(disk, self.fence)
        self.keyring: Keyring | None = None  # None: nothing here is encrypted
        self.path = path
        self.config = config
        self.clock = clock
        self.rng = rng
        self.counters = StorageCounters()
        self.pool = BufferPool()
        self.cache = SegmentCache(self.disk, self.pool, bytes_max=config.index_cache_bytes)
        self.snapshots = Snapshots(self.disk)
        self.serving: dict[PartitionId, SegmentLog] = {}
        self.creating: set[PartitionId] = set()  # sequenced and not yet durable, whoever still waits for it
        self.logs: dict[int, SegmentLog] = {}  # by life, until their deletion is applied
        self.labels: dict[int, bytes] = {}  # of logs, by life, that the applier has still to write
        self.next_life = 1
        self.durable_lsn = 0
        self.applied_lsn = 0
        self.checkpointed_lsn = 0
        self.queued_bytes = 0  # appended, not yet durable
        self.queue_bytes_max = config.queue_bytes_max
        self.batch_bytes_max = config.batch_bytes_max
        self.tail_bytes = 0
        self.evictable: dict[int, None] = {}  # lives that had something applied since they gave all they had
        self.refusal: Exception | None = None  # why no append is taken now
        self.apply_lock = asyncio.Lock()  # held while the files are between two rounds
        self.swap_lock = (
            asyncio.Lock()
        )  # held while compaction replaces a sealed segment, or a cut links them
        self.cuts: dict[str, Cut] = {}  # by name, until they are removed
        self.old_cuts: list[str] = []  # of an earlier process
        self.submit: Callable[[Entry, int], None] = _not_started
        self._awaited: dict[Done, None] = {}  # in the order in which they were sequenced
        self._failure: asyncio.Future[StorageError] = asyncio.get_running_loop().create_future()

    @property
    def failure(self) -> StorageError | None:
        """What ended this directory, if anything did."""
        return self._failure.result() if self._failure.done() else None

    async def wait_failed(self) -> StorageError:
        return await asyncio.shield(self._failure)

    async def wait_done_or_failed(self, work: asyncio.Future[None]) -> None:
        """Return when the work is done, or the directory has failed."""
        waiting: set[asyncio.Future[Any]] = {work, self._failure}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    def fence(self, error: BaseException) -> None:
        """End the directory. The first reason counts."""
        if self._failure.done():
            return
        if isinstance(error, StorageError):
            failure = error
        elif isinstance(error, OSError):
            reason = f"{error.strerror or error} (errno {error.errno})"
            failure = StorageError(
                "write or sync",
                self.path,
                reason,
                hint="Nothing more is acknowledged. Check the disk and start again: what was is recovered",
            )
        else:
            failure = StorageError("serve", self.path, f"{type(error).__name__}: {error}")
        logger.critical("log directory fenced: %s", failure, exc_info=error)
        self._failure.set_result(failure)
        self.refusal = failure
        for log in list(self.logs.values()):
            log.fail(failure)
        for done in self._awaited:
            if not done.done():
                done.set_exception(failure)

    async def sequence(self, entry: Control) -> None:
        """Queue an entry that is not an append, and return when it is durable."""
        done = entry.done = asyncio.get_running_loop().create_future()
        self._awaited[done] = None
        self.submit(entry, 0)
        try:
            await done
        finally:
            del self._awaited[done]

    def check_fence(self) -> None:
        """Raise what ended the directory, if anything did."""
        if self._failure.done():
            raise self._failure.result()

    def check_space(self) -> None:
        """Refuse appends while the disk is nearly full, and take them again when it is not."""
        if self._failure.done():
            return
        free, wanted = self.disk.free_bytes(), self.config.free_bytes_min
        if free >= wanted:
            if isinstance(self.refusal, NoSpace):
                logger.warning("disk has room again: %d bytes free", free)
                self.refusal = None
        elif self.refusal is None:
            self.refuse_for_space(f"{free} bytes are free, {wanted} are wanted")

    def refuse_for_space(self, reason: str) -> None:
        if self.refusal is None:
            logger.error("disk is full, appends are refused: %s", reason)
            self.refusal = NoSpace(
                f"no space in {self.path}: {reason}. Free some, or move the data directory"
            )

    def wait_out(self, error: OSError, what: str) -> None:
        """Refuse appends while something is short; an error that does not pass is raised, to end it all."""
        if error.errno not in SHORTAGES:
            raise error
        self.refuse_for_space(f"{what}: {error.strerror}")

    def evict_tails(self) -> None:
        """Keep the memory of applied batches within its bound, oldest users first."""
        excess = self.tail_bytes - self.config.tail_bytes_max
        if excess <= 0:
            return
        for life in list(self.evictable):
            excess -= self.logs[life].evict_tail(excess)
            if excess <= 0:
                return
            del self.evictable[life]  # thousands that have nothing to give are not asked at every turn


def _not_started(_: Entry, __: int) -> None:
    raise AssertionError("the directory does not commit yet")
