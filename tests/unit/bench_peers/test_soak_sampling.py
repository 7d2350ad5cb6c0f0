"""What /proc says of a process: on made-up files, on files that lie, and on this process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.soak.sampling import ProcessGone, disk_bytes, look, memory_parts, read_fields

TICKS = os.sysconf("SC_CLK_TCK")
STAT = f"7 (python) S 1 {' '.join(['0'] * 9)} 100 50 0 0 20 0 1 0 100 999 50 0 0"
STATUS = "Name:\tpython\nVmPeak:\t  900 kB\nVmRSS:\t     800 kB\nThreads:\t9\nSigQ:\t0/95\n"
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")


def made_up(tmp_path: Path, *, status: str = STATUS, stat: str = STAT) -> Path:
    place = tmp_path / "7"
    (place / "fd").mkdir(parents=True)
    for number in range(3):
        (place / "fd" / str(number)).touch()
    (place / "status").write_text(status)
    (place / "stat").write_text(stat)
    return place


def test_a_process_is_looked_at(tmp_path: Path) -> None:
    made_up(tmp_path)

    vitals = look(7, proc=tmp_path)

    assert (vitals.rss_bytes, vitals.threads, vitals.descriptors) == (800 * 1024, 9, 3)
    assert vitals.cpu_s == pytest.approx(150 / TICKS)


def test_a_process_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProcessGone, match="process 7 is gone"):
        look(7, proc=tmp_path)


def test_a_process_that_has_ended_and_still_has_a_name_is_gone(tmp_path: Path) -> None:
    made_up(tmp_path, status="Name:\tpython\nState:\tZ (zombie)\nThreads:\t1\n")

    with pytest.raises(ProcessGone, match="has ended"):
        look(7, proc=tmp_path)


def test_memory_has_parts(tmp_path: Path) -> None:
    text = "55d0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    900 kB\nPss:    700 kB\nAnonymous:  500 kB\n"
    (made_up(tmp_path) / "smaps_rollup").write_text(text)

    parts = memory_parts(7, proc=tmp_path)

    assert parts is not None
    assert (parts.pss_bytes, parts.anonymous_bytes) == (700 * 1024, 500 * 1024)


@pytest.mark.parametrize("text", [None, "", "Pss: 700 kB\n"])
def test_memory_parts_that_are_not_told_are_none(tmp_path: Path, text: str | None) -> None:
    place = made_up(tmp_path)
    if text is not None:
        (place / "smaps_rollup").write_text(text)

    assert memory_parts(7, proc=tmp_path) is None


@pytest.mark.parametrize(
    "line", ["", "Threads", "Threads:", "Threads: many", "Threads: -1", "Threads: 1 MB", "Threads: 1 2"]
)
def test_lines_of_another_form_are_passed_over(line: str) -> None:
    assert read_fields(f"{line}\nVmRSS: 5 kB\n") == {"VmRSS": 5}


@linux
def test_this_process_is_seen() -> None:
    before = look(os.getpid())
    opened = os.open(os.devnull, os.O_RDONLY)
    try:
        after = look(os.getpid())
    finally:
        os.close(opened)

    assert after.descriptors == before.descriptors + 1
    assert after.rss_bytes > 1_000_000
    assert after.threads >= 1
    assert memory_parts(os.getpid()) is not None


def test_a_directory_takes_what_its_files_take(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "full").write_bytes(bytes(100_000))
    (tmp_path / "empty").touch()
    with (tmp_path / "a" / "sparse").open("wb") as file:
        file.truncate(1 << 30)

    assert 100_000 <= disk_bytes(tmp_path) < 1_000_000


def test_a_directory_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert disk_bytes(tmp_path / "gone") == 0
