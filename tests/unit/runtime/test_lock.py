"""The lock of a data directory, between processes: the second holder is a child, or another object here."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.model import StorageError
from tailrace.runtime import DirectoryLock

HOLD = """
import sys
from tailrace.runtime import DirectoryLock
lock = DirectoryLock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""
TRY = """
import sys
from tailrace.model import StorageError
from tailrace.runtime import DirectoryLock
try:
    DirectoryLock(sys.argv[1])
except StorageError as error:
    print(error)
"""


def start(code: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_the_second_process_is_told_who_came_first(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    answer, _ = start(TRY, tmp_path).communicate(timeout=120)
    assert f"in use by pid {os.getpid()}" in answer
    assert "Stop that process" in answer
    lock.release()


def test_a_child_that_holds_it_is_named(tmp_path: Path) -> None:
    with start(HOLD, tmp_path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        with pytest.raises(StorageError, match=f"pid {child.pid}"):
            DirectoryLock(str(tmp_path))
        child.kill()


def test_it_goes_with_a_killed_process(tmp_path: Path) -> None:
    with start(HOLD, tmp_path) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
        child.wait(30)
    lock = DirectoryLock(str(tmp_path))
    assert (tmp_path / "LOCK").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_one_process_cannot_hold_it_twice(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    with pytest.raises(StorageError, match=f"pid {os.getpid()}"):
        DirectoryLock(str(tmp_path))
    lock.release()


def test_after_release_another_may_have_it(tmp_path: Path) -> None:
    first = DirectoryLock(str(tmp_path))
    first.release()
    second = DirectoryLock(str(tmp_path))
    first.release()  # releasing twice must not release the second
    with pytest.raises(StorageError):
        DirectoryLock(str(tmp_path))
    second.release()


def test_a_longer_pid_of_an_earlier_owner_is_wiped(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("99999999999\nrubbish")
    lock = DirectoryLock(str(tmp_path))
    assert (tmp_path / "LOCK").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_refused_lock_leaves_no_descriptor_open(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    descriptors = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    for _ in range(20):
        with pytest.raises(StorageError):
            DirectoryLock(str(tmp_path))
    if descriptors:
        assert set(os.listdir("/proc/self/fd")) == descriptors
    lock.release()


def test_an_owner_without_a_number_is_called_unknown(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    (tmp_path / "LOCK").write_text("")
    with pytest.raises(StorageError, match="pid unknown"):
        DirectoryLock(str(tmp_path))
    lock.release()


def test_a_disk_without_room_for_the_number_is_locked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        lock = DirectoryLock(str(tmp_path))
    with pytest.raises(StorageError, match="in use by pid"):
        DirectoryLock(str(tmp_path))
    lock.release()
