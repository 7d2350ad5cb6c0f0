"""Cuts: the files of one checkpoint under second names, for a backup that copies them while the log goes on.

    <data directory>/cut-<number>/
        CLOCK                           linked
        KEYS                            the data keys of that moment, if there are any
        CHECKPOINT                      lists no journal file: everything it speaks of is in the segments
        journal/                        empty
        <topic id>-<partition>-<life>/  links to segments, their indexes and lists of aborted
                                        transactions, label and the snapshot of the row

Linked files outlive their first names, so retention, compaction and deleted topics take nothing away from a
cut. The applier waits while the links are made, since it removes and creates segments; so does the moment in
which compaction replaces a segment, which takes several names. Appends are acknowledged all the while.

The newest segment of a partition grows on under both names: of it, and of its index, a cut has the length
that the row says. A truncation shortens files in place and spoils the cuts that are held.

A cut does not outlive the process: a start removes what it finds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tailrace.model import StorageError
from tailrace.runtime import SyncError, for_each
from tailrace.storage.api import Cut
from tailrace.storage.segment.apply import Applier
from tailrace.storage.segment.checkpoint import NONE, Checkpoint, Row, write_checkpoint
from tailrace.storage.segment.checkpointing import Checkpointer, Sample
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.index import HEADER_BYTES, TIME_ENTRY_BYTES, index_entry_bytes
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.names import (
    CHECKPOINT,
    CLOCK,
    JOURNAL_DIRECTORY,
    LABEL,
    SEGMENT_SUFFIXES,
    numbered,
    partition_directory,
)

logger = logging.getLogger(__name__)

_AT_ONCE = 8
_NO_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS))


class Cutter:
    """Makes and removes the cuts of one directory."""

    def __init__(self, directory: Directory, applier: Applier, checkpointer: Checkpointer) -> None:
        self._directory = directory
        self._applier = applier
        self._checkpointer = checkpointer

    async def take(self, cut: Cut) -> None:
        """Fill `cut` with everything that is durable now; StorageError if that fails, and nothing is left."""
        directory = self._directory
        await self._applier.wait_applied_to(directory.durable_lsn)
        # The first checkpoint does the long work, the syncs. Only the second one holds the applier.
        await self._checkpointer.checkpoint()
        directory.cuts[cut.name] = cut
        try:
            await directory.disk.make_directory(cut.name)
            await directory.disk.make_directory(f"{cut.name}/{JOURNAL_DIRECTORY}")
            if not await self._checkpointer.checkpoint_and(partial(self._link_all, cut)):
                raise OSError(errno.ENOSPC, "the disk is full")
        except SyncError:
            raise
        except OSError as error:
            await self.remove(cut)
            raise _cannot_cut(cut, error) from error
        except (StorageError, asyncio.CancelledError):
            await self.remove(cut)
            raise

    async def remove(self, cut: Cut) -> None:
        """Remove a cut. What cannot be removed is reported, and removed by the next start."""
        await self._remove_tree(cut.name)
        self._directory.cuts.pop(cut.name, None)

    async def remove_old(self, names: Iterable[str]) -> None:
        """Remove cuts that an earlier process left."""
        for name in names:
            await self._remove_tree(name)

    # ---- links

    async def _link_all(self, cut: Cut, sample: Sample) -> None:
        async with self._directory.swap_lock:
            pairs = zip(sample.logs, sample.checkpoint.rows, strict=True)
            await for_each(pairs, lambda pair: self._link(cut, *pair), at_once=_AT_ONCE)
        # The last known time goes along: a start that finds its clock months ahead expires nothing by it.
        await self._directory.disk.link([(CLOCK, f"{cut.name}/{CLOCK}")])
        if self._directory.keyring is not None:
            await self._directory.keyring.write_into(cut.name)  # not linked: new keys are appended to KEYS
        file = await self._directory.disk.create(f"{cut.name}/{CHECKPOINT}")
        await file.write(0, [write_checkpoint(replace(sample.checkpoint, journal_files=()))])
        file.close()

    async def _link(self, cut: Cut, log: SegmentLog, row: Row) -> None:
        names = [
            numbered(base, suffix)
            for base in log.segments
            if base <= row.segment
            for suffix in SEGMENT_SUFFIXES
        ]
        names.append(LABEL)
        if row.snapshot != NONE:
            names.append(numbered(row.snapshot, "snapshot"))
        disk, target = self._directory.disk, f"{cut.name}/{log.path}"
        await disk.make_directory(target)
        missing = await disk.link([(f"{log.path}/{name}", f"{target}/{name}") for name in names])
        lost = [path for path in missing if path.endswith(".log")]  # all others can be made again from these
        if lost and row.damaged == NONE:
            raise OSError(errno.ENOENT, f"{lost[0]} is missing")

    # ---- removal

    async def _remove_tree(self, path: str) -> None:
        disk = self._directory.disk
        try:
            names = [f"{path}/{name}" for name in await disk.list(path)]
            for directory in [name.rstrip("/") for name in names if name.endswith("/")]:
                await self._remove_tree(directory)
            await for_each([name for name in names if not name.endswith("/")], self._remove, at_once=_AT_ONCE)
            await disk.remove(path)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("cut cannot be removed, a start will: %s: %s", path, error.strerror)

    async def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            await self._directory.disk.remove(path)


def lengths(checkpoint: Checkpoint) -> dict[str, int]:
    """How many bytes of the files that still grow belong to a checkpoint, by their paths."""
    found: dict[str, int] = {}
    for row in checkpoint.rows:
        stem = f"{partition_directory(row.partition_id, row.life)}/{numbered(row.segment, '')}"
        found[stem + "log"] = row.length
        found[stem + "index"] = HEADER_BYTES + row.index_entries * index_entry_bytes(encrypted=row.encrypted)
        found[stem + "timeindex"] = HEADER_BYTES + row.index_entries * TIME_ENTRY_BYTES
    return found


def _cannot_cut(cut: Cut, error: OSError) -> StorageError:
    hint = "Nothing has changed. Free some space, then try again"
    if error.errno in _NO_LINKS:
        hint = "Its file system has no hard links. Stop the broker, then back its data directory up"
    return StorageError("make a cut in", cut.root, error.strerror or str(error), hint=hint)
