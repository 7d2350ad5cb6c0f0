"""Processor time and memory of a process tree: on made-up /proc files, and on a real child."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.bench.wire.accounting import read_stat, tree_of, tree_usage

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")


def stat_line(pid: int, parent: int, *, name: str = "java", times: tuple[int, ...] = (1, 2, 3, 4)) -> str:
    between = " ".join(["0"] * 9)
    return f"{pid} ({name}) S {parent} {between} {' '.join(map(str, times))} 20 0 1 0 100 999 50 0 0"


@pytest.mark.parametrize("name", ["java", "a b", "x) R 1 (", "(sd-pam)"])
def test_a_line_is_read_whatever_the_process_is_called(name: str) -> None:
    stat = read_stat(stat_line(10, 7, name=name))

    assert (stat.parent, stat.ticks, stat.ended_ticks, stat.rss_pages) == (7, 1 + 2, 3 + 4, 50)


@pytest.mark.parametrize("line", ["", "10 (java)", "10 (java) S 7 0 0"])
def test_a_line_that_ends_early_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a line"):
        read_stat(line)


def test_a_tree_is_everything_below() -> None:
    assert tree_of(2, {1: 0, 2: 1, 3: 2, 4: 3, 5: 1, 6: 2}) == {2, 3, 4, 6}


def test_a_circle_of_parents_ends() -> None:
    assert tree_of(2, {2: 3, 3: 2}) == {2, 3}


def test_a_tree_uses_the_sum_of_its_processes(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10), (12, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat_line(pid, parent))
    (tmp_path / "13").mkdir()  # it ended while we looked
    (tmp_path / "version").write_text("not a process")

    usage = tree_usage(10, proc=tmp_path)

    assert usage is not None
    assert (usage.processes, usage.cpu_s, usage.rss_bytes) == (2, 20 / TICKS, 100 * PAGE)


@pytest.mark.parametrize("place", ["empty", "missing"])
def test_an_unknown_process_has_no_usage(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()

    assert tree_usage(10, proc=tmp_path / place) is None


@linux
def test_work_of_a_child_of_a_child_is_seen() -> None:
    work = "x = 0\nfor i in range(3_000_000): x += i\nprint('done', flush=True); input()"
    middle = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", middle], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        usage = tree_usage(process.pid)
        process.communicate(b"\n")

    assert usage is not None
    assert usage.processes == 2
    assert usage.cpu_s > 0
    assert usage.rss_bytes > 1_000_000
