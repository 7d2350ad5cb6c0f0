"""The disk as the engine sees it: the first failed sync ends everything, at once.

After a failed sync the kernel counts the pages as clean, so a second one would lie. The failure is reported
where it happens and before its caller goes on, so that no other task can acknowledge anything in between; and
from then on no sync begins, of whichever file.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from tailrace.runtime import Disk, File, SyncError
from tailrace.runtime.disk import Buffer


class GuardedDisk:
    """A disk whose failed syncs are told to `on_failure`."""

    def __init__(self, disk: Disk, on_failure: Callable[[SyncError], None]) -> None:
        self._disk = disk
        self._on_failure = on_failure
        self._failed = False
        self.list = disk.list
        self.make_directory = disk.make_directory
        self.rename = disk.rename
        self.remove = disk.remove
        self.link = disk.link
        self.free_bytes = disk.free_bytes

    async def open(self, path: str, *, fresh: bool = False) -> GuardedFile:
        return GuardedFile(await self._disk.open(path, fresh=fresh), self)

    async def create(self, path: str) -> GuardedFile:
        return GuardedFile(await self._disk.create(path), self)

    async def sync_directory(self, path: str) -> None:
        self.check()
        try:
            await self._disk.sync_directory(path)
        except SyncError as error:
            raise self.failed(error) from None

    def check(self) -> None:
        """No sync begins after one that failed."""
        if self._failed:
            raise SyncError(errno.EIO, "an earlier sync failed, and another one would not tell the truth")

    def failed(self, error: SyncError) -> SyncError:
        if not self._failed:
            self._failed = True
            self._on_failure(error)
        return error


class GuardedFile:
    """A file of such a disk."""

    __slots__ = ("_disk", "_file", "close", "path", "read", "read_nowait", "reserve", "size", "truncate")

    def __init__(self, file: File, disk: GuardedDisk) -> None:
        self._file = file
        self._disk = disk
        self.path = file.path
        self.size = file.size
        self.read_nowait = file.read_nowait
        self.read = file.read
        self.truncate = file.truncate
        self.reserve = file.reserve
        self.close = file.close

    def __repr__(self) -> str:
        return repr(self._file)

    async def write(self, position: int, buffers: Sequence[Buffer], *, sync: bool = False) -> None:
        if not sync:
            await self._file.write(position, buffers)
            return
        self._disk.check()
        try:
            await self._file.write(position, buffers, sync=True)
        except SyncError as error:
            raise self._disk.failed(error) from None

    async def sync(self, *, bulk: bool = False) -> None:
        self._disk.check()
        try:
            await self._file.sync(bulk=bulk)
        except SyncError as error:
            raise self._disk.failed(error) from None
