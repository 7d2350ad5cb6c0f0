"""What a compacted segment becomes: written under other names, then put in its place.

    <base>.log.tmp, .index.tmp, .timeindex.tmp    written whole and synced; a crash until here leaves the old
    remove <base>.index and .timeindex            durably: no index ever stands beside a segment it is not of
    rename <base>.log.tmp over <base>.log         durably: from here on the new one is the segment
    rename the two indexes                        a crash before this costs a scan: an index is rebuildable

The order of the second and third is not idle: two segments may have the same length and other bytes, since a
delete horizon can be written without a byte more, and an index that is too old would call that damage.

Readers who found the old segment go on with its file, which has no name any more. So it is opened before its
name goes: nobody can find other bytes under a name that he got earlier.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from typing import TYPE_CHECKING

from tailrace.records import Batch, crc32c
from tailrace.runtime import File, SyncError
from tailrace.storage.segment.index import IndexState, SpanIndex, write_footers, write_headers
from tailrace.storage.segment.names import TEMPORARY
from tailrace.storage.segment.segment import Segment

if TYPE_CHECKING:
    from tailrace.storage.segment.directory import Directory
    from tailrace.storage.segment.log import SegmentLog

logger = logging.getLogger(__name__)


class Successor:
    """The new content of one segment, on its way."""

    def __init__(self, directory: Directory, log: SegmentLog, old: Segment) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._log = log
        self._old = old
        self._stem = old.path.removesuffix("log")
        self._file: File | None = None
        self._index = SpanIndex(old.base, log.config.index_interval_bytes)
        self._pending: list[memoryview] = []
        self._written = 0
        # The index files grow along, so that nothing long is left for the end.
        cipher = log.cipher
        self._key = cipher.new_key(old.base) if cipher is not None and cipher.encrypts else None
        headers = write_headers(old.base, encrypted=self._key is not None)
        self._index_files = tuple(bytearray(header) for header in headers)
        self._state = IndexState()

    @property
    def length(self) -> int:
        return self._index.end

    # ---- content

    async def create(self) -> None:
        if self._key is not None and self._log.cipher is not None:
            await self._log.cipher.save()  # before anything is written that it encrypts
        self._file = await self._disk.create(self._stem + "log" + TEMPORARY)

    def add(self, batch: Batch) -> None:
        """Take a batch, as readers get it; its bytes must stay until the next `flush`."""
        if self._key is not None:
            batch = self._key.encrypt(batch)
        self._index.add(batch)
        self._pending.append(batch.data)

    async def flush(self) -> None:
        """Write what was added. The room that appends need is left alone: OSError if there is no more."""
        if not self._pending:
            return
        if self._disk.free_bytes() < self._directory.config.free_bytes_min:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._old.path)
        assert self._file is not None
        await self._file.write(self._written, self._pending)
        self._pending = []
        self._written = self._index.end
        self._extend_index_files()

    async def sync(self) -> None:
        """Make its batches durable, under a name that means nothing yet."""
        await self.flush()
        assert self._file is not None
        await self._file.sync(bulk=True)

    async def seal(self, following: int) -> None:
        """It is complete, and a segment with this base follows: make its indexes durable too."""
        self._index.seal(following)
        self._extend_index_files()
        footers = write_footers(self._state, following)
        for suffix, data, footer in zip(("index", "timeindex"), self._index_files, footers, strict=True):
            file = await self._disk.create(self._stem + suffix + TEMPORARY)
            await file.write(0, [data, footer])
            await file.sync(bulk=True)
            file.close()

    async def discard(self) -> None:
        """Remove what was written; what cannot be removed now is removed by the next recovery."""
        for suffix in ("log", "index", "timeindex"):
            with contextlib.suppress(OSError):
                await self._disk.remove(self._stem + suffix + TEMPORARY)

    def _extend_index_files(self) -> None:
        state = self._state
        places, times = self._index.write_entries(state.entries)
        self._index_files[0].extend(places)
        self._index_files[1].extend(times)
        self._state = IndexState(
            len(self._index), crc32c(places, state.index_crc), crc32c(times, state.time_crc)
        )

    # ---- the swap; the log lets nobody truncate, trim or delete meanwhile

    async def replace(self) -> None:
        """Take the old one's place, on disk and in memory. The old one must be open."""
        old, cache = self._old, self._directory.cache
        assert old.ready, f"{old} would be opened by a name that is another one's"
        cache.forget(old)
        old.persisted_whole = False  # so that the cache leaves it open for those who hold it
        try:
            await self._remove_old_index()
            await self._disk.rename(self._stem + "log" + TEMPORARY, old.path)
        except OSError:
            old.persisted_whole = True
            cache.admit(old)
            raise
        new = self._adopt()
        await self._disk.sync_directory(self._log.path)
        await self._name_index()
        new.persisted_whole = True
        cache.admit(new)

    def _adopt(self) -> Segment:
        """Show the new segment to readers."""
        old = self._old
        new = Segment(old.base, old.path, self._file, self._index, old.written_ms, old.cipher)
        new.sealed = True
        self._log.replace_segment(new)
        return new

    async def _remove_old_index(self) -> None:
        for suffix in ("index", "timeindex"):
            with contextlib.suppress(FileNotFoundError):
                await self._disk.remove(self._stem + suffix)
        await self._disk.sync_directory(self._log.path)

    async def _name_index(self) -> None:
        try:
            for suffix in ("index", "timeindex"):
                await self._disk.rename(self._stem + suffix + TEMPORARY, self._stem + suffix)
            await self._disk.sync_directory(self._log.path)
        except SyncError:
            raise
        except OSError as error:
            logger.warning("index is made again when it is needed: %s: %s", self._old.path, error.strerror)
