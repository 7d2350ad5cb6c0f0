"""Files that only the user of the broker may read, whatever the umask: metadata with credentials in it."""

from __future__ import annotations

import os
from contextlib import suppress

PRIVATE = 0o600
_OF_OTHERS = 0o077


def open_private(path: str, flags: int) -> int:
    """The `opener` of `open`: a new file has mode 0600, an old one is restricted to its owner."""
    descriptor = os.open(path, flags, PRIVATE)
    try:
        _restrict(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_private(path: str | os.PathLike[str]) -> None:
    """Create an empty file for its owner alone, or take the rights of all others in one that exists."""
    os.close(open_private(os.fspath(path), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC))


def _restrict(descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if mode & _OF_OTHERS:
        with suppress(PermissionError):  # it belongs to another user, or the file system has no modes
            os.fchmod(descriptor, mode & 0o700)
