"""Snapshots of the state that is derived from a log: leader epochs and idempotent producers.

One is named by the offset up to which the log was applied to it, and written by a checkpoint when the state
changed since the last one. Recovery takes the one that its checkpoint names and applies what the journal
holds above it; if that one is unreadable the state is made again from the log.

    0  8s  "TRSTATE1"    8  u32  length of the epochs    12  u32  CRC32C of everything but itself
   16      epochs, then producers
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress

from tailrace.model import Offset
from tailrace.records import crc32c
from tailrace.runtime import Disk
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates
from tailrace.storage.segment.cache import read_file
from tailrace.storage.segment.names import numbered, read_numbered

_MAGIC = b"TRSTATE1"
_HEAD = struct.Struct("<8sI")
_CRC = struct.Struct("<I")


def write_snapshot(epochs: LeaderEpochs, producers: ProducerStates) -> bytes:
    """The whole file."""
    return join_snapshot(epochs, producers.write_slices())


def join_snapshot(epochs: LeaderEpochs, producers: Iterable[bytes]) -> bytes:
    """The same out of what `ProducerStates.write_slices` gave."""
    epoch_bytes = epochs.write()
    head = _HEAD.pack(_MAGIC, len(epoch_bytes))
    body = b"".join((epoch_bytes, *producers))
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def read_snapshot(data: bytes) -> tuple[LeaderEpochs, ProducerStates] | None:
    """None if a byte is wrong or missing."""
    start = _HEAD.size + _CRC.size
    if len(data) < start:
        return None
    magic, epoch_length = _HEAD.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    body = data[start:]
    if magic != _MAGIC or crc != crc32c(body, crc32c(data[: _HEAD.size])) or epoch_length > len(body):
        return None
    try:
        return LeaderEpochs.read(body[:epoch_length]), ProducerStates.read(body[epoch_length:])
    except ValueError:
        return None


class Snapshots:
    """The snapshot files of the partitions."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def load(self, directory: str, offset: int) -> tuple[LeaderEpochs, ProducerStates] | None:
        """The state at `offset`, if there is a readable snapshot of it."""
        data = await read_file(self._disk, f"{directory}/{numbered(offset, 'snapshot')}")
        return None if data is None else read_snapshot(data)

    async def producers_before(self, directory: str, offset: Offset) -> tuple[Offset, ProducerStates]:
        """The newest readable snapshot that is not past `offset`; from there the log is to be applied."""
        for known in sorted(await self.offsets(directory), reverse=True):
            if known <= offset and (found := await self.load(directory, known)) is not None:
                return Offset(known), found[1]
        return Offset(0), ProducerStates()

    async def offsets(self, directory: str) -> list[int]:
        try:
            names = await self._disk.list(directory)
        except FileNotFoundError:  # the partition's creation is not applied yet
            return []
        return [offset for name in names if (offset := read_numbered(name, "snapshot")) is not None]

    async def save(self, directory: str, offset: int, data: bytes) -> None:
        """Write a snapshot durably, its name included."""
        path = f"{directory}/{numbered(offset, 'snapshot')}"
        file = await self._disk.create(path + ".tmp")
        await file.write(0, [data], sync=True)
        file.close()
        await self._disk.rename(path + ".tmp", path)
        await self._disk.sync_directory(directory)

    async def prune(self, directory: str, keep: int) -> None:
        """Remove all but the one at `keep` and the one before it; the partition may go away meanwhile."""
        older = sorted(offset for offset in await self.offsets(directory) if offset < keep)
        for offset in older[:-1]:
            with suppress(FileNotFoundError):
                await self._disk.remove(f"{directory}/{numbered(offset, 'snapshot')}")
