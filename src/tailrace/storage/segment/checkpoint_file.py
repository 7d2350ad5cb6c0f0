"""CHECKPOINT on the disk, twice: the file itself and its copy.

The copy is replaced when the file is durable, and a checkpoint counts (journal files are used again, segments
compacted, snapshots removed) when both are. So the copy is never newer than the file, and everything that the
copy needs is there as long as the copy is: to recover from it is to recover from a crash that came before the
file was replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.runtime import Disk
from tailrace.storage.segment.cache import read_file
from tailrace.storage.segment.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tailrace.storage.segment.journal import KEPT_TWICE, Round
from tailrace.storage.segment.names import CHECKPOINT, CHECKPOINT_COPY, TEMPORARY
from tailrace.storage.segment.plan import damage

logger = logging.getLogger(__name__)

REBUILD = (
    "Nothing was changed. This makes it again from the segments and the journal: "
    "tailrace storage rebuild-checkpoint DIR"
)


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A checkpoint that was read, and which of the two files it came from."""

    checkpoint: Checkpoint
    is_copy: bool

    def check_rounds(self, rounds: Iterable[Round]) -> None:
        """Refuse a copy that a build which does not keep it left behind: its journal may be gone."""
        if self.is_copy and any(not each.flags & KEPT_TWICE for each in rounds):
            raise damage(
                CHECKPOINT,
                "the checkpoint is unreadable, and its copy is older: a version without copies served here",
                hint=REBUILD,
            )


async def write_checkpoint_file(disk: Disk, checkpoint: Checkpoint) -> None:
    """Replace CHECKPOINT durably, then its copy."""
    data = write_checkpoint(checkpoint)
    for path in (CHECKPOINT, CHECKPOINT_COPY):
        file = await disk.create(path + TEMPORARY)
        await file.write(0, [data], sync=True)
        file.close()
        await disk.rename(path + TEMPORARY, path)
        await disk.sync_directory("")


async def load_checkpoint(disk: Disk) -> LoadedCheckpoint | None:
    """The newest readable checkpoint; None if there is neither file; StorageError if none is readable."""
    missing = True
    for path in (CHECKPOINT, CHECKPOINT_COPY):
        found, is_missing = await _read(disk, path)
        if found is not None:
            is_copy = path == CHECKPOINT_COPY
            if is_copy:
                logger.error("checkpoint unreadable or missing, its copy is used: LSN %d", found.lsn)
            return LoadedCheckpoint(found, is_copy)
        missing = missing and is_missing
    if missing:
        return None
    raise damage(CHECKPOINT, "the checkpoint is unreadable, and so is its copy", hint=REBUILD)


async def _read(disk: Disk, path: str) -> tuple[Checkpoint | None, bool]:
    """The checkpoint in a file, if it is readable, and whether the file is missing."""
    try:
        data = await read_file(disk, path, fresh=True)
    except OSError as error:
        logger.error("cannot be read: %s: %s", path, error.strerror)
        return None, False
    return (None, True) if data is None else (read_checkpoint(memoryview(data)), False)
