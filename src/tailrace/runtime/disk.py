"""The disk port, and the real disk behind it.

Everything that the storage engines do to files goes through `Disk` and `File`, so that a simulated disk can
lose, tear and reorder it. Paths are relative to the data directory, "" is the directory itself.

Where a call runs is decided here. In a loop of our own a small write and a sync run in place, because handing
them to a thread and back costs 0.13 ms, about what a sync takes; when slow ones are more than rare, their
kind moves to a thread for a while (`Patience`). In a loop that belongs to the user's program they always run
in a thread. Threads run single system calls that release the GIL, never Python code for long.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar
from weakref import WeakSet

Buffer = bytes | bytearray | memoryview

_P = ParamSpec("_P")
_T = TypeVar("_T")

_INLINE_WRITE_BYTES_MAX = 1 << 20  # takes a third of a millisecond while the page cache takes it
_SLOW_S = 0.001
_DEBT_MAX_S = 0.1
_DEBT_TOLERATED_S = 0.02
_REPAID_PER_S = 0.1
_BUFFERS_MAX = 1024  # IOV_MAX on Linux and macOS
_DISK_THREADS = 4
_LINKS_AT_ONCE = 64  # about a millisecond of a disk thread
_F_FULLFSYNC = 51  # macOS: fsync alone leaves the data in the drive's cache
_FALLOC_FL_KEEP_SIZE = 1
_CAN_ASK = hasattr(os, "RWF_NOWAIT")  # macOS cannot ask whether a read would wait
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class SyncError(OSError):
    """A sync failed: what was written since the one before may be lost, and no later sync can tell."""


class File(Protocol):
    """An open file."""

    path: str

    def size(self) -> int:
        """Length in bytes."""

    def read_nowait(self, position: int, buffer: memoryview) -> int | None:
        """Fill `buffer` from the page cache; None if that would wait for the disk."""

    async def read(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer`; fewer bytes than asked for mean the end of the file."""

    async def write(self, position: int, buffers: Sequence[Buffer], *, sync: bool = False) -> None:
        """Write all of `buffers`, one after the other, then sync if asked; OSError or SyncError."""

    async def sync(self, *, bulk: bool = False) -> None:
        """Make what was written survive a power cut, or SyncError; `bulk` if that may be megabytes."""

    async def truncate(self, size: int) -> None:
        """Cut or extend to `size`; space reserved past it is given back."""

    async def reserve(self, end: int) -> None:
        """Make room for the bytes below `end` without changing the size; OSError(ENOSPC) if there is none."""

    def close(self) -> None:
        """Let go of it; closing twice is harmless."""


class Disk(Protocol):
    """A data directory."""

    async def open(self, path: str, *, fresh: bool = False) -> File:
        """Open an existing file; `fresh` drops what the page cache believes about it."""

    async def create(self, path: str) -> File:
        """Open a new, empty file; one that is there already is emptied."""

    async def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; directories end with a slash."""

    async def make_directory(self, path: str) -> None:
        """Create a directory; FileExistsError if it is there."""

    async def rename(self, source: str, target: str) -> None:
        """Rename, replacing a file that has the new name."""

    async def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""

    async def link(self, names: Sequence[tuple[str, str]]) -> Sequence[str]:
        """Give files second names, (source, target) each; returns the sources that do not exist."""

    async def sync_directory(self, path: str) -> None:
        """Make the names in a directory survive a power cut, or SyncError."""

    def free_bytes(self) -> int:
        """Space left for this process."""


class RealDisk:
    """A directory of the machine."""

    def __init__(self, root: str, *, owns_loop: bool = False) -> None:
        self.root = root
        self.calls = DiskCalls(owns_loop=owns_loop)
        self._files: WeakSet[RealFile] = WeakSet()

    def close(self) -> None:
        """End the disk threads, and close every file."""
        self.calls.close()
        for file in list(self._files):
            file.close()

    async def open(self, path: str, *, fresh: bool = False) -> RealFile:
        return await self._remember(path, os.O_RDWR, fresh)

    async def create(self, path: str) -> RealFile:
        return await self._remember(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, False)

    async def list(self, path: str) -> list[str]:
        return await self.calls.in_thread(_list_names, self._at(path))

    async def make_directory(self, path: str) -> None:
        await self.calls.in_thread(os.mkdir, self._at(path), 0o755)

    async def rename(self, source: str, target: str) -> None:
        await self.calls.in_thread(os.rename, self._at(source), self._at(target))

    async def remove(self, path: str) -> None:
        await self.calls.in_thread(_remove, self._at(path))

    async def link(self, names: Sequence[tuple[str, str]]) -> Sequence[str]:
        missing: Sequence[str] = ()
        for first in range(0, len(names), _LINKS_AT_ONCE):
            some = names[first : first + _LINKS_AT_ONCE]
            missing = (*missing, *await self.calls.in_thread(self._link_all, some))
        return missing

    async def sync_directory(self, path: str) -> None:
        await self.calls.in_thread(_sync_directory, self._at(path))

    def free_bytes(self) -> int:
        state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path)

    def _link_all(self, names: Sequence[tuple[str, str]]) -> Sequence[str]:
        missing = []
        for source, target in names:
            try:
                os.link(self._at(source), self._at(target))
            except FileNotFoundError:
                missing.append(source)
        return missing

    async def _remember(self, path: str, flags: int, fresh: bool) -> RealFile:
        file = await self.calls.in_thread(self._open, path, flags, fresh)
        self._files.add(file)
        return file

    def _open(self, path: str, flags: int, fresh: bool) -> RealFile:
        fd = os.open(self._at(path), flags | os.O_CLOEXEC, 0o644)
        if fresh and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return RealFile(path, fd, self.calls)


class RealFile:
    """A file descriptor.

    A call in a thread holds the file, not its number: a caller that was cancelled leaves the call running,
    and the number must not become another file's before it ends.
    """

    __slots__ = ("__weakref__", "_calls", "_fd", "path")

    def __init__(self, path: str, fd: int, calls: DiskCalls) -> None:
        self.path = path
        self._fd = fd
        self._calls = calls

    def __repr__(self) -> str:
        return f"<RealFile {self.path} fd {self._fd}>"

    def __del__(self) -> None:
        self.close()

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_nowait(self, position: int, buffer: memoryview) -> int | None:
        if not _CAN_ASK:
            return None
        try:
            done = os.preadv(self._fd, (buffer,), position, _NOWAIT)
        except OSError as error:
            if error.errno in (
                errno.EAGAIN,
                errno.EOPNOTSUPP,
            ):  # the latter: tmpfs before Linux 6.x and others
                return None
            raise
        if 0 < done < len(buffer):
            return None  # the rest is cold, or is the end of the file: `read` tells
        return done

    async def read(self, position: int, buffer: memoryview) -> int:
        return await self._calls.in_thread(self._read_whole, buffer, position)

    async def write(self, position: int, buffers: Sequence[Buffer], *, sync: bool = False) -> None:
        calls = self._calls
        if calls.writes_inline(sum(map(len, buffers))):
            calls.write(self._write_whole, buffers, position)
            if sync:
                await self.sync()
        elif sync:
            await calls.in_thread(self._write_and_sync, buffers, position)
        else:
            await calls.in_thread(self._write_whole, buffers, position)

    async def sync(self, *, bulk: bool = False) -> None:
        await self._calls.sync(self._sync, bulk=bulk)

    async def truncate(self, size: int) -> None:
        await self._calls.in_thread(self._truncate, size)

    async def reserve(self, end: int) -> None:
        if self._calls.writes_inline(0):
            self._calls.write(self._reserve, end)
        else:
            await self._calls.in_thread(self._reserve, end)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # ---- the calls themselves, wherever they run

    def _read_whole(self, buffer: memoryview, position: int) -> int:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._fd, [buffer[done:]], position + done)
            if not count:
                break
            done += count
        return done

    def _write_whole(self, buffers: Sequence[Buffer], position: int) -> None:
        for first in range(0, len(buffers), _BUFFERS_MAX):
            group = list(buffers[first : first + _BUFFERS_MAX])
            while group:
                done = os.pwritev(self._fd, group, position)
                position += done
                group = _unwritten(group, done)

    def _write_and_sync(self, buffers: Sequence[Buffer], position: int) -> None:
        self._write_whole(buffers, position)
        self._sync()

    def _sync(self) -> None:
        try:
            if sys.platform == "darwin":
                fcntl.fcntl(self._fd, _F_FULLFSYNC)
            else:
                os.fdatasync(self._fd)
        except OSError as error:
            raise SyncError(error.errno, error.strerror) from error

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def _reserve(self, end: int) -> None:
        _reserve(self._fd, end)


class Patience:
    """Whether calls of one kind may run in the loop: as long as slow ones are rare.

    What a call takes beyond a millisecond is a debt, and time repays a tenth of itself: the loop stands still
    for about that share at most. With too much debt the calls go to a thread until all of it is repaid.
    A single slow one, which may only mean that the machine was busy elsewhere, moves nothing.
    """

    __slots__ = ("_debt_s", "_exhausted", "_looked_at")

    def __init__(self) -> None:
        self._debt_s = 0.0
        self._looked_at = 0.0
        self._exhausted = False

    def allows(self, now: float) -> bool:
        """Whether the next call may run in place."""
        if self._debt_s:
            self._debt_s = max(self._debt_s - (now - self._looked_at) * _REPAID_PER_S, 0.0)
        self._looked_at = now
        if not self._debt_s:
            self._exhausted = False
        return not self._exhausted

    def spend(self, *, started: float, ended: float) -> None:
        """A call ran in place."""
        too_long_s = ended - started - _SLOW_S
        if too_long_s > 0:
            self._debt_s = min(self._debt_s + too_long_s, _DEBT_MAX_S)
            self._exhausted = self._debt_s > _DEBT_TOLERATED_S
            self._looked_at = ended


class DiskCalls:
    """Decides where a blocking call runs: in the loop while that is faster and safe, else in a thread."""

    def __init__(self, *, owns_loop: bool) -> None:
        self._owns_loop = owns_loop
        self._syncs = Patience()
        self._writes = Patience()
        self._executor = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="tailrace-disk")

    def close(self) -> None:
        self._executor.shutdown(wait=True)

    async def in_thread(self, call: Callable[_P, _T], *args: _P.args, **_: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call, *args)

    def writes_inline(self, size: int) -> bool:
        return self._owns_loop and size <= _INLINE_WRITE_BYTES_MAX and self._writes.allows(time.monotonic())

    def write(self, call: Callable[_P, None], *args: _P.args, **options: _P.kwargs) -> None:
        """A call into the page cache, in place."""
        started = time.monotonic()
        call(*args, **options)
        self._writes.spend(started=started, ended=time.monotonic())

    async def sync(self, call: Callable[[], None], *, bulk: bool) -> None:
        started = time.monotonic()
        if bulk or not self._owns_loop or not self._syncs.allows(started):
            await self.in_thread(call)
            return
        call()
        self._syncs.spend(started=started, ended=time.monotonic())


def _unwritten(group: list[Buffer], done: int) -> list[Buffer]:
    """What a write of `done` bytes left over; a short write is legal and goes on where it stopped."""
    for index, buffer in enumerate(group):
        if done < len(buffer):
            return [memoryview(buffer)[done:], *group[index + 1 :]]
        done -= len(buffer)
    return []


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncError(error.errno, error.strerror) from error
    finally:
        os.close(fd)


def _list_names(path: str) -> list[str]:
    with os.scandir(path) as found:
        return sorted(item.name + "/" if item.is_dir(follow_symlinks=False) else item.name for item in found)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except (IsADirectoryError, PermissionError):  # macOS answers the second for a directory
        os.rmdir(path)


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _reserve(fd: int, end: int) -> None:
    """Python's own posix_fallocate would change the size; a file system that cannot reserve is left alone."""
    if _libc is None:
        return
    while _libc.fallocate(fd, _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(end)) != 0:
        code = ctypes.get_errno()
        if code in (errno.EOPNOTSUPP, errno.ENOSYS):
            return
        if code != errno.EINTR:  # tmpfs gives up when a signal comes, and is asked again
            raise OSError(code, os.strerror(code))
