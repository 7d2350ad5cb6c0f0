"""Files that only their owner may read: the metadata holds the verifiers of passwords.

A file that another version made readable for others is closed to them when it is opened. A file of another
owner keeps its mode, since only its owner can change that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

MODE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make_private(paths: Iterable[str]) -> None:
    """Close the files to others; one that does not exist is left out."""
    for path in paths:
        with suppress(FileNotFoundError, PermissionError):
            if os.stat(path).st_mode & _OTHERS:
                os.chmod(path, MODE)


def create_private(path: str) -> None:
    """An empty file, unless there is a file."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, MODE))


def open_private(path: str | Path) -> BinaryIO:
    """The file, emptied, for writing."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    with suppress(PermissionError):
        os.fchmod(descriptor, MODE)
    return os.fdopen(descriptor, "wb")
