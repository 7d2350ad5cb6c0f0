"""Every load on its own, with next to no data: it does what it is named for and returns what it counted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tailrace.bench.appending import MIB, measure_append
from tailrace.bench.coding import TwinRates, measure_codec, measure_twin
from tailrace.bench.committing import measure_group_commit, measure_many_partitions
from tailrace.bench.compare import Comparison, Turns
from tailrace.bench.process import run_python
from tailrace.bench.reading import measure_hot_read
from tailrace.bench.recovering import measure_recovery
from tailrace.model import StorageError
from tailrace.records import ACCELERATED

ONCE = Turns(runs=1, seconds_max=600)
TWICE = Turns(runs=2, seconds_max=600)


def check(comparison: Comparison, *, unit: str, runs: int) -> None:
    assert comparison.unit == unit
    assert len(comparison.ours) == len(comparison.bare) == runs
    assert min(*comparison.ours, *comparison.bare) > 0


@pytest.mark.parametrize("batch_bytes", [16 * 1024, 1 << 20])
def test_appends(tmp_path: Path, batch_bytes: int) -> None:
    found = asyncio.run(measure_append(tmp_path, batch_bytes=batch_bytes, bytes_per_run=2 * MIB, turns=TWICE))
    check(found, unit="MiB/s", runs=2)


def test_appends_leave_neither_partitions_nor_the_bare_file(tmp_path: Path) -> None:
    asyncio.run(measure_append(tmp_path, batch_bytes=16 * 1024, bytes_per_run=MIB, turns=ONCE))
    assert not list(tmp_path.glob("**/*.log"))
    assert not (tmp_path / "bare").exists()


def test_hot_reads(tmp_path: Path) -> None:
    check(asyncio.run(measure_hot_read(tmp_path, bytes_total=3 * MIB, turns=TWICE)), unit="MiB/s", runs=2)


def test_hot_reads_are_of_files_as_long_as_was_asked_for(tmp_path: Path) -> None:
    asyncio.run(measure_hot_read(tmp_path, bytes_total=3 * MIB, turns=ONCE))
    (segment,) = tmp_path.glob("**/*.log")
    assert segment.stat().st_size == 3 * MIB


def test_group_commit(tmp_path: Path) -> None:
    found = asyncio.run(measure_group_commit(tmp_path, appends_per_task=2, bare_seconds=0.001, turns=TWICE))
    check(found.comparison, unit="appends/s", runs=2)
    assert 0 < found.latency_ms["p50"] <= found.latency_ms["p99"]


def test_syncs_one_by_one_stop_when_the_time_is_up(tmp_path: Path) -> None:
    asyncio.run(measure_group_commit(tmp_path, appends_per_task=1, bare_seconds=0, turns=TWICE))
    assert (tmp_path / "bare-group").stat().st_size == 262 * 3


def test_many_partitions(tmp_path: Path) -> None:
    found = asyncio.run(measure_many_partitions(tmp_path, rounds=1, bare_seconds=0.001, turns=TWICE))
    check(found, unit="appends/s", runs=2)
    bare = [file for file in tmp_path.glob("bare-*") if file.stat().st_size]
    assert 0 < len(bare) <= 100


def test_recovery(tmp_path: Path) -> None:
    seconds = asyncio.run(measure_recovery(tmp_path, bytes_total=2 * MIB, runs=2))
    assert len(seconds) == 2
    assert min(seconds) > 0
    assert not list(tmp_path.iterdir())


def test_the_writer_that_dies_leaves_batches_by_reference_and_no_checkpoint_of_them(tmp_path: Path) -> None:
    asyncio.run(run_python("tailrace.bench.child", "crash", str(tmp_path), str(8 * MIB)))
    (segment,) = tmp_path.glob("*/*.log")
    assert segment.stat().st_size >= 7 * MIB  # all but a first round that was small enough to go inline
    assert not list(tmp_path.glob("*/*.index"))


def test_a_recovery_that_lost_something_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def write_less(module: str, role: str, directory: str, bytes_total: str) -> str:
        return await run_python(module, role, directory, str(int(bytes_total) // 2))

    monkeypatch.setattr("tailrace.bench.recovering.run_python", write_less)
    with pytest.raises(StorageError, match="was acknowledged"):
        asyncio.run(measure_recovery(tmp_path, bytes_total=2 * MIB, runs=1))


def test_the_codec_of_this_process() -> None:
    rates = measure_codec(seconds=0.02)
    assert rates.accelerated == ACCELERATED
    assert min(rates.encode_per_s, rates.decode_per_s) > 0


def test_the_pure_twin_is_always_there() -> None:
    rates = asyncio.run(measure_twin(pure=True, seconds=0.02))
    assert rates is not None
    assert not rates.accelerated
    assert min(rates.encode_per_s, rates.decode_per_s) > 0


def test_a_compiled_twin_that_is_not_there_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_accelerated(module: str, *args: str, environment: Mapping[str, str]) -> str:
        assert environment == {"TAILRACE_PURE": "0"}
        return '{"accelerated": false, "encode_per_s": 1, "decode_per_s": 2}'

    monkeypatch.setattr("tailrace.bench.coding.run_python", never_accelerated)
    assert asyncio.run(measure_twin(pure=False, seconds=0.02)) is None


def test_a_compiled_twin_that_is_there_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def accelerated(module: str, *args: str, environment: Mapping[str, str]) -> str:
        return '{"accelerated": true, "encode_per_s": 1, "decode_per_s": 2}'

    monkeypatch.setattr("tailrace.bench.coding.run_python", accelerated)
    rates = asyncio.run(measure_twin(pure=False, seconds=0.02))
    assert rates == TwinRates(accelerated=True, encode_per_s=1, decode_per_s=2)
