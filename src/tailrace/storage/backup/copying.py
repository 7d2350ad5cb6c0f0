"""One file copied, hashed on the way, at a bounded pace."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from tailrace.runtime.private import open_private

PIECE_BYTES = 1 << 20
READ_ONLY = 0o444

Advance = Callable[[int], None]


class SourceChanged(OSError):
    """The file is shorter than it has to be."""


class Pace:
    """Keeps the average of what is read below a number of bytes per second; None is no limit."""

    def __init__(self, bytes_per_s: float | None = None) -> None:
        self._bytes_per_s = bytes_per_s
        self._due = time.monotonic()

    def spend(self, bytes_done: int) -> None:
        """Wait until this many more bytes are within the rate."""
        if self._bytes_per_s is None:
            return
        now = time.monotonic()
        self._due = max(self._due, now - 1.0) + bytes_done / self._bytes_per_s
        if self._due > now:
            time.sleep(self._due - now)


def copy_file(
    source: Path, target: Path, *, size: int, pace: Pace, advance: Advance, mode: int = READ_ONLY
) -> str:
    """Copy the first `size` bytes durably, under a name that is complete or absent; returns their SHA-256.

    What others may not read they may not read in the copy, whatever `mode` says.
    """
    fresh = target.with_name(target.name + ".tmp")
    digest = hashlib.sha256()
    with (
        open(source, "rb", buffering=0) as reader,
        open(fresh, "wb", buffering=0, opener=open_private) as writer,
    ):
        left = size
        while left:
            piece = reader.read(min(left, PIECE_BYTES))
            if not piece:
                raise SourceChanged(f"{source} ends {left} bytes before it should")
            _write_all(writer.fileno(), piece)
            digest.update(piece)
            left -= len(piece)
            advance(len(piece))
            pace.spend(len(piece))
        os.fchmod(writer.fileno(), mode & (os.fstat(reader.fileno()).st_mode | 0o700))
        os.fsync(writer.fileno())
    os.replace(fresh, target)
    return digest.hexdigest()


def hash_file(path: Path, *, advance: Advance) -> str:
    """The SHA-256 of a file, read from the disk where the system allows that."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
            advance(len(piece))
    return digest.hexdigest()


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
