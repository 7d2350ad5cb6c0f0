"""Where disk calls run: by a clock of the test's own, and by the thread that was seen to run the call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.runtime import RealDisk
from tailrace.runtime.disk import DiskCalls, RealFile

SMALL, LARGE = 1000, 2 << 20


class Stopwatch:
    """The monotonic time, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    watch = Stopwatch()
    monkeypatch.setattr(time, "monotonic", watch)
    return watch


@pytest.fixture
def own() -> Iterator[DiskCalls]:
    calls = DiskCalls(owns_loop=True)
    yield calls
    calls.close()


@pytest.fixture
def foreign() -> Iterator[DiskCalls]:
    calls = DiskCalls(owns_loop=False)
    yield calls
    calls.close()


def ran_inline(
    calls: DiskCalls, *, bulk: bool = False, watch: Stopwatch | None = None, takes_s: float = 0
) -> bool:
    """Sync once; whether that ran in the loop's own thread."""
    found: list[threading.Thread] = []

    def call() -> None:
        found.append(threading.current_thread())
        if watch is not None:
            watch.now_s += takes_s

    asyncio.run(calls.sync(call, bulk=bulk))
    return found == [threading.main_thread()]


def test_in_a_loop_of_our_own_a_quick_sync_runs_in_place(own: DiskCalls) -> None:
    assert ran_inline(own)


def test_a_bulk_sync_runs_in_a_thread(own: DiskCalls) -> None:
    assert not ran_inline(own, bulk=True)
    assert ran_inline(own)


def test_in_a_users_loop_everything_runs_in_a_thread(foreign: DiskCalls) -> None:
    assert not ran_inline(foreign)
    assert not foreign.writes_inline(1)


def test_one_slow_sync_moves_nothing(own: DiskCalls, watch: Stopwatch) -> None:
    """It may only mean that the machine was busy elsewhere."""
    assert ran_inline(own, watch=watch, takes_s=0.02)
    assert ran_inline(own)


def test_slow_syncs_one_after_the_other_move_to_a_thread_until_time_has_made_up_for_them(
    own: DiskCalls, watch: Stopwatch
) -> None:
    for _ in range(5):
        assert ran_inline(own, watch=watch, takes_s=0.006)
    assert not ran_inline(own)
    watch.now_s += 0.2  # they were 25 ms too long
    assert not ran_inline(own)
    watch.now_s += 0.1
    assert ran_inline(own)


def test_slow_syncs_far_apart_run_in_place(own: DiskCalls, watch: Stopwatch) -> None:
    for _ in range(100):
        assert ran_inline(own, watch=watch, takes_s=0.006)
        watch.now_s += 0.05


def test_a_very_slow_sync_is_held_against_the_disk_for_a_second_at_most(
    own: DiskCalls, watch: Stopwatch
) -> None:
    assert ran_inline(own, watch=watch, takes_s=10)
    watch.now_s += 0.9
    assert not ran_inline(own)
    watch.now_s += 0.2
    assert ran_inline(own)


def test_quick_syncs_change_nothing(own: DiskCalls, watch: Stopwatch) -> None:
    for _ in range(1000):
        assert ran_inline(own, watch=watch, takes_s=0.001)


def test_slow_writes_move_to_a_thread(own: DiskCalls, watch: Stopwatch) -> None:
    def write(takes_s: float) -> None:
        watch.now_s += takes_s

    own.write(write, 0.015)
    assert own.writes_inline(SMALL)
    own.write(write, 0.015)
    assert not own.writes_inline(SMALL)
    watch.now_s += 0.2
    assert not own.writes_inline(SMALL)
    watch.now_s += 0.1
    assert own.writes_inline(SMALL)


def test_slow_syncs_and_slow_writes_are_two_matters(own: DiskCalls, watch: Stopwatch) -> None:
    """A write goes to the page cache, however long the disk takes to sync it."""

    def write() -> None:
        watch.now_s += 0.1

    assert ran_inline(own, watch=watch, takes_s=0.1)
    assert own.writes_inline(SMALL)
    own.write(write)
    watch.now_s += 0.95
    assert ran_inline(own)
    assert not own.writes_inline(SMALL)


def test_only_small_writes_run_in_place(own: DiskCalls) -> None:
    assert own.writes_inline(1 << 20)
    assert not own.writes_inline((1 << 20) + 1)


def test_a_failing_sync_fails_its_caller_wherever_it_runs(own: DiskCalls, foreign: DiskCalls) -> None:
    def broken() -> None:
        raise OSError(5, "broken")

    for calls in (own, foreign):
        with pytest.raises(OSError, match="broken"):
            asyncio.run(calls.sync(broken, bulk=False))


@pytest.mark.parametrize(
    ("owns_loop", "size", "inline"), [(True, SMALL, True), (True, LARGE, False), (False, SMALL, False)]
)
def test_a_write_with_its_sync_goes_where_its_size_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owns_loop: bool, size: int, inline: bool
) -> None:
    threads: dict[str, threading.Thread] = {}
    write_whole, sync = RealFile._write_whole, RealFile._sync

    def note_write(file: RealFile, buffers: list[bytes], position: int) -> None:
        threads["write"] = threading.current_thread()
        write_whole(file, buffers, position)

    def note_sync(file: RealFile) -> None:
        threads["sync"] = threading.current_thread()
        sync(file)

    async def main() -> None:
        file = await disk.create("a")
        await file.write(0, [bytes(size)], sync=True)

    disk = RealDisk(str(tmp_path), owns_loop=owns_loop)
    monkeypatch.setattr(RealFile, "_write_whole", note_write)
    monkeypatch.setattr(RealFile, "_sync", note_sync)
    asyncio.run(main())
    disk.close()
    assert {name: thread is threading.main_thread() for name, thread in threads.items()} == {
        "write": inline,
        "sync": inline,
    }
