"""A data directory, read-only: nothing here can create, change or lock a file.

`fresh` reads come from the disk where the system allows it: the page cache may hold what the disk does not,
and a check that reads the cache proves the cache.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

WHOLE_FILE_BYTES_MAX = 1 << 30  # nothing that is read in one piece is ever this long

Stamp = tuple[int, int, int]
"""Which file it is, when it was written, how long it is: equal stamps mean that nothing moved."""


class Source:
    """The files of one data directory, by paths relative to it."""

    def __init__(self, root: str | os.PathLike[str], *, fresh: bool = False) -> None:
        self.root = os.fspath(root)
        self._fresh = fresh

    def names(self, path: str = "") -> list[str]:
        """Names in a directory, sorted; directories end with a slash."""
        with os.scandir(self._at(path)) as found:
            return sorted(
                each.name + "/" if each.is_dir(follow_symlinks=False) else each.name for each in found
            )

    def stamp(self, path: str) -> Stamp | None:
        try:
            state = os.stat(self._at(path))
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_size

    def size(self, path: str) -> int:
        """Length of a file; 0 if it is not there."""
        stamp = self.stamp(path)
        return stamp[2] if stamp else 0

    def tree_bytes(self, path: str) -> int:
        """Length of a file, or of every file below a directory."""
        if not path.endswith("/"):
            return self.size(path)
        try:
            return sum(self.tree_bytes(path + name) for name in self.names(path))
        except FileNotFoundError:
            return 0

    def open(self, path: str) -> SourceFile:
        return SourceFile(self._at(path), fresh=self._fresh)

    def read_whole(self, path: str, *, bytes_max: int = WHOLE_FILE_BYTES_MAX) -> bytes | None:
        """A file in one piece; None if it is not there, OSError if it is longer than such a file can be."""
        size = self.size(path)
        if size > bytes_max:
            raise OSError(errno.EFBIG, f"it has {size} bytes, which is more than it can have")
        return self.read_start(path, size)

    def read_start(self, path: str, size: int) -> bytes | None:
        """The first `size` bytes, fewer where the file ends; None if it is not there."""
        try:
            file = self.open(path)
        except FileNotFoundError:
            return None
        with file:
            return bytes(file.read(0, min(size, file.size())))

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path)


class SourceFile:
    """An open file."""

    def __init__(self, path: str, *, fresh: bool) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if fresh and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def __enter__(self) -> SourceFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> memoryview:
        """`size` bytes, fewer where the file ends."""
        buffer = memoryview(bytearray(size))
        done = 0
        while done < size:
            count = os.preadv(self._fd, [buffer[done:]], position + done)
            if not count:
                break
            done += count
        return buffer[:done].toreadonly()
