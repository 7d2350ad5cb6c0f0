"""Files of aborted transactions: `<base>.aborted` holds those whose markers lie in the segment `<base>.log`.

Written by a checkpoint where the list of a segment changed, before the snapshot that names the segment, and
by compaction when it removes markers. A file is replaced as a whole, so it may know of markers above the
snapshot that recovery starts from: those are left out and found again in the log. A segment that the snapshot
does not name has no list, whatever its file says.

Both writers take the lock of the log and write the list as it is then: an entry that was removed never comes
back by the hand of the other one.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

from tailrace.runtime import Disk
from tailrace.storage.aborted import AbortedEntry, read_aborted, write_aborted
from tailrace.storage.segment.cache import read_file
from tailrace.storage.segment.names import TEMPORARY, numbered
from tailrace.storage.segment.shape import OFFSET_MAX

if TYPE_CHECKING:
    from tailrace.storage.segment.log import SegmentLog


def bases_with_aborted(log: SegmentLog) -> tuple[int, ...]:
    """The segments that have a list, as far as they were applied."""
    known = log.applied_aborted
    if not len(known):
        return ()
    ends = [*log.segments, OFFSET_MAX]
    return tuple(base for base, end in pairwise(ends) if known.between(base, end))


def base_of(log: SegmentLog, offset: int) -> int:
    """The segment that holds `offset`."""
    bases = list(log.segments)
    return bases[max(bisect_right(bases, offset) - 1, 0)]


async def save_aborted(disk: Disk, log: SegmentLog, base: int) -> None:
    """Make the list of a segment durable as it is now, unless the segment is gone."""
    async with log.aborted_lock:
        segment = log.segments.get(base)
        if segment is None:
            return
        end = next((later for later in log.segments if later > base), OFFSET_MAX)
        data = write_aborted(base, log.applied_aborted.between(base, end))
        path = f"{log.path}/{numbered(base, 'aborted')}"
        try:
            file = await disk.create(path + TEMPORARY)
            await file.write(0, [data], sync=True)
            file.close()
            await disk.rename(path + TEMPORARY, path)
            await disk.sync_directory(log.path)
        except FileNotFoundError:
            return  # the partition was deleted meanwhile
        if segment.gone:
            with suppress(FileNotFoundError):
                await disk.remove(path)


async def load_aborted(disk: Disk, directory: str, base: int) -> list[AbortedEntry] | None:
    """The list of a segment; None if its file is missing or damaged."""
    data = await read_file(disk, f"{directory}/{numbered(base, 'aborted')}", fresh=True)
    return None if data is None else read_aborted(data, base)
