"""Another key-encryption key for a directory that no broker serves."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tailrace.runtime import DirectoryLock, RealDisk
from tailrace.storage.encryption.config import Encryption
from tailrace.storage.encryption.keyring import Keyring
from tailrace.storage.encryption.keys_disk import wrapped_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """What a rotation did, or would do."""

    before: str  # id of the key-encryption key
    after: str
    data_keys: int


async def rotate_directory(
    path: str | os.PathLike[str], encryption: Encryption, *, dry_run: bool
) -> Rotation | None:
    """Wrap every data key under the first of the keys; None if the directory has no data keys.

    It may be killed at any moment and repeated: until KEYS has its new name, the old key opens the directory.
    """
    root = str(Path(path))
    lock = DirectoryLock(root)
    disk = RealDisk(root)
    try:
        before = await wrapped_by(disk)
        if before is None:
            return None
        ring = await Keyring.open(disk, encryption.keys)
        if not dry_run:
            await ring.rewrite()
        return Rotation(before=before, after=encryption.keys[0].key_id, data_keys=len(ring))
    finally:
        disk.close()
        lock.release()
