"""`tailrace bench log`: every load in turn, each in a directory that is gone before the next begins."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from tailrace.bench.appending import MIB, measure_append
from tailrace.bench.coding import TwinRates, measure_twin
from tailrace.bench.committing import GroupCommit, measure_group_commit, measure_many_partitions
from tailrace.bench.compare import Comparison, Turns
from tailrace.bench.machine import describe_machine
from tailrace.bench.reading import measure_hot_read
from tailrace.bench.recovering import measure_recovery
from tailrace.bench.report import LogReport, Twins
from tailrace.model import NoSpace

Note = Callable[[str], None]
"""Told the name of every step as it begins."""

_Found = TypeVar("_Found")

STEPS = 8
KIB, GIB = 1 << 10, 1 << 30
_SPARE_BYTES = 256 * MIB  # journals, and what the log wants to see free


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is moved. Either side does its part once uncounted, and then up to `runs` times."""

    runs: int
    load_seconds_max: float  # then the runs of a load are fewer
    append_16k_bytes: int
    append_1m_bytes: int
    read_bytes: int
    read_runs: int  # short ones, so many
    group_appends: int  # per appender
    partition_rounds: int
    bare_seconds: float  # of syncs one by one, per run
    recovery_bytes: int
    recovery_runs: int
    codec_seconds: float  # per twin

    @property
    def disk_bytes_max(self) -> int:
        """The most that is on the disk at a time."""
        largest = max(self.append_16k_bytes, self.append_1m_bytes, self.read_bytes, self.recovery_bytes)
        return largest + _SPARE_BYTES


FULL = Sizes(
    runs=15,
    load_seconds_max=12.0,
    append_16k_bytes=64 * MIB,
    append_1m_bytes=128 * MIB,
    read_bytes=256 * MIB,
    read_runs=41,
    group_appends=100,
    partition_rounds=20,
    bare_seconds=0.25,
    recovery_bytes=1024 * MIB,
    recovery_runs=3,
    codec_seconds=2.0,
)
QUICK = Sizes(
    runs=11,
    load_seconds_max=1.5,
    append_16k_bytes=32 * MIB,
    append_1m_bytes=64 * MIB,
    read_bytes=64 * MIB,
    read_runs=31,
    group_appends=30,
    partition_rounds=10,
    bare_seconds=0.05,
    recovery_bytes=96 * MIB,
    recovery_runs=1,
    codec_seconds=0.4,
)


def run_log_bench(directory: Path, sizes: Sizes, *, note: Note) -> LogReport:
    """Measure on the disk of `directory`; whatever ends it, nothing is left there."""
    _check_space(directory, sizes)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner, _empty(directory) as place:
        found = runner.run(_measure(place, sizes, note))
        return _report(found, sizes, describe_machine(place))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _check_space(directory: Path, sizes: Sizes) -> None:
    free = shutil.disk_usage(directory).free
    if free < sizes.disk_bytes_max:
        raise NoSpace(
            f"{directory} has {free // MIB} MiB free, the benchmark takes up to "
            f"{sizes.disk_bytes_max // MIB}. Try: --quick, or --dir on another disk"
        )


@contextmanager
def _empty(directory: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=directory) as name:
        yield Path(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    """What every load returned."""

    append_16k: Comparison
    append_1m: Comparison
    read_hot: Comparison
    group_commit: GroupCommit
    many_partitions: Comparison
    recoveries_s: list[float]
    pure: TwinRates | None
    compiled: TwinRates | None


async def _measure(place: Path, sizes: Sizes, note: Note) -> _Findings:
    async def step(name: str, load: Callable[[Path], Awaitable[_Found]]) -> _Found:
        note(name)
        with _empty(place) as path:
            return await load(path)

    turns = Turns(runs=sizes.runs, seconds_max=sizes.load_seconds_max)
    return _Findings(
        append_16k=await step(
            "append 16 KiB batches",
            lambda path: measure_append(
                path, batch_bytes=16 * KIB, bytes_per_run=sizes.append_16k_bytes, turns=turns
            ),
        ),
        append_1m=await step(
            "append 1 MiB batches",
            lambda path: measure_append(
                path, batch_bytes=MIB, bytes_per_run=sizes.append_1m_bytes, turns=turns
            ),
        ),
        read_hot=await step(
            "read the page cache",
            lambda path: measure_hot_read(
                path, bytes_total=sizes.read_bytes, turns=replace(turns, runs=sizes.read_runs)
            ),
        ),
        group_commit=await step(
            "group commit",
            lambda path: measure_group_commit(
                path, appends_per_task=sizes.group_appends, bare_seconds=sizes.bare_seconds, turns=turns
            ),
        ),
        many_partitions=await step(
            "many partitions",
            lambda path: measure_many_partitions(
                path, rounds=sizes.partition_rounds, bare_seconds=sizes.bare_seconds, turns=turns
            ),
        ),
        recoveries_s=await step(
            "recovery",
            lambda path: measure_recovery(path, bytes_total=sizes.recovery_bytes, runs=sizes.recovery_runs),
        ),
        pure=await step("pure codec", lambda _: measure_twin(pure=True, seconds=sizes.codec_seconds)),
        compiled=await step(
            "compiled codec", lambda _: measure_twin(pure=False, seconds=sizes.codec_seconds)
        ),
    )


def _report(found: _Findings, sizes: Sizes, machine: dict[str, object]) -> LogReport:
    pure, compiled = found.pure, found.compiled
    assert pure is not None
    group = found.group_commit
    return LogReport(
        append_16k_ratio=found.append_16k.ratio,
        append_1m_ratio=found.append_1m.ratio,
        read_hot_ratio=found.read_hot.ratio,
        group_commit_ratio=group.comparison.ratio,
        many_partitions_ratio=found.many_partitions.ratio,
        recovery_s_per_gib=round(median(found.recoveries_s) * GIB / sizes.recovery_bytes, 3),
        encode_per_s=Twins(pure=pure.encode_per_s, compiled=compiled.encode_per_s if compiled else None),
        decode_per_s=Twins(pure=pure.decode_per_s, compiled=compiled.decode_per_s if compiled else None),
        machine=machine,
        details={
            "append_16k": found.append_16k.details(),
            "append_1m": found.append_1m.details(),
            "read_hot": found.read_hot.details(),
            "group_commit": {**group.comparison.details(), "latency_ms": group.latency_ms},
            "many_partitions": found.many_partitions.details(),
            "recovery": {"bytes": sizes.recovery_bytes, "seconds": [round(s, 3) for s in found.recoveries_s]},
        },
    )
