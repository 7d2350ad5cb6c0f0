"""KEYS and its copy as a start finds them, and what to tell a person about them. Needs no cryptography."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tailrace.model import StorageError
from tailrace.runtime import Disk
from tailrace.storage.encryption.keys_file import KEYS, KEYS_COPY, KeysFile, read_keys

logger = logging.getLogger(__name__)

RESTORE_KEYS = "Nothing was changed. Restore KEYS from a backup of this directory"


def wrong_key(wrapped_by: str, known: Iterable[str]) -> StorageError:
    """The directory belongs to another key."""
    given = ", ".join(known)
    return StorageError(
        "open",
        KEYS,
        f"the directory is encrypted under key {wrapped_by}, and the key given is {given}",
        hint="Nothing was changed. Set [encryption] key to the right one; while a rotation is under way, "
        "previous_key to the one before",
    )


def no_key(wrapped_by: str) -> StorageError:
    """The directory is encrypted, and no key is configured."""
    return StorageError(
        "open",
        KEYS,
        f"the directory is encrypted under key {wrapped_by}, and no key is given",
        hint="Nothing was changed. Set [encryption] key (file, env or command)",
    )


async def wrapped_by(disk: Disk) -> str | None:
    """The id of the key that a directory is encrypted under; None without KEYS, "unknown" if unreadable."""
    missing = True
    for path in (KEYS, KEYS_COPY):
        file = await read_keys_file(disk, path)
        if isinstance(file, KeysFile):
            return file.header.wrapped_by
        missing = missing and file is None
    return None if missing else "unknown"


async def read_keys_file(disk: Disk, path: str) -> KeysFile | bool | None:
    """The file; False if it cannot be read, None if it is not there."""
    try:
        file = await disk.open(path, fresh=True)
        data = bytearray(file.size())
        done = await file.read(0, memoryview(data)) if data else 0
        file.close()
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.error("cannot be read: %s: %s", path, error.strerror)
        return False
    found = read_keys(bytes(data[:done]))
    if found is None:
        logger.error("unreadable: %s", path)
        return False
    if found.unreadable:
        logger.warning("unreadable records in %s: %d, looked for in the other file", path, found.unreadable)
    return found
