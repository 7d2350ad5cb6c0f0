"""What the simulated disk keeps and what it may lose in a power cut or a kill.

What must hold is tried over many seeds; what may happen must be seen to happen in some of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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


def test_one_file_may_survive_whole_beside_one_that_is_lost_whole() -> None:
    async def work(disk: SimulatedDisk) -> None:
        for path in ("a", "b"):
            file = await _durable(disk, path, _block(b"0", 20))
            await file.write(0, [_block(b"1", 20)])

    disks = [_after_power_cut(seed, work) for seed in _SEEDS]
    found = {(disk.content("a"), disk.content("b")) for disk in disks}
    assert (_block(b"1", 20), _block(b"0", 20)) in found


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

    assert {_after_power_cut(seed, work, survival_chance=0).content("a") for seed in _SEEDS} == {b"1"}
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

    for seed in _SEEDS:
        assert _after_power_cut(seed, work, survival_chance=0).paths() == ["a"]
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
