"""What the simulated disk loses and what it keeps: power cuts, kills, failing syncs and writes, flipped bits.

What must hold is tried over many seeds; what may happen must be seen to happen in some of them.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from tailrace.runtime import SyncError
from tailrace.testing.simulation import SECTOR_BYTES, Crash, SimulatedDisk, SimulatedFile, SimulatedLoop

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


def _block(letter: bytes, sectors: int) -> bytes:
    return letter * (SECTOR_BYTES * sectors)


# ---- power cuts: what must survive


def test_synced_bytes_under_a_synced_name_survive() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"x" * 1300)
        await file.write(1300, [b"y" * 700])

    for seed in _SEEDS:
        assert _after_power_cut(seed, work).content("a").startswith(b"x" * 1300)


def test_a_sector_is_old_or_new() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", _block(b"a", 4))
        await file.write(0, [_block(b"b", 4)])

    for seed in _SEEDS:
        content = _after_power_cut(seed, work).content("a")
        sectors = {content[at : at + SECTOR_BYTES] for at in range(0, len(content), SECTOR_BYTES)}
        assert sectors <= {_block(b"a", 1), _block(b"b", 1)}


def test_writes_to_one_file_leave_the_others_alone() -> None:
    async def work(disk: SimulatedDisk) -> None:
        await _durable(disk, "a", b"kept")
        file = await _durable(disk, "b", b"before")
        await file.write(0, [b"after!"])

    for seed in _SEEDS:
        assert _after_power_cut(seed, work).content("a") == b"kept"


# ---- power cuts: what may be lost


def test_any_subset_of_unsynced_sectors_survives() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", _block(b"a", 3))
        await file.write(0, [_block(b"b", 3)])

    seen = {bytes(_after_power_cut(seed, work).content("a")[::SECTOR_BYTES]) for seed in range(400)}
    assert seen == {bytes([x, y, z]) for x in b"ab" for y in b"ab" for z in b"ab"}


def test_any_version_of_an_unsynced_sector_survives() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"0")
        for letter in (b"1", b"2", b"3"):
            await file.write(0, [letter])

    assert {_after_power_cut(seed, work).content("a") for seed in _SEEDS} == {b"0", b"1", b"2", b"3"}


def test_an_unsynced_size_may_survive_without_its_bytes() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"")
        await file.write(0, [b"xyz"])

    assert {_after_power_cut(seed, work).content("a") for seed in _SEEDS} == {b"", b"\0\0\0", b"xyz"}


def test_an_unsynced_truncate_may_be_undone() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", _block(b"a", 2))
        await file.truncate(10)

    sizes = {len(_after_power_cut(seed, work).content("a")) for seed in _SEEDS}
    assert sizes == {10, 2 * SECTOR_BYTES}


def test_a_synced_truncate_stays() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", _block(b"a", 2))
        await file.truncate(10)
        await file.sync()

    assert {_after_power_cut(seed, work).content("a") for seed in _SEEDS} == {b"a" * 10}


def test_a_write_that_overtakes_a_sync_is_not_covered_by_it() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"0")
        await file.write(0, [b"1"])
        syncing = asyncio.get_running_loop().create_task(file.sync())
        await asyncio.sleep(0)
        await file.write(0, [b"2"])
        await syncing

    assert {_after_power_cut(seed, work).content("a") for seed in _SEEDS} == {b"1", b"2"}


def test_the_later_of_two_syncs_covers_what_the_earlier_one_still_writes() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"0")
        await file.write(0, [b"1"])
        syncing = asyncio.get_running_loop().create_task(file.sync())
        await asyncio.sleep(0)
        await file.sync()
        syncing.cancel()

    assert {_after_power_cut(seed, work).content("a") for seed in _SEEDS} == {b"1"}


# ---- names


def test_a_new_name_is_lost_without_a_sync_of_its_directory() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await disk.create("a")
        await file.write(0, [b"xyz"], sync=True)

    found = {tuple(_after_power_cut(seed, work).paths()) for seed in _SEEDS}
    assert found == {(), ("a",)}


def test_a_synced_name_does_not_keep_the_bytes() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await disk.create("a")
        await file.write(0, [b"xyz"])
        await disk.sync_directory("")

    assert {_after_power_cut(seed, work).content("a") for seed in _SEEDS} == {b"", b"\0\0\0", b"xyz"}


def test_any_subset_of_unsynced_names_survives() -> None:
    async def work(disk: SimulatedDisk) -> None:
        await _durable(disk, "a", b"a")
        await disk.create("b")
        await disk.remove("a")

    found = {tuple(_after_power_cut(seed, work).paths()) for seed in _SEEDS}
    assert found == {(), ("a",), ("b",), ("a", "b")}


def test_an_unsynced_rename_leaves_the_old_file_or_the_new_one() -> None:
    async def work(disk: SimulatedDisk) -> None:
        await _durable(disk, "a", b"old")
        await _durable(disk, "a.new", b"new")
        await disk.rename("a.new", "a")

    found = {
        (tuple(disk.paths()), disk.content("a")) for disk in (_after_power_cut(seed, work) for seed in _SEEDS)
    }
    assert found == {(("a", "a.new"), b"old"), (("a",), b"new")}


def test_a_rename_between_directories_may_leave_both_names_or_none() -> None:
    async def work(disk: SimulatedDisk) -> None:
        await disk.make_directory("d")
        await _durable(disk, "a", b"x")
        await disk.rename("a", "d/a")

    found = {tuple(_after_power_cut(seed, work).paths()) for seed in _SEEDS}
    assert found == {("a", "d/"), ("d/", "d/a"), ("a", "d/", "d/a"), ("d/",)}


def test_a_directory_that_is_lost_takes_its_synced_contents_along() -> None:
    async def work(disk: SimulatedDisk) -> None:
        await disk.make_directory("d")
        file = await disk.create("d/a")
        await file.write(0, [b"xyz"], sync=True)
        await disk.sync_directory("d")

    found = {tuple(_after_power_cut(seed, work).paths()) for seed in _SEEDS}
    assert found == {(), ("d/", "d/a")}


def test_a_name_made_while_a_directory_syncs_is_not_covered() -> None:
    async def work(disk: SimulatedDisk) -> None:
        await disk.create("a")
        syncing = asyncio.get_running_loop().create_task(disk.sync_directory(""))
        await asyncio.sleep(0)
        await disk.create("b")
        await syncing

    found = {tuple(_after_power_cut(seed, work).paths()) for seed in _SEEDS}
    assert found == {("a",), ("a", "b")}


def test_a_lost_removal_brings_the_file_back_whole() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"xyz")
        file.close()
        await disk.remove("a")

    disk = _after_power_cut(1, work, survival_chance=0)
    assert disk.content("a") == b"xyz"


# ---- kills


def test_a_kill_loses_nothing_that_was_written() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await disk.create("a")
        await file.write(0, [b"xyz"])

    for seed in _SEEDS:
        disk = SimulatedDisk(random.Random(seed))
        _run(work(disk))
        disk.kill()
        assert disk.content("a") == b"xyz"


def test_what_outlived_a_kill_is_still_lost_in_a_power_cut() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", b"old")
        await file.write(0, [b"new"])

    disk = SimulatedDisk(random.Random(1))
    _run(work(disk))
    disk.kill()
    disk.power_cut(survival_chance=0)
    assert disk.content("a") == b"old"


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


def test_writing_again_repairs_what_a_failed_sync_lost() -> None:
    async def work(disk: SimulatedDisk) -> None:
        file = await _fail_to_sync(disk)
        await file.write(0, [b"new"], sync=True)

    assert _after_power_cut(1, work, survival_chance=0).content("a") == b"new"


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


# ---- the end of a process


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
    async def work(disk: SimulatedDisk) -> None:
        file = await _durable(disk, "a", bytes(600))
        await disk.remove("a")
        await file.reserve(900)

    disk = SimulatedDisk(random.Random(1), capacity_bytes=1000)
    _run(work(disk))
    disk.power_cut(survival_chance=0)
    assert disk.free_bytes() == 400
