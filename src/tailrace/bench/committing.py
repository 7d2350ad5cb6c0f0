"""What sharing a sync is worth: small appends that each wait for durability, against an `fdatasync` for each.

`group commit` has many tasks append to one partition; the bare side writes and syncs one file, over and over.
`many partitions` appends to each of many partitions at once; the bare side writes and syncs file after file.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from uuid import UUID

from tailrace.bench.appending import EPOCH
from tailrace.bench.batch import batch_of, fresh_batches
from tailrace.bench.compare import Comparison, Turns, compare
from tailrace.model import PartitionId
from tailrace.records import Batch
from tailrace.storage import LogConfig
from tailrace.storage.segment import SegmentLog, SegmentStorage

BATCH_BYTES = 262  # one record of about 200 bytes
APPENDERS = 64
PARTITIONS = 100
_TOPIC = UUID(int=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """The comparison, and how long one append took from the call to its durability."""

    comparison: Comparison
    latency_ms: dict[str, float]


async def measure_group_commit(
    path: Path, *, appends_per_task: int, bare_seconds: float, turns: Turns
) -> GroupCommit:
    """Durable appends per second of many tasks to one partition."""
    template = batch_of(BATCH_BYTES)
    latencies: list[float] = []
    storage = await SegmentStorage.open(path / "group", owns_loop=True)
    fd = os.open(path / "bare-group", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        log = await storage.create(PartitionId(_TOPIC, 0), LogConfig())

        async def ours() -> float:
            shares = [fresh_batches(template, appends_per_task) for _ in range(APPENDERS)]
            started = time.perf_counter()
            await asyncio.gather(*(_append_durably(log, share, latencies) for share in shares))
            return APPENDERS * appends_per_task / (time.perf_counter() - started)

        comparison = await compare(
            turns,
            unit="appends/s",
            ours=ours,
            bare=lambda: _write_and_sync([fd], template, seconds=bare_seconds),
        )
    finally:
        os.close(fd)
        await storage.close()
    cuts = quantiles(latencies, n=100)
    return GroupCommit(
        comparison=comparison,
        latency_ms={"p50": round(cuts[49] * 1000, 3), "p99": round(cuts[98] * 1000, 3)},
    )


async def measure_many_partitions(
    path: Path, *, rounds: int, bare_seconds: float, turns: Turns
) -> Comparison:
    """Durable appends per second, one to each of many partitions at a time."""
    template = batch_of(BATCH_BYTES)
    storage = await SegmentStorage.open(path / "many", owns_loop=True)
    try:
        created = [storage.create(PartitionId(_TOPIC, number), LogConfig()) for number in range(PARTITIONS)]
        logs = await asyncio.gather(*created)
        await storage.wait_applied()

        async def ours() -> float:
            shares = [fresh_batches(template, PARTITIONS) for _ in range(rounds)]
            started = time.perf_counter()
            for share in shares:
                await _append_everywhere(logs, share)
            return PARTITIONS * rounds / (time.perf_counter() - started)

        with ExitStack() as files:
            names = [path / f"bare-{number}" for number in range(PARTITIONS)]
            fds = [files.enter_context(name.open("wb", buffering=0)).fileno() for name in names]
            return await compare(
                turns,
                unit="appends/s",
                ours=ours,
                bare=lambda: _write_and_sync(fds, template, seconds=bare_seconds),
            )
    finally:
        await storage.close()


async def _append_durably(log: SegmentLog, batches: Sequence[Batch], latencies: list[float]) -> None:
    for batch in batches:
        started = time.perf_counter()
        log.append(batch, leader_epoch=EPOCH)
        await log.wait_durable(batch.next_offset)
        latencies.append(time.perf_counter() - started)


async def _append_everywhere(logs: Sequence[SegmentLog], batches: Sequence[Batch]) -> None:
    for log, batch in zip(logs, batches, strict=True):
        log.append(batch, leader_epoch=EPOCH)
    await asyncio.gather(*(log.wait_durable(log.end_offset) for log in logs))


def _write_and_sync(fds: Sequence[int], data: bytes, *, seconds: float) -> float:
    """File after file, round and round, for so long: on a slow disk a number of syncs could take any time."""
    sync = getattr(os, "fdatasync", os.fsync)  # macOS has only the second
    count = 0
    started = time.perf_counter()
    for fd in cycle(fds):
        os.write(fd, data)
        sync(fd)
        count += 1
        if time.perf_counter() - started >= seconds:
            break
    return count / (time.perf_counter() - started)
