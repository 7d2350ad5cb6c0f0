"""The journal: one file at a time, written round by round, synced once per round.

A file has a header sector and then rounds, each beginning on a sector boundary, little-endian:

    header   0  8s   "TRJOURN1"                      round    0  u64  id of the file
             8  u64  id: random, new at every use             8  u32  length of what follows at 16
            16  u64  LSN of the first round                  12  u32  CRC32C of bytes 0-11 and 16 on
            24  u64  size of the file                        16  u64  LSN: rounds are numbered from 1
            32  u32  CRC32C of bytes 0-31                    24  u64  LSN known to be synced by then
                                                             32  u32  number of entries
                                                             36  u32  1: CHECKPOINT is kept twice
                                                             40       entries, then zeros to the sector's end

Files are zero-written before their first use, so that a later sync need not touch the file system's own
journal, and used again once a checkpoint has passed them. The random id keeps what an earlier use left
behind from being read as part of this one. Every file but the current one is synced whole, so the header of
a newer file proves every round before its first; a round proves those up to the LSN that it names as synced.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.records import crc32c
from tailrace.runtime import Disk, File
from tailrace.storage.segment.names import JOURNAL_DIRECTORY, journal_file

SECTOR = 512
KEPT_TWICE = 1
"""Flag of a round whose writer keeps CHECKPOINT.copy up to date. A build without copies writes 0."""
ROUND_HEADER_BYTES = 40
_MAGIC = b"TRJOURN1"
_HEADER = struct.Struct("<8sQQQ")
_CRC = struct.Struct("<I")
_ROUND = struct.Struct("<QI")
_REST = struct.Struct("<QQII")
_ZEROS = bytes(1 << 20)


@dataclass(slots=True)
class JournalFile:
    """One file of the journal, in use or waiting for its next use."""

    number: int
    file: File
    size: int
    last_lsn: int = 0  # of the newest round in it


@dataclass(frozen=True, slots=True)
class Round:
    """A round as it was read back."""

    lsn: int
    synced_lsn: int
    count: int
    entries: memoryview
    position: int
    flags: int = KEPT_TWICE


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """What a file says of itself."""

    journal_id: int
    first_lsn: int
    size: int


def write_header(header: JournalHeader) -> bytes:
    """The header sector."""
    data = _HEADER.pack(_MAGIC, header.journal_id, header.first_lsn, header.size)
    data += _CRC.pack(crc32c(data))
    return data.ljust(SECTOR, b"\0")


def read_header(data: memoryview) -> JournalHeader | None:
    """None if this is not a whole header of a file as long as `data`."""
    if len(data) < SECTOR or data[_HEADER.size + _CRC.size : SECTOR] != bytes(
        SECTOR - _HEADER.size - _CRC.size
    ):
        return None
    magic, journal_id, first_lsn, size = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or crc != crc32c(data[: _HEADER.size]) or size != len(data):
        return None
    return JournalHeader(journal_id, first_lsn, size)


def write_round(
    journal_id: int, *, lsn: int, synced_lsn: int, count: int, parts: list[bytes | memoryview]
) -> bytes:
    """A whole frame, padded to sectors. `parts` are the bytes of the entries."""
    payload = b"".join((_REST.pack(lsn, synced_lsn, count, KEPT_TWICE), *parts))
    start = _ROUND.pack(journal_id, len(payload))
    crc = crc32c(payload, crc32c(start))
    padding = bytes(-(len(start) + _CRC.size + len(payload)) % SECTOR)
    return b"".join((start, _CRC.pack(crc), payload, padding))


def read_round(data: memoryview, position: int, journal_id: int) -> Round | None:
    """The round at `position` of a file's bytes, or None if there is no whole one of this use of the file."""
    if position + ROUND_HEADER_BYTES > len(data):
        return None
    found_id, length = _ROUND.unpack_from(data, position)
    body = position + _ROUND.size + _CRC.size
    if found_id != journal_id or length < _REST.size or length > len(data) - body:
        return None
    (crc,) = _CRC.unpack_from(data, position + _ROUND.size)
    payload = data[body : body + length]
    if crc32c(payload, crc32c(data[position : position + _ROUND.size])) != crc:
        return None
    lsn, synced_lsn, count, flags = _REST.unpack_from(payload)
    return Round(lsn, synced_lsn, count, payload[_REST.size :], position, flags)


def frame_bytes(length: int) -> int:
    """Room that a round takes whose entries take `length` bytes."""
    return -(-(ROUND_HEADER_BYTES + length) // SECTOR) * SECTOR


def read_rounds(data: memoryview, header: JournalHeader) -> Iterator[Round]:
    """Every whole round, also those behind a place that is not one.

    After the first unreadable place the rest is searched for the file's id, which opens every round: a round
    found there proves that what is missing was written.
    """
    position = SECTOR
    while (found := read_round(data, position, header.journal_id)) is not None:
        yield found
        position += frame_bytes(len(found.entries))
    marker = header.journal_id.to_bytes(8, "little")
    rest = bytes(data[position:])
    place = rest.find(marker)
    while place >= 0:
        if place % SECTOR == 0:
            found = read_round(data, position + place, header.journal_id)
            if found is not None:
                yield found
        place = rest.find(marker, place + 1)


def holds_only_old_rounds(data: memoryview, lsn: int) -> bool:
    """Whether a journal file whose header is unreadable certainly holds no round above `lsn`.

    Every use of a file writes its first round behind the header. So either there is a whole round, and no
    round of any use lies above `lsn`; or there is nothing at all, as in a file that was never used. A file
    that lost more than its header may have held anything: for that the answer is no.
    """
    if len(data) <= SECTOR or not any(data[:SECTOR]):
        return False
    if bytes(data[SECTOR:]).count(0) == len(data) - SECTOR:
        return True
    if _round_of_any_use(data, SECTOR) is None:
        return False
    found = (_round_of_any_use(data, position) for position in range(SECTOR, len(data), SECTOR))
    return all(each is None or each.lsn <= lsn for each in found)


def holds_no_round(data: memoryview) -> bool:
    """Whether there is no whole round of any use in a journal file: it was made, and never used."""
    return all(_round_of_any_use(data, position) is None for position in range(SECTOR, len(data), SECTOR))


def _round_of_any_use(data: memoryview, position: int) -> Round | None:
    """The whole round at `position`, whichever id it was written under.

    It may be no round at all, but a record that looks like one: no reason to replay it.
    """
    if position + ROUND_HEADER_BYTES > len(data):
        return None
    (found_id, _) = _ROUND.unpack_from(data, position)
    return read_round(data, position, found_id) if found_id else None


class Journal:
    """The files of one journal, of which at most one is being written."""

    def __init__(self, disk: Disk, *, file_bytes: int, rng: random.Random) -> None:
        self._disk = disk
        self._file_bytes = file_bytes
        self._rng = rng
        self.files: list[JournalFile] = []
        self.current: JournalFile | None = None
        self.synced_lsn = 0
        self._id = 0
        self._position = 0

    @property
    def size_bytes(self) -> int:
        """What all files take on the disk."""
        return sum(file.size for file in self.files)

    @property
    def current_id(self) -> int:
        return self._id

    def has_room(self, length: int) -> bool:
        """Whether entries of `length` bytes fit into the current file."""
        return self.current is not None and self._position + frame_bytes(length) <= self.current.size

    def fraction_used(self) -> float:
        return self._position / self.current.size if self.current else 1.0

    def reusable(self, checkpointed: int) -> JournalFile | None:
        """A file whose every round lies at or below the checkpoint."""
        free = (file for file in self.files if file is not self.current and file.last_lsn <= checkpointed)
        return next(free, None)

    async def open(self, file: JournalFile, first_lsn: int) -> None:
        """Make `file` the current one. What the one before still holds unsynced is synced first."""
        if self.current is not None and self.current.last_lsn > self.synced_lsn:
            await self.sync()
        self.current = None
        self._id = self._new_id()
        header = JournalHeader(self._id, first_lsn, file.size)
        await file.file.write(0, [write_header(header)], sync=True)
        self.current = file
        self._position = SECTOR

    def _new_id(self) -> int:
        return self._rng.getrandbits(64) | 1  # never zero, which is what an unused sector begins with

    async def write(self, frame: bytes, lsn: int, *, sync: bool) -> None:
        """Write the round `lsn`; with `sync` it is durable, and so is every one before it."""
        assert self.current is not None
        self.current.last_lsn = lsn
        await self.current.file.write(self._position, [frame], sync=sync)
        self._position += len(frame)
        if sync:
            self.synced_lsn = lsn

    async def sync(self) -> None:
        """Make every round written so far durable."""
        assert self.current is not None
        lsn = self.current.last_lsn
        await self.current.file.sync()
        self.synced_lsn = max(self.synced_lsn, lsn)

    async def create_file(self) -> JournalFile:
        """A new file of zeros, durable with its name. It may hold rounds once a checkpoint lists it."""
        number = max((file.number for file in self.files), default=0) + 1
        file = await self._disk.create(journal_file(number))
        for position in range(0, self._file_bytes, len(_ZEROS)):
            piece = memoryview(_ZEROS)[: self._file_bytes - position]
            await file.write(position, [piece])
        header = JournalHeader(self._new_id(), 0, self._file_bytes)
        await file.write(0, [write_header(header)])
        await file.sync(bulk=True)
        await self._disk.sync_directory(JOURNAL_DIRECTORY)
        return JournalFile(number, file, self._file_bytes)
