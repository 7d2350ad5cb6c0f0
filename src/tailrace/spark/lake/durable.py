"""Files and folders that survive a power cut.

The order is always: the bytes, then the name. A file is written under another name and synced, then it gets
its own name, then the folder is synced. So a name that is there stands for bytes that are whole.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.model import StorageError

LOCK_TIMEOUT_S = 120.0
"""Commits take milliseconds; one that deletes many old files may take seconds."""
_LOCK_PAUSE_S = 0.01
_TEMPORARY_PREFIX = "_new-"


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Create a folder with what is missing above it, each synced into the one it lies in."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
    sync_folder(path.parent)


def write_new(path: Path, data: bytes) -> bool:
    """Create a file that is whole from the moment it has its name; False if the name is taken."""
    temporary = write_temporary(path.parent, data)
    return link_new(temporary, path)


def write_temporary(folder: Path, data: bytes) -> Path:
    """A synced file under a name that nobody looks for."""
    temporary = folder / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def link_new(temporary: Path, path: Path) -> bool:
    """Give a temporary file its name unless somebody else has it; the temporary name goes either way."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def replace_file(path: Path, data: bytes) -> None:
    """Write a file, or put other bytes in its place: a reader finds the old ones or the new ones, whole."""
    temporary = write_temporary(path.parent, data)
    os.replace(temporary, path)
    sync_folder(path.parent)


def remove_temporaries(folder: Path) -> None:
    """Clear what a killed writer left. Only under the lock: a living one's file looks the same."""
    for path in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)


@contextmanager
def hold_lock(path: Path, *, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold flock(2) on a file that stays, once whoever has it is done. It goes with the process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _wait_lock(fd, path, timeout_s)
        yield
    finally:
        os.close(fd)


def _wait_lock(fd: int, path: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # flock(2) itself can wait, but not with a deadline.
            if time.monotonic() > deadline:
                raise StorageError(
                    "lock",
                    str(path),
                    f"another process has held it for {timeout_s:g} s",
                    hint="Find it with lsof, and end it if it hangs",
                ) from None
            time.sleep(_LOCK_PAUSE_S)
        else:
            return
