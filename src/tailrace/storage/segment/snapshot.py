"""Snapshots of the state that is derived from a log: leader epochs, producers and their open transactions.

One is named by the offset up to which the log was applied to it, and written by a checkpoint when the state
changed since the last one. Recovery takes the one that its checkpoint names and applies what the journal
holds above it; if that one is unreadable the state is made again from the log.

    0  8s  "TRSTATE1"    8  u32  length of the epochs    12  u32  CRC32C of everything but itself
   16      epochs, then producers

Where a producer has had a transaction, or one was aborted, it is of format 2:

    0  8s  "TRSTATE2"    8  u32  length of the epochs    12  u32  CRC32C of everything but itself
   16      epochs, then (big-endian) u32 count and the i64 base offsets, ascending, of the segments that have
           a list of aborted transactions, then producers in their form 2

All others are of format 1, so that earlier versions read them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from tailrace.model import Offset
from tailrace.records import crc32c
from tailrace.runtime import Disk
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates
from tailrace.storage.segment.cache import read_file
from tailrace.storage.segment.names import numbered, read_numbered

_MAGICS = {1: b"TRSTATE1", 2: b"TRSTATE2"}
_FORMATS = {magic: number for number, magic in _MAGICS.items()}
_HEAD = struct.Struct("<8sI")
_CRC = struct.Struct("<I")
_COUNT = struct.Struct(">I")
_BASE = struct.Struct(">q")


class State(NamedTuple):
    """What a snapshot holds."""

    epochs: LeaderEpochs
    producers: ProducerStates
    aborted_bases: tuple[int, ...] = ()
    """Base offsets of the segments that have a list of aborted transactions, ascending."""

    def choose_format(self) -> int:
        """The oldest format that holds it."""
        return 2 if self.aborted_bases else self.producers.form


def write_snapshot(state: State) -> bytes:
    """The whole file."""
    number = state.choose_format()
    return join_snapshot(state, number, state.producers.write_slices(number))


def join_snapshot(state: State, number: int, producers: Iterable[bytes]) -> bytes:
    """The same in format `number`, out of what `ProducerStates.write_slices` gave for it."""
    parts = [state.epochs.write()]
    head = _HEAD.pack(_MAGICS[number], len(parts[0]))
    if number > 1:
        parts.append(_COUNT.pack(len(state.aborted_bases)))
        parts += [_BASE.pack(base) for base in state.aborted_bases]
    body = b"".join((*parts, *producers))
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def read_snapshot(data: bytes) -> State | None:
    """None if a byte is wrong or missing."""
    start = _HEAD.size + _CRC.size
    if len(data) < start:
        return None
    magic, epoch_length = _HEAD.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    body = data[start:]
    if magic not in _FORMATS or crc != crc32c(body, crc32c(data[: _HEAD.size])) or epoch_length > len(body):
        return None
    try:
        return _read_body(body, epoch_length, _FORMATS[magic])
    except (ValueError, struct.error):
        return None


def _read_body(body: bytes, epoch_length: int, number: int) -> State:
    position = epoch_length
    bases: tuple[int, ...] = ()
    if number > 1:
        (count,) = _COUNT.unpack_from(body, position)
        position += _COUNT.size
        if count * _BASE.size > len(body) - position:
            raise ValueError(f"{count} segments do not fit into {len(body)} bytes")
        end = position + count * _BASE.size
        bases = tuple(base for (base,) in _BASE.iter_unpack(body[position:end]))
        position = end
    producers = ProducerStates.read(body[position:], number)
    return State(LeaderEpochs.read(body[:epoch_length]), producers, bases)


class Snapshots:
    """The snapshot files of the partitions."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def load(self, directory: str, offset: int) -> State | None:
        """The state at `offset`, if there is a readable snapshot of it."""
        data = await read_file(self._disk, f"{directory}/{numbered(offset, 'snapshot')}")
        return None if data is None else read_snapshot(data)

    async def producers_before(self, directory: str, offset: Offset) -> tuple[Offset, ProducerStates]:
        """The newest readable snapshot that is not past `offset`; from there the log is to be applied."""
        for known in sorted(await self.offsets(directory), reverse=True):
            if known <= offset and (found := await self.load(directory, known)) is not None:
                return Offset(known), found.producers
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
