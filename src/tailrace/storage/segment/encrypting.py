"""The data keys of a directory that serves: found at the start, forgotten with their segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.storage.encryption.config import Encryption
from tailrace.storage.encryption.keys_disk import no_key, wrapped_by
from tailrace.storage.encryption.keys_file import SEGMENT, WrappedKey
from tailrace.storage.segment.checkpoint import NONE
from tailrace.storage.segment.names import STRAY, read_partition_directory

if TYPE_CHECKING:
    from tailrace.storage.encryption.keyring import Keyring
    from tailrace.storage.segment.directory import Directory

_UNUSED_MIN = 64


async def open_keyring(directory: Directory, encryption: Encryption | None) -> None:
    """Give the directory its keyring, before recovery reads a round; StorageError if the key is wrong."""
    if encryption is None or not encryption.keys:
        found = await wrapped_by(directory.disk)
        if found is not None:
            raise no_key(found)
        return
    from tailrace.storage.encryption.keyring import Keyring  # and with it cryptography

    rng = directory.rng
    ring = await Keyring.open(
        directory.disk, encryption.keys, encrypts=encryption.enabled, draw=rng.randbytes
    )
    if not (ring.fresh and not encryption.enabled):
        directory.keyring = ring


async def forget_unused_keys(directory: Directory, keyring: Keyring) -> None:
    """Drop the keys of segments that are gone, once they are many. Nothing may be queued or on its way."""
    lives = await _stray_lives(directory)

    def is_used(record: WrappedKey) -> bool:
        log = directory.logs.get(record.life)
        if record.purpose != SEGMENT or record.life in lives:
            return True
        return log is not None and (log.damaged != NONE or record.base in log.segments)

    unused = sum(not is_used(record) for record in keyring.records())
    if unused >= max(_UNUSED_MIN, len(keyring) // 4):
        await keyring.rewrite(keep=is_used)


async def _stray_lives(directory: Directory) -> set[int]:
    """Lives of partitions that were put aside: their segments stay readable."""
    names = await directory.disk.list("")
    found = (read_partition_directory(name.removeprefix(STRAY).rstrip("/")) for name in names)
    return {each[1] for each in found if each is not None}
