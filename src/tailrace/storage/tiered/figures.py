"""The numbers that only this engine has, as metrics of the node."""

from __future__ import annotations

from typing import Final

from tailrace.storage.counters import EngineFigure
from tailrace.storage.tiered.cache import RedisCache
from tailrace.storage.tiered.lock import WriterLock
from tailrace.storage.tiered.sweep import Cleaned
from tailrace.storage.tiered.writer import Writer

_BREAKER: Final = {"closed": 0, "half-open": 1, "open": 2}


def tiered_figures(
    writer: Writer, lock: WriterLock, cleaned: Cleaned, cache: RedisCache | None
) -> list[EngineFigure]:
    """As they are now."""
    found = [
        EngineFigure(
            "tailrace_tiered_writer_connected", "Whether the writer has its connection.", writer.connected
        ),
        EngineFigure(
            "tailrace_tiered_lock_held", "Whether this process holds the lock of the writer.", lock.held
        ),
        EngineFigure("tailrace_tiered_writer_epoch", "The epoch of the writer.", writer.epoch),
        EngineFigure(
            "tailrace_tiered_unknown_outcomes",
            "Lost answers of the database that were settled by a new epoch.",
            writer.takeovers,
            only_grows=True,
        ),
        EngineFigure(
            "tailrace_tiered_days_dropped",
            "Tables of a day that cleanup removed.",
            cleaned.days,
            only_grows=True,
        ),
        EngineFigure(
            "tailrace_tiered_chunks_deleted", "Chunks that cleanup deleted.", cleaned.chunks, only_grows=True
        ),
    ]
    return found if cache is None else [*found, *_of_cache(cache)]


def _of_cache(cache: RedisCache) -> list[EngineFigure]:
    counters = cache.counters
    counted = (
        ("hits", "Chunks that Redis had.", counters.hits),
        ("misses", "Chunks that Redis did not have.", counters.misses),
        ("late", "Reads that Redis did not answer in time.", counters.late),
        ("wrong", "Answers of Redis that were not the bytes of the chunk.", counters.wrong),
        ("errors", "Failures of Redis or of the connection to it.", counters.errors),
        ("written", "Chunks that were written to Redis.", counters.written),
        (
            "dropped",
            "Chunks that were not written to Redis, for want of room or while it fails.",
            counters.dropped,
        ),
    )
    return [
        EngineFigure(
            "tailrace_tiered_cache_breaker",
            "0: Redis is used; 1: it is tried again; 2: it is left alone.",
            _BREAKER[cache.breaker.state],
        ),
        *(
            EngineFigure(f"tailrace_tiered_cache_{name}", doc, value, only_grows=True)
            for name, doc, value in counted
        ),
    ]
