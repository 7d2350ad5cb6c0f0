"""The simulated disk as a disk: the port's calls, POSIX's rules for names and files, and space; no faults."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tailrace.runtime import Disk, File
from tailrace.testing.simulation import SimulatedDisk, SimulatedLoop

_T = TypeVar("_T")


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    with SimulatedLoop() as loop:
        return loop.run(work)


def _disk(seed: int = 1, *, capacity_bytes: int | None = None) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed), capacity_bytes=capacity_bytes)


async def _put(disk: Disk, path: str, data: bytes) -> File:
    file = await disk.create(path)
    await file.write(0, [data])
    return file


async def _read(file: File, position: int, size: int) -> bytes:
    buffer = bytearray(size)
    count = await file.read(position, memoryview(buffer))
    return bytes(buffer[:count])


def test_what_was_written_is_read() -> None:
    async def main(disk: Disk) -> None:
        file = await disk.create("a")
        await file.write(3, [b"abc", bytearray(b"de"), memoryview(b"f")])
        assert file.size() == 9
        assert await _read(file, 0, 9) == b"\0\0\0abcdef"

    _run(main(_disk()))


def test_a_read_past_the_end_is_short() -> None:
    async def main(disk: Disk) -> None:
        file = await _put(disk, "a", b"abc")
        assert await _read(file, 1, 10) == b"bc"
        assert await _read(file, 3, 10) == b""
        assert await _read(file, 99, 10) == b""

    _run(main(_disk()))


def test_an_immediate_read_is_whole_or_would_wait() -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await _put(disk, "a", b"abcdef")
        buffer = bytearray(3)
        answers = [file.read_nowait(2, memoryview(buffer)) for _ in range(50)]
        assert set(answers) == {3, None}
        assert buffer == b"cde"
        disk.cold_chance = 0
        assert file.read_nowait(4, memoryview(buffer)) is None  # the end cuts it short
        assert file.read_nowait(6, memoryview(buffer)) == 0

    _run(main(_disk()))


def test_creating_an_existing_file_empties_it() -> None:
    async def main(disk: Disk) -> None:
        before = await _put(disk, "a", b"abc")
        file = await disk.create("a")
        assert file.size() == 0
        assert before.size() == 0

    _run(main(_disk()))


def test_truncate_cuts_and_extends_with_zeros() -> None:
    async def main(disk: Disk) -> None:
        file = await _put(disk, "a", b"abc")
        await file.truncate(1)
        await file.truncate(3)
        assert await _read(file, 0, 9) == b"a\0\0"

    _run(main(_disk()))


def test_names_are_listed_sorted_and_directories_end_with_a_slash() -> None:
    async def main(disk: Disk) -> None:
        await disk.make_directory("d")
        await disk.make_directory("d/e")
        await _put(disk, "d/e/f", b"x")
        await _put(disk, "b", b"x")
        assert await disk.list("") == ["b", "d/"]
        assert await disk.list("d") == ["e/"]
        assert await disk.list("d/e/") == ["f"]

    disk = _disk()
    _run(main(disk))
    assert disk.paths() == ["b", "d/", "d/e/", "d/e/f"]


def test_a_removed_file_stays_usable_while_it_is_open() -> None:
    async def main(disk: Disk) -> None:
        file = await _put(disk, "a", b"old")
        await disk.remove("a")
        await _put(disk, "a", b"new")
        await file.write(3, [b"er"])
        await file.sync()
        assert await _read(file, 0, 9) == b"older"
        assert await _read(await disk.open("a"), 0, 9) == b"new"

    _run(main(_disk()))


def test_a_renamed_file_stays_usable_and_replaces_the_other() -> None:
    async def main(disk: SimulatedDisk) -> None:
        replaced = await _put(disk, "b", b"replaced")
        file = await _put(disk, "a", b"kept")
        await disk.rename("a", "b")
        await file.write(4, [b"!"])
        assert disk.paths() == ["b"]
        assert disk.content("b") == b"kept!"
        assert await _read(replaced, 0, 9) == b"replaced"

    _run(main(_disk()))


def test_a_renamed_directory_takes_its_contents_along() -> None:
    async def main(disk: SimulatedDisk) -> None:
        await disk.make_directory("d")
        await _put(disk, "d/a", b"x")
        await disk.rename("d", "e")
        await disk.rename("e/a", "b")
        await disk.rename("b", "b")
        assert disk.paths() == ["b", "e/"]

    _run(main(_disk()))


def test_two_handles_see_one_file() -> None:
    async def main(disk: Disk) -> None:
        one = await _put(disk, "a", b"abc")
        other = await disk.open("a")
        await one.write(1, [b"X"])
        one.close()
        assert await _read(other, 0, 3) == b"aXc"

    _run(main(_disk()))


async def _make(disk: Disk) -> None:
    await disk.make_directory("d")
    await _put(disk, "d/a", b"x")
    await _put(disk, "f", b"x")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda disk: disk.open("no"), FileNotFoundError),
        (lambda disk: disk.open("no/a"), FileNotFoundError),
        (lambda disk: disk.open("f/a"), NotADirectoryError),
        (lambda disk: disk.open("d"), IsADirectoryError),
        (lambda disk: disk.create("no/a"), FileNotFoundError),
        (lambda disk: disk.create("d"), IsADirectoryError),
        (lambda disk: disk.list("no"), FileNotFoundError),
        (lambda disk: disk.list("f"), NotADirectoryError),
        (lambda disk: disk.make_directory("d"), FileExistsError),
        (lambda disk: disk.make_directory("f"), FileExistsError),
        (lambda disk: disk.remove("no"), FileNotFoundError),
        (lambda disk: disk.remove("d"), OSError),
        (lambda disk: disk.rename("no", "a"), FileNotFoundError),
        (lambda disk: disk.rename("f", "no/f"), FileNotFoundError),
        (lambda disk: disk.rename("f", "d"), IsADirectoryError),
        (lambda disk: disk.rename("d", "f"), NotADirectoryError),
        (lambda disk: disk.rename("d", "d/e"), OSError),
        (lambda disk: disk.sync_directory("no"), FileNotFoundError),
        (lambda disk: disk.sync_directory("f"), NotADirectoryError),
        (lambda disk: disk.open("../secret"), AssertionError),
        (lambda disk: disk.open("/f"), AssertionError),
    ],
)
def test_a_wrong_call_is_refused_and_changes_nothing(call: Any, error: type[Exception]) -> None:
    async def main(disk: SimulatedDisk) -> None:
        await _make(disk)
        with pytest.raises(error):
            await call(disk)
        assert disk.paths() == ["d/", "d/a", "f"]

    for seed in range(5):
        _run(main(_disk(seed)))


def test_a_directory_that_is_not_empty_is_neither_removed_nor_replaced() -> None:
    async def main(disk: SimulatedDisk) -> None:
        await _make(disk)
        await disk.make_directory("e")
        for call in (disk.remove("d"), disk.rename("e", "d")):
            with pytest.raises(OSError, match="not empty") as caught:
                await call
            assert caught.value.errno == errno.ENOTEMPTY
        await disk.remove("d/a")
        await disk.rename("e", "d")
        await disk.remove("d")
        assert disk.paths() == ["f"]

    _run(main(_disk()))


# ---- closing


def test_closing_twice_is_harmless() -> None:
    async def main(disk: Disk) -> None:
        file = await _put(disk, "a", b"abc")
        file.close()
        file.close()

    _run(main(_disk()))


@pytest.mark.parametrize(
    "call",
    [
        lambda file: file.read(0, memoryview(bytearray(1))),
        lambda file: file.write(0, [b"x"]),
        lambda file: file.sync(),
        lambda file: file.truncate(0),
        lambda file: file.reserve(9),
    ],
)
def test_using_a_closed_file_is_a_bug(call: Any) -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await _put(disk, "a", b"abc")
        file.close()
        with pytest.raises(AssertionError, match="closed"):
            await call(file)
        with pytest.raises(AssertionError, match="closed"):
            file.size()
        with pytest.raises(AssertionError, match="closed"):
            file.read_nowait(0, memoryview(bytearray(1)))
        assert disk.content("a") == b"abc"

    _run(main(_disk()))


def test_closing_under_a_call_in_flight_is_a_bug() -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await _put(disk, "a", b"abc")
        writing = asyncio.get_running_loop().create_task(file.write(0, [b"x"]))
        await asyncio.sleep(0)
        writing.cancel()
        if disk.content("a") == b"abc":  # it did not happen at once
            with pytest.raises(AssertionError, match="in flight"):
                file.close()
            found.append(disk.rng)
        await asyncio.sleep(1)
        file.close()

    found: list[random.Random] = []
    for seed in range(20):
        _run(main(_disk(seed)))
    assert found


# ---- space


def test_space_is_taken_by_writing_and_given_back_by_cutting_and_removing() -> None:
    async def main(disk: Disk) -> None:
        file = await _put(disk, "a", bytes(600))
        assert disk.free_bytes() == 400
        await file.write(0, [bytes(300)])
        assert disk.free_bytes() == 400
        await file.truncate(100)
        assert disk.free_bytes() == 900
        file.close()
        await disk.remove("a")
        assert disk.free_bytes() == 1000

    _run(main(_disk(capacity_bytes=1000)))


def test_a_removed_file_takes_space_until_it_is_closed() -> None:
    async def main(disk: Disk) -> None:
        file = await _put(disk, "a", bytes(600))
        await disk.remove("a")
        assert disk.free_bytes() == 400
        file.close()
        assert disk.free_bytes() == 1000

    _run(main(_disk(capacity_bytes=1000)))


def test_a_file_that_is_let_go_is_closed() -> None:
    async def main(disk: Disk) -> None:
        file = await _put(disk, "a", bytes(600))
        await disk.remove("a")
        del file
        assert disk.free_bytes() == 1000

    _run(main(_disk(capacity_bytes=1000)))


def test_reserved_space_is_there_for_the_write() -> None:
    async def main(disk: Disk) -> None:
        file = await disk.create("a")
        await file.reserve(800)
        assert (file.size(), disk.free_bytes()) == (0, 200)
        other = await disk.create("b")
        with pytest.raises(OSError, match="No space"):
            await other.reserve(201)
        await other.write(0, [bytes(200)])
        await file.write(0, [bytes(800)])
        assert disk.free_bytes() == 0
        await file.truncate(500)
        assert disk.free_bytes() == 300

    _run(main(_disk(capacity_bytes=1000)))


def test_a_full_disk_takes_part_of_a_write_at_most() -> None:
    async def main(disk: SimulatedDisk) -> int:
        file = await _put(disk, "a", bytes(600))
        with pytest.raises(OSError, match="No space") as caught:
            await file.write(600, [b"x" * 5000])
        assert caught.value.errno == errno.ENOSPC
        assert file.size() <= 3000
        assert disk.content("a") == bytes(600) + b"x" * (file.size() - 600)
        return file.size()

    assert len({_run(main(_disk(seed, capacity_bytes=3000))) for seed in range(30)}) > 3


def test_without_a_capacity_there_is_plenty() -> None:
    assert _disk().free_bytes() > 1 << 30
