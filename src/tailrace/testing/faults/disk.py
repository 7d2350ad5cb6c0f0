"""Real disks that do harm on purpose: the n-th sync fails, or the n-th call ends the process.

After a failed sync the kernel holds the pages for clean: reading shows what was written, a second sync
succeeds, and the disk has nothing of it. So every write keeps what was there before until a sync has
confirmed it, and `lose` puts the old bytes back: that is what a restart of the machine would find.
"""

from __future__ import annotations

import builtins
import errno
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from tailrace.runtime import Disk, File, RealDisk, SyncError
from tailrace.runtime.disk import Buffer, DiskCalls

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class _Unsynced:
    """What was in a file before the writes since its last sync, oldest first, and how long it was."""

    size: int
    before: list[tuple[int, bytes]] = field(default_factory=list)


class FaultyDisk:
    """Another disk, but for its faults."""

    def __init__(self, disk: Disk, *, fail_sync_at: int = 0, kill_at: int = 0) -> None:
        self._disk = disk
        self._fail_sync_at = fail_sync_at
        self._kill_at = kill_at
        self.calls = 0
        self.syncs: list[
            str
        ] = []  # the path of each, directories with a slash behind it, in order of beginning
        self.failed_path: str | None = None  # whose sync failed
        self.syncs_after_failure: builtins.list[str] = []
        self.on_failure: Callable[[], None] = lambda: None
        self._unsynced: dict[str, _Unsynced] = {}
        self._lost: dict[str, _Unsynced] = {}

    def enter(self) -> None:
        """Count a call; the process may end here."""
        self.calls += 1
        if self.calls == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin_sync(self, path: str) -> None:
        """Count a sync; SyncError in the one that is to fail."""
        self.enter()
        self.syncs.append(path)
        if self.failed_path is not None:
            self.syncs_after_failure.append(path)
        if len(self.syncs) == self._fail_sync_at:
            self.failed_path = path
            if path in self._unsynced:
                self._lost[path] = self._unsynced.pop(path)
            self.on_failure()
            raise SyncError(errno.EIO, os.strerror(errno.EIO), path)

    def end_sync(self, path: str) -> None:
        """A sync succeeded. What an earlier one lost stays lost."""
        self._unsynced.pop(path, None)

    async def remember(self, file: File, position: int, end: int) -> None:
        """Keep what a write is about to replace."""
        unsynced = self._unsynced.setdefault(file.path, _Unsynced(file.size()))
        buffer = bytearray(max(0, min(end, file.size()) - position))
        if buffer:
            await file.read(position, memoryview(buffer))
        unsynced.before.append((position, bytes(buffer)))

    async def lose(self) -> None:
        """Leave the files as the disk has them: without what the failed sync should have written."""
        for path, lost in self._lost.items():
            file = await self._disk.open(path)
            for position, data in reversed(lost.before):
                await file.write(position, [data])
            await file.truncate(lost.size)
            file.close()
        self._lost.clear()

    # ---- the port

    async def open(self, path: str, *, fresh: bool = False) -> FaultyFile:
        self.enter()
        return FaultyFile(self, await self._disk.open(path, fresh=fresh))

    async def create(self, path: str) -> FaultyFile:
        self.enter()
        self._unsynced.pop(path, None)
        return FaultyFile(self, await self._disk.create(path))

    async def list(self, path: str) -> builtins.list[str]:
        self.enter()
        return await self._disk.list(path)

    async def make_directory(self, path: str) -> None:
        self.enter()
        await self._disk.make_directory(path)

    async def rename(self, source: str, target: str) -> None:
        self.enter()
        await self._disk.rename(source, target)

    async def remove(self, path: str) -> None:
        self.enter()
        await self._disk.remove(path)

    async def link(self, names: Sequence[tuple[str, str]]) -> Sequence[str]:
        self.enter()
        return await self._disk.link(names)

    async def sync_directory(self, path: str) -> None:
        self.begin_sync(path + "/")
        await self._disk.sync_directory(path)

    def free_bytes(self) -> int:
        return self._disk.free_bytes()


class FaultyFile:
    """A file of a faulty disk."""

    def __init__(self, disk: FaultyDisk, file: File) -> None:
        self.path = file.path
        self._disk = disk
        self._file = file

    def __repr__(self) -> str:
        return f"<FaultyFile {self._file!r}>"

    def size(self) -> int:
        return self._file.size()

    def read_nowait(self, position: int, buffer: memoryview) -> int | None:
        return self._file.read_nowait(position, buffer)

    async def read(self, position: int, buffer: memoryview) -> int:
        return await self._file.read(position, buffer)

    async def write(self, position: int, buffers: Sequence[Buffer], *, sync: bool = False) -> None:
        self._disk.enter()
        await self._disk.remember(self._file, position, position + sum(map(len, buffers)))
        await self._file.write(position, buffers)
        if sync:
            await self.sync()

    async def sync(self, *, bulk: bool = False) -> None:
        self._disk.begin_sync(self.path)
        await self._file.sync(bulk=bulk)
        self._disk.end_sync(self.path)

    async def truncate(self, size: int) -> None:
        self._disk.enter()
        if size < self._file.size():
            await self._disk.remember(self._file, size, self._file.size())
        await self._file.truncate(size)

    async def reserve(self, end: int) -> None:
        self._disk.enter()
        await self._file.reserve(end)

    def close(self) -> None:
        self._file.close()


class DirectDisk(RealDisk):
    """A real disk without threads, which are most of what opening a small directory takes."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.calls = _DirectCalls(owns_loop=True)


class _DirectCalls(DiskCalls):
    async def in_thread(self, call: Callable[_P, _T], *args: _P.args, **_: _P.kwargs) -> _T:
        return call(*args, **_)
