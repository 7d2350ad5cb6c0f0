"""Consecutive whole batches of one log, as bytes: what a row of `chunks` holds, and what Redis holds by name.

A chunk never changes. The writer's epoch is a part of its name, and a truncation advances the epoch, so that
another chunk at the same offset has another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.model import LogDamaged, Offset
from tailrace.records import Batch, BatchError, crc32c, iter_batches
from tailrace.storage.tiered.retention_class import day_of_append


class ChunkName(NamedTuple):
    """A chunk without its bytes: enough to find it in PostgreSQL or Redis, and to check what comes."""

    retention: int  # its class
    log: int
    base_offset: int
    next_offset: int
    appended_ms: int
    max_timestamp: int
    writer_epoch: int
    size: int
    crc: int

    @property
    def day(self) -> int:
        return day_of_append(self.retention, self.appended_ms)

    def key(self, cluster: str) -> bytes:
        """What Redis calls it."""
        return f"{cluster}:{self.log}:{self.writer_epoch}:{self.base_offset}".encode()

    def fits(self, data: bytes | memoryview) -> bool:
        """Whether these are its bytes."""
        return len(data) == self.size and crc32c(data) == self.crc


class Chunk(NamedTuple):
    """A chunk with its bytes."""

    name: ChunkName
    data: bytes


def check_chunk(chunk: Chunk, *, log: object) -> Chunk:
    """LogDamaged unless the bytes are those that were written."""
    if not chunk.name.fits(chunk.data):
        raise LogDamaged(
            f"chunk {chunk.name.base_offset} of {log} is not what was written. "
            "Restore the database from a backup"
        )
    return chunk


def batches_of(chunk: Chunk, *, log: object) -> Sequence[Batch]:
    """The batches of a chunk that was checked; LogDamaged if it does not hold whole batches in order."""
    place = Offset(chunk.name.base_offset)
    found = []
    try:
        for batch in iter_batches(chunk.data):
            if batch.base_offset < place:
                raise LogDamaged(f"chunk {chunk.name.base_offset} of {log} has batches out of order")
            place = batch.next_offset
            found.append(batch)
    except BatchError as error:
        raise LogDamaged(
            f"chunk {chunk.name.base_offset} of {log} holds no whole batches: {error}"
        ) from error
    if place != chunk.name.next_offset:
        raise LogDamaged(
            f"chunk {chunk.name.base_offset} of {log} ends at {place}, not {chunk.name.next_offset}"
        )
    return found


def max_time(batches: Sequence[Batch], *, appended_ms: int) -> int:
    """The greatest timestamp of some batches; the time of the append where no record carries one."""
    newest = max(batch.max_timestamp for batch in batches)
    return appended_ms if newest < 0 else newest
