"""How a process ends on the simulated disk: in which call, and that nothing of it happens afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tailrace.testing.simulation import SECTOR_BYTES, Crash, SimulatedDisk, SimulatedFile, SimulatedLoop

_T = TypeVar("_T")
_SEEDS = range(150)


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    with SimulatedLoop() as loop:
        return loop.run(work)


async def _durable(disk: SimulatedDisk, path: str, data: bytes) -> SimulatedFile:
    file = await disk.create(path)
    await file.write(0, [data], sync=True)
    await disk.sync_directory("")
    return file


async def _busy(disk: SimulatedDisk) -> None:
    file = await disk.create("a")
    await disk.sync_directory("")
    for number in range(20):
        await file.write(number * 1000, [b"x" * 1000], sync=True)


def _crashed(seed: int, *, crash_at: int) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(seed))
    disk.crash_at = crash_at
    loop = SimulatedLoop()
    with pytest.raises(Crash):
        loop.run(_busy(disk))
    loop.abandon()
    assert disk.calls == crash_at
    return disk


def test_the_process_ends_in_the_call_that_was_asked_for() -> None:
    for call in range(1, 43):
        _crashed(call, crash_at=call)


def test_a_write_in_which_the_process_ends_is_done_up_to_a_sector() -> None:
    sizes = {len(_crashed(seed, crash_at=5).content("a")) for seed in _SEEDS}
    assert {1000, 2000} < sizes
    assert all(size in (1000, 2000) or size % SECTOR_BYTES == 0 for size in sizes)


def test_writing_with_sync_can_end_between_the_two() -> None:
    disk = _crashed(1, crash_at=4)
    assert disk.content("a") == b"x" * 1000
    assert disk.synced("a").content == b""


def test_a_crash_passes_every_handler() -> None:
    async def main(disk: SimulatedDisk) -> None:
        while True:
            try:
                await _busy(disk)
            except Exception:
                swallowed.append(True)

    swallowed: list[bool] = []
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        disk.crash_at = 7
        with SimulatedLoop() as loop, pytest.raises(Crash):
            loop.run(main(disk))
    assert not swallowed


def test_the_last_words_of_the_task_that_crashed_do_nothing() -> None:
    async def main(disk: SimulatedDisk) -> None:
        await _durable(disk, "a", b"kept")
        disk.crash_at = disk.calls + 1
        try:
            await disk.list("")
        except Crash:
            seen.append(True)
            await disk.remove("a")

    seen: list[bool] = []
    for seed in range(50):
        disk = SimulatedDisk(random.Random(seed))
        with SimulatedLoop() as loop, pytest.raises(Crash):
            loop.run(main(disk))
        assert disk.paths() == ["a"]
    assert seen


def test_nothing_runs_after_a_crash_in_the_background() -> None:
    async def crash(disk: SimulatedDisk) -> None:
        disk.crash_at = 1
        await disk.list("")

    async def main(disk: SimulatedDisk) -> None:
        crashing = asyncio.get_running_loop().create_task(crash(disk))
        await asyncio.sleep(1)
        went_on.append(crashing)

    went_on: list[asyncio.Task[None]] = []
    for seed in range(20):
        with SimulatedLoop() as loop, pytest.raises(Crash):
            loop.run(main(SimulatedDisk(random.Random(seed))))
    assert not went_on


def test_a_call_in_flight_when_the_process_is_killed_does_not_happen() -> None:
    async def main(disk: SimulatedDisk) -> None:
        writing.append(asyncio.get_running_loop().create_task(disk.make_directory("late")))
        await asyncio.sleep(0)

    writing: list[asyncio.Task[None]] = []
    stopped = 0
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        with SimulatedLoop() as loop:
            loop.run(main(disk))
            before = disk.paths()
            stopped += not before
            disk.kill()
            loop.run(asyncio.sleep(1))
            assert disk.paths() == before
    assert stopped


@pytest.mark.parametrize("before_the_cut", [False, True])
def test_a_dead_process_does_nothing_more_to_the_disk(before_the_cut: bool) -> None:
    async def clean_up(disk: SimulatedDisk, file: SimulatedFile) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for call in (disk.remove("a"), disk.create("b"), file.truncate(0), file.write(0, [b"late"])):
                try:
                    await call
                except Crash:
                    refused.append(True)
            file.close()

    async def main(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"kept")
        cleaning = asyncio.get_running_loop().create_task(clean_up(disk, file))
        await asyncio.sleep(0)
        disk.crash_at = disk.calls + 1
        await disk.list("")
        await cleaning

    refused: list[bool] = []
    for seed in range(20):
        disk = SimulatedDisk(random.Random(seed))
        loop = SimulatedLoop()
        with pytest.raises(Crash):
            loop.run(main(disk))
        if before_the_cut:
            loop.abandon()
            disk.power_cut()
        else:
            disk.power_cut()
            loop.abandon()
        assert disk.paths() == ["a"]
        assert disk.content("a") == b"kept"
    assert len(refused) == 80


def test_a_file_of_an_earlier_life_is_refused() -> None:
    async def again(file: SimulatedFile) -> None:
        with pytest.raises(Crash):
            await file.write(0, [b"late"])
        with pytest.raises(Crash):
            file.size()
        file.close()

    disk = SimulatedDisk(random.Random(1))
    file = _run(_durable(disk, "a", b"kept"))
    disk.kill()
    _run(again(file))
    assert disk.content("a") == b"kept"


def test_the_next_life_works_on() -> None:
    disk = _crashed(1, crash_at=9)
    disk.power_cut()
    assert not disk.crashed
    _run(_durable(disk, "b", b"new life"))
    assert disk.content("b") == b"new life"


def test_space_is_right_again_after_a_power_cut() -> None:
    async def work(disk: SimulatedDisk) -> SimulatedFile:
        file = await _durable(disk, "a", bytes(600))
        await disk.remove("a")
        await file.reserve(900)
        return file

    disk = SimulatedDisk(random.Random(1), capacity_bytes=1000)
    file = _run(work(disk))
    disk.power_cut(survival_chance=0)
    assert disk.free_bytes() == 400
    file.close()
    assert disk.free_bytes() == 400
