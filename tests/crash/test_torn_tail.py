"""What lies past the last whole round is a torn tail, and is gone; everything before it is there.

The end of the journal is overwritten, from every byte of its last three rounds on, with zeros and with
garbage, and each result is opened. A batch that was written by reference is proved by the journal: where its
segment is cut or overwritten, that is damage, which is reported and never cut away.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.model import StorageError
from tailrace.storage import LogConfig
from tailrace.testing.faults.image import (
    Contents,
    Image,
    ImageMaker,
    RoundPlace,
    open_directly,
    read_contents,
    still_directory,
    unreadable,
)

_SECTOR = 512
_PADDING_STEP = 24

Fill = Callable[[random.Random, bytes], bytes]


def zeros(rng: random.Random, old: bytes) -> bytes:
    return bytes(len(old))


def garbage(rng: random.Random, old: bytes) -> bytes:
    """No byte as it was."""
    return bytes(byte ^ rng.randint(1, 255) for byte in old)


async def make_inline_image(path: Path, rng: random.Random, *, applied: bool) -> Image:
    """Two partitions with a checkpoint, and above it small batches in rounds of one sector each."""
    maker = await ImageMaker.begin(
        path / "served",
        config=still_directory(),
        rng=rng,
        log_config=LogConfig(segment_bytes=2048, index_interval_bytes=512),
        partitions=2,
    )
    for number in range(24):
        await maker.append(number % 2, value_bytes=rng.randint(200, 350))
    await maker.checkpoint()
    for number in range(5):
        await maker.append(number % 2, value_bytes=rng.randint(1, 60))
    await maker.truncate(1, 13)
    await maker.append(1, value_bytes=20)
    await maker.append(0, value_bytes=20, epoch=1)
    await maker.append(1, value_bytes=20)
    if applied:
        await maker.apply()
    return await maker.take(path / "image")


def whole_rounds(image: Image, damaged: bytes, original: bytes) -> int:
    """How many rounds, from the first one on, still have all their bytes."""
    for count, place in enumerate(image.rounds):
        if damaged[place.begin : place.end] != original[place.begin : place.end]:
            return count
    return len(image.rounds)


def places_to_cut(last: list[RoundPlace]) -> list[int]:
    """Every byte of these rounds, and some of the padding behind each."""
    places: list[int] = []
    for place in last:
        sector_end = -(-place.end // _SECTOR) * _SECTOR
        places += range(place.begin, place.end)
        places += range(place.end, sector_end, _PADDING_STEP)
    return places


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fill", "applied"),
    [
        (zeros, True),
        (garbage, False),
        pytest.param(zeros, False, marks=pytest.mark.heavy),
        pytest.param(garbage, True, marks=pytest.mark.heavy),
    ],
)
def test_a_journal_torn_at_any_byte_of_three_rounds_keeps_the_whole_ones(
    fast_path: Path, seed: int, fill: Fill, applied: bool
) -> None:
    rng = random.Random(seed)

    async def scenario() -> None:
        image = await make_inline_image(fast_path, rng, applied=applied)
        last = image.rounds[-3:]
        assert len({place.path for place in last}) == 1
        journal = image.path / last[0].path
        original = journal.read_bytes()
        written = -(-last[-1].end // _SECTOR) * _SECTOR
        for place in places_to_cut(last):
            damaged = original[:place] + fill(rng, original[place:written]) + original[written:]
            copy = image.copy_to(fast_path / "copy")
            (copy / last[0].path).write_bytes(damaged)
            expected = image.contents[whole_rounds(image, damaged, original)]
            assert await read_contents(copy, image.config) == expected, f"torn at byte {place}"

    asyncio.run(scenario())


async def make_referenced_image(path: Path, rng: random.Random) -> Image:
    """One partition whose last three batches lie in the segment alone."""
    maker = await ImageMaker.begin(
        path / "served",
        config=still_directory(inline_bytes_max=64),
        rng=rng,
        log_config=LogConfig(segment_bytes=1 << 20, index_interval_bytes=256),
        partitions=1,
    )
    await maker.apply()  # by reference only where nothing but appends is unapplied
    for _ in range(4):
        await maker.append(0, value_bytes=rng.randint(20, 60))
    await maker.checkpoint()
    for _ in range(4):
        await maker.append(0, value_bytes=rng.randint(20, 60))
    return await maker.take(path / "image")


async def check_reported(image: Image, copy: Path, segment: str, *, cut_at: int, starts: list[int]) -> None:
    """The batches before the cut are served, those behind it are reported, and the file is left alone."""
    before = (copy / segment).read_bytes()
    batches = image.final[0].batches
    whole = sum(1 for end in starts[1:] if end <= cut_at)
    storage = await open_directly(copy, image.config)
    (log,) = storage.logs()
    assert log.damaged == batches[whole].base_offset, f"cut at byte {cut_at}"
    assert log.end_offset == image.final[0].end
    assert await unreadable(log, batches) == list(batches[whole:]), f"cut at byte {cut_at}"
    await storage.close()
    assert (copy / segment).read_bytes() == before, f"the segment was changed after a cut at byte {cut_at}"


def first_difference(original: bytes, damaged: bytes) -> int:
    """The first byte that is another one, or is missing."""
    return next(at for at in range(len(original)) if original[at : at + 1] != damaged[at : at + 1])


def batch_starts(data: bytes) -> list[int]:
    """Where the batches of a segment begin, and where the last one ends."""
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big"))
    return starts


@pytest.mark.slow
@pytest.mark.parametrize("fill", [None, garbage, pytest.param(zeros, marks=pytest.mark.heavy)])
def test_referenced_batches_cut_at_any_byte_are_reported(
    fast_path: Path, seed: int, fill: Fill | None
) -> None:
    rng = random.Random(seed)

    async def scenario() -> None:
        image = await make_referenced_image(fast_path, rng)
        (segment,) = image.files(".log")
        data = (image.path / segment).read_bytes()
        starts = batch_starts(data)
        for place in range(starts[-4], len(data)):
            damaged = data[:place] + (fill(rng, data[place:]) if fill else b"")
            if damaged == data:  # the last bytes are zeros themselves
                continue
            copy = image.copy_to(fast_path / "copy")
            (copy / segment).write_bytes(damaged)
            await check_reported(image, copy, segment, cut_at=first_difference(data, damaged), starts=starts)

    asyncio.run(scenario())


@pytest.fixture
def image(fast_path: Path) -> Image:
    return asyncio.run(make_inline_image(fast_path, random.Random(4), applied=True))


def opens_as(image: Image, path: Path) -> Contents:
    return asyncio.run(read_contents(path, image.config))


TAILS = [
    pytest.param(bytes(1), id="a zero"),
    pytest.param(bytes(5000), id="zeros"),
    pytest.param(b"\xff", id="a byte"),
    pytest.param(random.Random(1).randbytes(37), id="garbage"),
    pytest.param(random.Random(2).randbytes(5000), id="much garbage"),
]


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_what_follows_the_last_batch_of_any_file_is_ignored(
    fast_path: Path, image: Image, suffix: str, tail: bytes
) -> None:
    for file in image.files(suffix):
        copy = image.copy_to(fast_path / "copy")
        with (copy / file).open("ab") as target:
            target.write(tail)
        assert opens_as(image, copy) == image.final, file


@pytest.mark.parametrize("tail", TAILS)
def test_what_follows_the_last_round_is_ignored(fast_path: Path, image: Image, tail: bytes) -> None:
    last = image.rounds[-1]
    for place in (-(-last.end // _SECTOR) * _SECTOR, last.end):
        copy = image.copy_to(fast_path / "copy")
        with (copy / last.path).open("r+b") as target:
            target.seek(place)
            target.write(tail)
        assert opens_as(image, copy) == image.final, f"behind byte {place}"


def test_an_earlier_round_behind_the_last_one_is_ignored(fast_path: Path, image: Image) -> None:
    copy = image.copy_to(fast_path / "copy")
    earlier, last = image.rounds[0], image.rounds[-1]
    with (copy / last.path).open("r+b") as target:
        target.seek(earlier.begin)
        again = target.read(earlier.end - earlier.begin)
        target.seek(-(-last.end // _SECTOR) * _SECTOR)
        target.write(again)
    assert opens_as(image, copy) == image.final


@pytest.mark.parametrize("change_bytes", [-1, -512, -40_000, -65_536, 1, 512])
def test_a_journal_file_of_another_size_is_damage(fast_path: Path, image: Image, change_bytes: int) -> None:
    copy = image.copy_to(fast_path / "copy")
    file = copy / image.rounds[-1].path
    os.truncate(file, file.stat().st_size + change_bytes)
    before = file.read_bytes()
    with pytest.raises(StorageError, match="journal"):
        opens_as(image, copy)
    assert file.read_bytes() == before


@pytest.mark.parametrize("change_bytes", [-1, 1])
def test_a_checkpoint_of_another_size_is_damage(fast_path: Path, image: Image, change_bytes: int) -> None:
    copy = image.copy_to(fast_path / "copy")
    for file in (copy / "CHECKPOINT", copy / "CHECKPOINT.copy"):
        os.truncate(file, file.stat().st_size + change_bytes)
    with pytest.raises(StorageError, match="CHECKPOINT"):
        opens_as(image, copy)


def test_a_missing_journal_file_is_damage(fast_path: Path, image: Image) -> None:
    copy = image.copy_to(fast_path / "copy")
    (copy / image.rounds[-1].path).unlink()
    with pytest.raises(StorageError, match="journal"):
        opens_as(image, copy)


def test_a_missing_checkpoint_is_damage(fast_path: Path, image: Image) -> None:
    copy = image.copy_to(fast_path / "copy")
    (copy / "CHECKPOINT").unlink()
    (copy / "CHECKPOINT.copy").unlink()
    with pytest.raises(StorageError, match="tailrace storage rebuild-checkpoint"):
        opens_as(image, copy)
