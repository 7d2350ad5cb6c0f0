"""Failing syncs and writes, and flipped bits, on the simulated disk."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from tailrace.runtime import SyncError
from tailrace.testing.simulation import SECTOR_BYTES, SimulatedDisk, SimulatedFile, SimulatedLoop

_T = TypeVar("_T")
_SEEDS = range(150)


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    with SimulatedLoop() as loop:
        return loop.run(work)


def _after_power_cut(
    seed: int,
    work: Callable[[SimulatedDisk], Coroutine[Any, Any, None]],
    *,
    survival_chance: float | None = None,
) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(seed))
    _run(work(disk))
    disk.power_cut(survival_chance=survival_chance)
    return disk


async def _durable(disk: SimulatedDisk, path: str, data: bytes) -> SimulatedFile:
    file = await disk.create(path)
    await file.write(0, [data], sync=True)
    await disk.sync_directory("")
    return file


# ---- failing syncs


async def _fail_to_sync(disk: SimulatedDisk) -> SimulatedFile:
    file = await _durable(disk, "a", b"old")
    await file.write(0, [b"new"])
    disk.sync_error_chance = 1
    with pytest.raises(SyncError, match="error") as caught:
        await file.sync()
    assert caught.value.errno == errno.EIO
    disk.sync_error_chance = 0
    return file


def test_after_a_failed_sync_the_cache_reads_well_and_the_next_sync_lies() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _fail_to_sync(disk)
        await file.sync()
        assert disk.content("a") == b"new"
        assert disk.synced("a").content == b"old"

    disk = _after_power_cut(1, work, survival_chance=0)
    assert disk.content("a") == b"old"


def test_a_fresh_open_shows_what_a_failed_sync_lost() -> None:
    async def main(disk: SimulatedDisk) -> None:
        await _fail_to_sync(disk)
        await disk.open("a")
        assert disk.content("a") == b"new"
        await disk.open("a", fresh=True)
        assert disk.content("a") == b"old"

    _run(main(SimulatedDisk(random.Random(1))))


def test_a_fresh_open_keeps_what_is_merely_not_synced() -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"old")
        await file.write(0, [b"new"])
        await disk.open("a", fresh=True)
        assert disk.content("a") == b"new"

    _run(main(SimulatedDisk(random.Random(1))))


def test_a_fresh_open_keeps_what_was_written_after_a_failed_sync() -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await _fail_to_sync(disk)
        await file.write(0, [b"NEW"])
        await disk.open("a", fresh=True)
        assert disk.content("a") == b"NEW"

    _run(main(SimulatedDisk(random.Random(1))))


def test_writing_again_repairs_what_a_failed_sync_lost() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _fail_to_sync(disk)
        await file.write(0, [b"NEW"], sync=True)

    assert {_after_power_cut(seed, work).content("a") for seed in _SEEDS} == {b"NEW"}


def test_a_kill_may_show_what_a_failed_sync_lost() -> None:
    seen = set()
    for seed in _SEEDS:
        disk = SimulatedDisk(random.Random(seed))
        _run(_fail_to_sync(disk))
        disk.kill()
        seen.add(disk.content("a"))
    assert seen == {b"new", b"old"}


def test_a_failed_sync_of_a_directory_is_made_good_by_the_next() -> None:
    async def work(disk: SimulatedDisk) -> None:
        await disk.create("a")
        disk.sync_error_chance = 1
        with pytest.raises(SyncError, match="error"):
            await disk.sync_directory("")
        disk.sync_error_chance = 0
        await disk.sync_directory("")

    assert _after_power_cut(1, work, survival_chance=0).paths() == ["a"]


def test_syncs_after_a_failed_one_are_counted() -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await _fail_to_sync(disk)
        before = disk.synced("a")
        assert (before.syncs, before.failures, before.syncs_after_failure) == (1, 1, 0)
        assert disk.syncs_after_failure == 0
        await file.sync()
        assert disk.synced("a").syncs_after_failure == 1
        await disk.sync_directory("")
        assert disk.syncs_after_failure == 2

    disk = SimulatedDisk(random.Random(1))
    _run(main(disk))
    disk.kill()
    assert (disk.synced("a").failures, disk.syncs_after_failure) == (0, 0)


# ---- failing writes, flipped bits


def test_a_failing_write_may_be_done_up_to_a_sector() -> None:
    async def main(disk: SimulatedDisk) -> int:
        file = await _durable(disk, "a", b"12345")
        disk.write_error_chance = 1
        with pytest.raises(OSError, match="No space"):
            await file.write(5, [b"x" * 3000])
        assert disk.content("a") == b"12345" + b"x" * (file.size() - 5)
        assert disk.faults == 1
        return file.size()

    sizes = {_run(main(SimulatedDisk(random.Random(seed)))) for seed in _SEEDS}
    assert {5, 3005} < sizes
    assert all(size in (5, 3005) or size % SECTOR_BYTES == 0 for size in sizes)


def test_the_error_of_a_failing_call_can_be_chosen() -> None:
    async def main(disk: SimulatedDisk) -> None:
        disk.write_error_chance = disk.sync_error_chance = 1
        disk.write_errno, disk.sync_errno = errno.EIO, errno.ENOSPC
        file = await disk.create("a")
        with pytest.raises(OSError, match="Input/output"):
            await file.write(0, [b"x"])
        with pytest.raises(SyncError, match="No space"):
            await file.sync(bulk=True)

    _run(main(SimulatedDisk(random.Random(1))))


@pytest.mark.parametrize("cut", [False, True])
def test_a_flipped_bit_stays_flipped(cut: bool) -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"\0\0")
        await file.write(1, [b"\1"])
        disk.flip_bit("a", position=1, bit=3)
        assert disk.content("a") == b"\0\x09"
        if not cut:
            await file.sync()

    for seed in _SEEDS:
        assert _after_power_cut(seed, work).content("a") in ((b"\0\x08", b"\0\x09") if cut else (b"\0\x09",))


def test_a_bit_that_is_not_there_cannot_be_flipped() -> None:
    disk = SimulatedDisk(random.Random(1))
    _run(_durable(disk, "a", b"xy"))
    with pytest.raises(AssertionError, match="no byte 2"):
        disk.flip_bit("a", position=2, bit=0)


def test_a_read_may_show_one_bit_wrong_once() -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", bytes(100))
        buffer = memoryview(bytearray(100))
        disk.read_flip_chance = 1
        await file.read(0, buffer)
        assert sum(byte.bit_count() for byte in buffer) == 1
        disk.read_flip_chance = 0
        await file.read(0, buffer)
        assert sum(buffer) == 0

    _run(main(SimulatedDisk(random.Random(1))))
