"""Free space: asked in a thread, over a real directory, and remembered for whoever shows it."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tailrace.metrics.free_space import FreeSpace


@pytest.fixture
def askers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads in which the file system was asked."""
    found: list[int] = []
    ask = os.statvfs

    def statvfs(path: str) -> os.statvfs_result:
        found.append(threading.get_ident())
        return ask(path)

    monkeypatch.setattr(os, "statvfs", statvfs)
    return found


def test_the_file_system_is_asked_in_a_thread_and_what_it_said_is_kept(
    tmp_path: Path, askers: list[int]
) -> None:
    space = FreeSpace(str(tmp_path))
    found = asyncio.run(space.refresh())
    assert found is not None and found > 0
    assert space.newest_bytes == found
    assert len(askers) == 1 and threading.get_ident() not in askers


def test_in_memory_nobody_is_asked(askers: list[int]) -> None:
    assert asyncio.run(FreeSpace().refresh()) is None
    assert FreeSpace().read_bytes() is None
    assert askers == []


def test_a_directory_that_is_gone_has_no_figure(tmp_path: Path) -> None:
    space = FreeSpace(str(tmp_path / "gone"))
    space.newest_bytes = 5
    assert asyncio.run(space.refresh()) is None
    assert space.newest_bytes is None
