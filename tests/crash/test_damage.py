"""Files that are not as they were written: no wrong byte is served, and no loss is hidden.

One bit is flipped at 300 places of every kind of file, each in a copy of one directory of several segments
with a checkpoint and rounds above it; segments are shortened and removed. Everything is read twice: after
opening, and after closing and opening once more, so that no damage is made good by writing a new checksum
over it.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailrace.model import LogDamaged, StorageError
from tailrace.storage.segment import SegmentLog
from tailrace.storage.segment.checkpoint import read_checkpoint
from tailrace.storage.segment.names import numbered, partition_directory
from tailrace.testing.faults.image import (
    Contents,
    Image,
    make_mixed_image,
    open_directly,
    unreadable,
)
from tailrace.testing.faults.ledger import read_batches, read_state

_FLIPS = 300
_SEED = 300
_PARTITIONS = 2

FATAL = {".journal"}
"""Damage here may keep the directory from opening."""
REBUILT = {".index", ".timeindex", ".snapshot"}
"""Damage here must not be noticed at all."""
KEPT_TWICE = {"CHECKPOINT", "CHECKPOINT.copy"}
"""Nor damage to either of these."""
KINDS = (".log", ".index", ".timeindex", ".snapshot", ".journal", "CHECKPOINT", "CHECKPOINT.copy")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return asyncio.run(
        make_mixed_image(tmp_path_factory.mktemp("damage"), rng=random.Random(_SEED), partitions=_PARTITIONS)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One bit of one file."""

    kind: str
    path: str
    byte: int
    bit: int

    def apply(self, root: Path) -> None:
        with (root / self.path).open("r+b") as file:
            file.seek(self.byte)
            (old,) = file.read(1)
            file.seek(self.byte)
            file.write(bytes([old ^ 1 << self.bit]))

    def in_last_round(self, image: Image) -> bool:
        last = image.rounds[-1]
        return self.path == last.path and last.begin <= self.byte < last.end


def draw_flip(image: Image, rng: random.Random) -> Flip:
    """Any bit of any file, kinds evenly; in the journal mostly where something is written."""
    kind = rng.choice(KINDS)
    path = rng.choice([each for each in image.files(kind) if (image.path / each).stat().st_size])
    size = (image.path / path).stat().st_size
    if kind == ".journal" and rng.random() < 0.9:
        size = max([each.end for each in image.rounds if each.path == path], default=size)
    return Flip(kind=kind, path=path, byte=rng.randrange(size), bit=rng.randrange(8))


async def check_served(copy: Path, image: Image, allowed: list[Contents]) -> bool:
    """Open and read everything; whether all of it is there, as one of `allowed`, and not reported."""
    storage = await open_directly(copy, image.config)
    try:
        logs = {log.partition_id.partition: log for log in storage.logs()}
        ends = {partition: log.end_offset for partition, log in logs.items()}
        contents = next(
            (each for each in allowed if {key: state.end for key, state in each.items()} == ends), None
        )
        assert contents is not None, f"the logs end at {ends}: something was cut away"
        return all([await _check_log(logs[key], contents, key) for key in contents])
    finally:
        await storage.close()


async def _check_log(log: SegmentLog, contents: Contents, partition: int) -> bool:
    expected = contents[partition]
    assert log.start_offset == expected.start
    try:
        found = await read_state(log)
    except LogDamaged:
        assert await unreadable(log, expected.batches), "all of it can be read, but not in one go"
        return False
    assert found == expected
    await _check_times(log)
    return log.damaged == -1


async def _check_times(log: SegmentLog) -> None:
    """Looking up the time of a batch finds the first record that is not older."""
    batches = await read_batches(log)
    records = [record for batch in batches for record in batch.records() if record.offset >= log.start_offset]
    for batch in batches[::7]:
        wanted = batch.max_timestamp
        first = next((each.offset, each.timestamp) for each in records if each.timestamp >= wanted)
        assert await log.find_timestamp(wanted, up_to=log.durable_offset) == first
    assert (
        await log.find_timestamp(max(batch.max_timestamp for batch in batches) + 1, up_to=log.durable_offset)
        is None
    )


@pytest.mark.slow
def test_a_flipped_bit_is_never_served_and_never_hidden(image: Image, fast_path: Path) -> None:
    rng = random.Random(_SEED)

    async def scenario() -> dict[str, list[int]]:
        tally = {kind: [0, 0, 0] for kind in KINDS}
        for _ in range(_FLIPS):
            flip = draw_flip(image, rng)
            outcome = await survive(flip, image, fast_path / "copy")
            tally[flip.kind][outcome] += 1
        return tally

    tally = asyncio.run(scenario())
    print(
        {
            kind: dict(zip(("sound", "reported", "closed"), counts, strict=True))
            for kind, counts in tally.items()
        }
    )
    assert tally[".log"][1] > 10, "flips in segments were reported"


async def survive(flip: Flip, image: Image, copy: Path) -> int:
    """0: nothing is missing; 1: reading reports the loss; 2: the directory says why it does not open."""
    flip.apply(image.copy_to(copy))
    allowed = [image.final]
    if flip.in_last_round(image):
        allowed.append(image.contents[-2])
    try:
        sound = await check_served(copy, image, allowed)
        again = await check_served(copy, image, allowed)
    except StorageError as error:
        error.add_note(f"after {flip}")
        if flip.kind not in FATAL:
            raise
        return 2
    except AssertionError as error:
        error.add_note(f"after {flip}")
        raise
    assert sound or not again, f"{flip} was reported, and not any more after opening again"
    assert sound or flip.kind not in REBUILT | KEPT_TWICE, (
        f"{flip} is in a file that can be made again, and was reported"
    )
    return 0 if sound else 1


def cut_places(image: Image, path: str) -> list[int]:
    """Where the batches of a segment begin, but for the first."""
    data, place, places = (image.path / path).read_bytes(), 0, []
    while place < len(data):
        place += 12 + int.from_bytes(data[place + 8 : place + 12], "big")
        places.append(place)
    return places[:-1]


def sealed_segments(image: Image) -> list[str]:
    """All but the newest of each partition, and only what lies above the start."""
    found = []
    for partition in range(_PARTITIONS):
        files = [path for path in image.files(".log") if path.split("-")[1] == str(partition)]
        found += files[:-1]
    return found


def test_a_segment_cut_between_two_batches_is_reported(image: Image, fast_path: Path) -> None:
    for path in sealed_segments(image):
        for place in cut_places(image, path):
            copy = image.copy_to(fast_path / "copy")
            with (copy / path).open("r+b") as file:
                file.truncate(place)
            sound = asyncio.run(check_served(copy, image, [image.final]))
            assert not sound, f"{path} was cut at byte {place}, and nothing is said of it"


def test_a_missing_segment_is_reported(image: Image, fast_path: Path) -> None:
    for path in sealed_segments(image):
        copy = image.copy_to(fast_path / "copy")
        (copy / path).unlink()
        sound = asyncio.run(check_served(copy, image, [image.final]))
        assert not sound, f"{path} was removed, and nothing is said of it"


@pytest.mark.parametrize("suffix", sorted(REBUILT))
def test_missing_files_that_can_be_made_again_are_not_missed(
    image: Image, fast_path: Path, suffix: str
) -> None:
    copy = image.copy_to(fast_path / "copy")
    for path in image.files(suffix):
        (copy / path).unlink()
    assert asyncio.run(check_served(copy, image, [image.final]))


def test_appends_to_a_damaged_log_are_refused_and_the_others_go_on(image: Image, fast_path: Path) -> None:
    async def scenario() -> None:
        copy = image.copy_to(fast_path / "copy")
        checkpoint = read_checkpoint(memoryview((copy / "CHECKPOINT").read_bytes()))
        assert checkpoint is not None
        row = next(row for row in checkpoint.rows if row.partition_id.partition == 0)
        newest = copy / partition_directory(row.partition_id, row.life) / numbered(row.segment, "log")
        newest.write_bytes(bytes(newest.stat().st_size))
        storage = await open_directly(copy, image.config)
        damaged, sound = sorted(storage.logs(), key=lambda log: log.partition_id.partition)
        assert damaged.damaged != -1
        assert sound.damaged == -1
        assert not damaged.accepts_changes
        assert sound.accepts_changes
        with pytest.raises(LogDamaged):
            await damaged.truncate(damaged.start_offset)
        await storage.close()

    asyncio.run(scenario())
