"""The whole benchmark with next to no data: every key, the way a run ends, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import tailrace
from tailrace.bench import FULL, QUICK, STEPS, LogReport, Sizes, run_log_bench
from tailrace.bench.appending import MIB
from tailrace.model import NoSpace

TINY = Sizes(
    runs=1,
    load_seconds_max=600,
    append_16k_bytes=MIB,
    append_1m_bytes=2 * MIB,
    read_bytes=MIB,
    read_runs=1,
    group_appends=2,
    partition_rounds=1,
    bare_seconds=0.001,
    recovery_bytes=2 * MIB,
    recovery_runs=1,
    codec_seconds=0.02,
)
RATIOS = ["append_16k", "append_1m", "read_hot", "group_commit", "many_partitions"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def report(place: Path, steps: list[str]) -> LogReport:
    return run_log_bench(place, TINY, note=steps.append)


@pytest.mark.parametrize("key", RATIOS)
def test_a_ratio_is_positive_and_its_sides_are_in_the_details(report: LogReport, key: str) -> None:
    assert getattr(report, f"{key}_ratio") > 0
    detail = report.details[key]
    assert isinstance(detail, dict)
    assert detail["runs"] == 1
    assert detail["tailrace"]["median"] > 0
    assert detail["bare"]["median"] > 0


def test_recovery_is_scaled_to_a_gib(report: LogReport) -> None:
    detail = report.details["recovery"]
    assert isinstance(detail, dict)
    assert detail["bytes"] == TINY.recovery_bytes
    assert report.recovery_s_per_gib == pytest.approx(detail["seconds"][0] * 512, abs=0.6)


def test_either_twin_has_its_figures(report: LogReport) -> None:
    assert report.encode_per_s["pure"] > 0
    assert report.decode_per_s["pure"] > 0
    for compiled in (report.encode_per_s["compiled"], report.decode_per_s["compiled"]):
        assert compiled is None or compiled > 0


def test_every_step_is_told_once(report: LogReport, steps: list[str]) -> None:
    assert len(steps) == len(set(steps)) == STEPS


def test_nothing_stays_behind(report: LogReport, place: Path) -> None:
    assert list(place.iterdir()) == []


def test_quick_moves_less() -> None:
    assert QUICK.disk_bytes_max < FULL.disk_bytes_max
    assert QUICK.runs < FULL.runs


def test_too_little_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=300 * MIB))
    with pytest.raises(NoSpace, match=r"300 MiB free.* Try: --quick"):
        run_log_bench(tmp_path, FULL, note=pytest.fail)
    assert list(tmp_path.iterdir()) == []


def test_enough_room_is_all_that_is_on_the_disk_at_a_time() -> None:
    assert replace(TINY, recovery_bytes=1 << 30).disk_bytes_max > 1 << 30


def test_a_missing_directory_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_log_bench(tmp_path / "nowhere", TINY, note=pytest.fail)


RUN_UNTIL_TOLD = """
    import sys
    from dataclasses import replace
    from pathlib import Path
    from tailrace.bench import FULL, run_log_bench
    sizes = replace(
        FULL, runs=1, append_16k_bytes=1 << 20, append_1m_bytes=1 << 20, read_bytes=1 << 20, read_runs=1,
        group_appends=1, partition_rounds=1, bare_seconds=0.001,
    )
    try:
        run_log_bench(Path(sys.argv[1]), sizes, note=lambda name: print(name, flush=True))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("step", ["append 16 KiB batches", "recovery"])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, step: str) -> None:
    """Also while another process writes, which must not go on writing."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(RUN_UNTIL_TOLD), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while (line := process.stdout.readline().strip()) != step:
            assert line, "it ended before it came to that step"
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (130, "")
    assert list(tmp_path.iterdir()) == []
