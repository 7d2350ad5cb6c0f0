"""The last time of day that the node is known to have lived in: the file CLOCK of a data directory.

    0  8s   "TRCLOCK1"     8  i64  milliseconds since 1970     16  u32  CRC32C of bytes 0-15

A node that starts with a clock years ahead would find every record expired. So the node writes the time down
every minute and when it stops, and a start that finds its clock more than 31 days past that time believes the
time it had instead: the clock that everything expires by goes on from there until a person confirms the
machine's. A month is longer than machines are usually left off, and a clock that is wrong is wrong by years
more often than by weeks. The file is not synced with its directory: an older time only makes a start more
careful. A directory without the file, which is new or was served by an earlier version, believes the machine.
Timestamps of records are no help: producers choose them.
"""

from __future__ import annotations

import logging
import os
import struct
from contextlib import suppress
from pathlib import Path

from tailrace.model import StorageError, day_of
from tailrace.records import crc32c
from tailrace.runtime import Clock, DirectoryLock, Disk, RealDisk, SyncError, SystemClock
from tailrace.storage.segment.cache import read_file
from tailrace.storage.segment.names import CLOCK, TEMPORARY

logger = logging.getLogger(__name__)

GAP_MS_MAX = 31 * 86_400_000
WRITE_EVERY_MS = 60_000

_MAGIC = b"TRCLOCK1"
_SEEN = struct.Struct("<8sq")
_CRC = struct.Struct("<I")


def write_seen(seen_ms: int) -> bytes:
    """The whole file."""
    data = _SEEN.pack(_MAGIC, seen_ms)
    return data + _CRC.pack(crc32c(data))


def read_seen(data: bytes) -> int | None:
    """None if a byte is wrong, missing or too many."""
    if len(data) != _SEEN.size + _CRC.size:
        return None
    magic, seen_ms = _SEEN.unpack_from(data)
    return int(seen_ms) if data == write_seen(seen_ms) and magic == _MAGIC else None


def is_plausible(now_ms: int, *, seen_ms: int | None) -> bool:
    """Whether a clock may be believed that shows `now_ms`; one that is behind expires nothing."""
    return seen_ms is None or now_ms - seen_ms <= GAP_MS_MAX


class LastSeen:
    """Keeps CLOCK up to date while its directory is served."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._written_ms: int | None = None

    async def begin(self) -> None:
        """Hold the clock if it is implausible, else write the time down."""
        data = await read_file(self._disk, CLOCK, fresh=True)
        seen_ms = read_seen(data) if data is not None else None
        if seen_ms is None and data is not None:
            logger.warning("CLOCK is unreadable: the machine's time of day is believed")
        now_ms = self._clock.steady_ms()
        if seen_ms is None or is_plausible(now_ms, seen_ms=seen_ms):
            await self.write()
            return
        self._clock.hold(seen_ms)
        logger.error(
            "clock is not believed: it shows %s, and this node last ran at %s. Nothing expires by the new "
            "time. If it is right, stop the broker and run: tailrace storage confirm-clock DIR",
            day_of(now_ms),
            day_of(seen_ms),
        )

    async def write_due(self) -> None:
        """Write the time down if that was not done in the last minute."""
        now_ms = self._clock.steady_ms()
        if self._written_ms is None or abs(now_ms - self._written_ms) >= WRITE_EVERY_MS:
            await self.write()

    async def write(self) -> None:
        """Write the time down; a full disk is no reason to fail. A time that is not believed is not kept."""
        if self._clock.ahead_ms:
            return
        now_ms = self._clock.steady_ms()
        try:
            await store_seen(self._disk, now_ms)
        except SyncError:
            raise
        except OSError as error:
            logger.warning("the time could not be written down: %s", error.strerror)
        self._written_ms = now_ms


async def store_seen(disk: Disk, seen_ms: int) -> None:
    """Replace CLOCK."""
    file = await disk.create(CLOCK + TEMPORARY)
    try:
        await file.write(0, [write_seen(seen_ms)], sync=True)
    except SyncError:
        raise  # the directory has ended: nothing in it is touched any more
    except OSError:
        with suppress(OSError):
            await disk.remove(CLOCK + TEMPORARY)
        raise
    finally:
        file.close()
    await disk.rename(CLOCK + TEMPORARY, CLOCK)


async def confirm_clock(path: str | os.PathLike[str]) -> tuple[int | None, int]:
    """Believe the machine's time of day from the next start on; the time that was known before, and this one.

    StorageError if a broker serves the directory: its clock was judged when it started.
    """
    root = str(Path(path))
    lock = DirectoryLock(root)
    disk = RealDisk(root, owns_loop=True)
    try:
        data = await read_file(disk, CLOCK, fresh=True)
        now_ms = SystemClock().now_ms()
        await store_seen(disk, now_ms)
        await disk.sync_directory("")
    except OSError as error:
        raise StorageError("confirm the clock of", root, str(error)) from error
    finally:
        disk.close()
        lock.release()
    return (None if data is None else read_seen(data)), now_ms
