"""Segments written anew without a change of their records: encrypted, or under another data key.

Sealed segments get a successor by the way of compaction, one after the other. A segment tells by its first
batch whether it is done, so a run that was interrupted is repeated and goes on where it stopped. The newest
segment of a log is left: it ends with the next append, which begins one of the right kind.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace.model import LogDamaged
from tailrace.records import HEADER_BYTES, Batch
from tailrace.runtime import SyncError
from tailrace.storage.encryption.config import Encryption
from tailrace.storage.encryption.layout import OVERHEAD_BYTES, is_encrypted, key_id_at
from tailrace.storage.segment.cleaning import Compaction, GaveWay, sound_batches
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.names import read_numbered, read_partition_directory
from tailrace.storage.segment.pace import wait_whole
from tailrace.storage.segment.segment import Segment
from tailrace.storage.segment.storage import SegmentStorage
from tailrace.storage.segment.successor import Successor

logger = logging.getLogger(__name__)

_HEAD_BYTES = HEADER_BYTES + OVERHEAD_BYTES

Wanted = Callable[["Stored"], bool]
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One segment file, as its first batch tells."""

    path: str
    bytes: int
    newest: bool  # of its partition
    encrypted: bool
    key_id: int = 0  # of the data key of its first batch


def is_plain(segment: Stored) -> bool:
    return not segment.encrypted


def is_before(key_id: int) -> Wanted:
    """Encrypted under a data key that is older than this one."""
    return lambda segment: segment.encrypted and segment.key_id < key_id


def list_segments(root: str | os.PathLike[str]) -> Iterator[Stored]:
    """Every segment with a batch in it, by path. Reads the first bytes of each file, and needs no key."""
    for directory in sorted(Path(root).iterdir()):
        if directory.is_dir() and read_partition_directory(directory.name) is not None:
            names = sorted(each.name for each in directory.iterdir())
            logs = [name for name in names if read_numbered(name, "log") is not None]
            for name in logs:
                found = _look_at(directory / name, f"{directory.name}/{name}", newest=name == logs[-1])
                if found is not None:
                    yield found


def _look_at(path: Path, name: str, *, newest: bool) -> Stored | None:
    try:
        with open(path, "rb") as file:
            head, size = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return None  # retention was faster
    if len(head) < HEADER_BYTES or not any(head[:HEADER_BYTES]):
        return None
    batch = Batch(memoryview(head))
    encrypted = is_encrypted(batch) and len(head) == _HEAD_BYTES
    key_id = key_id_at(head) if encrypted else 0
    return Stored(path=name, bytes=size, newest=newest, encrypted=encrypted, key_id=key_id)


async def rewrite_directory(
    path: str | os.PathLike[str], encryption: Encryption, wanted: Wanted, *, advance: Advance
) -> tuple[list[str], list[str]]:
    """Rewrite the segments that are wanted, of a directory that no broker serves.

    Returns the paths of those that were, and of those that could not be: newest ones, and damaged ones.
    """
    found = [each for each in list_segments(path) if wanted(each)]
    storage = await SegmentStorage.open(path, encryption=encryption)
    try:
        await storage.checkpoint()
        return await rewrite_segments(storage.directory, found, advance=advance)
    finally:
        await storage.close()


async def rewrite_segments(
    directory: Directory, found: list[Stored], *, advance: Advance
) -> tuple[list[str], list[str]]:
    """The same for a directory that is open, and goes on serving."""
    done: list[str] = []
    left: list[str] = []
    logs = {log.path: log for log in directory.logs.values()}
    for each in found:
        place, _, name = each.path.partition("/")
        log, base = logs.get(place), read_numbered(name, "log")
        segment = log.segments.get(base) if log is not None and base is not None else None
        if log is None or segment is None:
            continue  # it is gone
        ended = await _Rewriting(directory, log).run(segment)
        (done if ended else left).append(each.path)
        advance(each.bytes)
    return done, left


class _Rewriting(Compaction):
    """One segment of one log."""

    def __init__(self, directory: Directory, log: SegmentLog) -> None:
        super().__init__(directory, log, directory.clock.steady_ms())

    async def run(self, segment: Segment) -> bool:  # type: ignore[override]
        """Whether the segment was written anew; if not, it is as it was."""
        try:
            self._check_alone()
            if segment.base >= self._log.checkpoint_segment or not segment.persisted_whole:
                return False
            await self._open(segment)
            await self._write_anew(segment)
        except (GaveWay, LogDamaged) as error:
            logger.warning("segment is not written anew: %s: %s", segment.path, error)
            return False
        return True

    async def _write_anew(self, segment: Segment) -> None:
        successor = Successor(self._directory, self._log, segment)
        try:
            await successor.create()
            for _, extent in self._extents(segment):
                self._check_alone()
                for batch in sound_batches(await extent.load()):
                    await self._pace.wait_turn()
                    successor.add(batch)
                await successor.flush()
                extent.release()
            await successor.sync()
            await successor.seal(self._following(segment))
            await self._leave_tail(segment)
            await wait_whole(self._swap(segment, successor))
        except SyncError:
            raise
        except (Exception, asyncio.CancelledError):
            await successor.discard()
            raise
