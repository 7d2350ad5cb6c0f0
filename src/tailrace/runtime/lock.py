"""One process per data directory.

The lock is an advisory `flock` on a file that stays; it goes with the process, however that ends. The file
holds the owner's process id, so that the one who comes second is told who came first.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from tailrace.model import StorageError


class DirectoryLock:
    """The exclusive right to a data directory, held until `release`."""

    def __init__(self, path: str) -> None:
        self._path = os.path.join(path, "LOCK")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise StorageError(
                "lock",
                path,
                f"the data directory is in use by pid {owner}",
                hint="Stop that process, or choose another directory",
            ) from error
        with suppress(OSError):  # on a full disk the lock holds all the same, and only the name is missing
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go; releasing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
