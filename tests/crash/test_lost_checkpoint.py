"""CHECKPOINT damaged or gone: its copy is used; without one a start refuses, and a rebuild brings all back.

Every byte of the file is flipped, in copies of one directory with several segments, a truncation and a trim,
a checkpoint, and rounds of both kinds above it. The crash histories do the same to random directories, and
interrupt the rebuild.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.model import StorageError
from tailrace.records import crc32c
from tailrace.runtime import DirectoryLock
from tailrace.storage.segment.checkpoint import read_checkpoint
from tailrace.storage.segment.journal import (
    KEPT_TWICE,
    ROUND_HEADER_BYTES,
)
from tailrace.storage.segment.names import numbered, partition_directory
from tailrace.storage.segment.rebuild import RebuildReport, bytes_to_survey, rebuild_directory
from tailrace.storage.segment.survey import Surveyor
from tailrace.testing.crashes import Options, play
from tailrace.testing.faults.disk import DirectDisk
from tailrace.testing.faults.image import Image, make_mixed_image, read_contents

FILE, COPY = "CHECKPOINT", "CHECKPOINT.copy"
_HISTORIES = 60
_ONCE_FAILED = (2411, 20640, 31691, 31954, 40124, 60240)
"""Seeds of histories that found a fault, in a rebuild or in the judgement of one."""
_REBUILT_EVERY = 9


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return asyncio.run(make_mixed_image(tmp_path_factory.mktemp("lost"), rng=random.Random(13), partitions=3))


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1 << place % 8
    file.write_bytes(data)


def rebuild(path: Path, image: Image, *, dry_run: bool = False) -> RebuildReport:
    return asyncio.run(rebuild_directory(path, dry_run=dry_run, advance=lambda _: None, config=image.config))


def digest(path: Path) -> dict[str, bytes]:
    """What every file holds, but for the name of the process that looked last."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name != "LOCK"]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).digest() for file in files}


def is_served(path: Path, image: Image) -> None:
    """Everything acknowledged is there, after this start and after another one."""
    for _ in range(2):
        assert asyncio.run(read_contents(path, image.config)) == image.final


@pytest.mark.parametrize("damaged", [FILE, COPY])
def test_either_file_is_enough_whichever_byte_of_the_other_is_wrong(
    image: Image, fast_path: Path, damaged: str
) -> None:
    for place in range((image.path / damaged).stat().st_size):
        copy = image.copy_to(fast_path / "copy")
        flip(copy / damaged, place)
        assert asyncio.run(read_contents(copy, image.config)) == image.final, f"byte {place}"
        assert (copy / FILE).read_bytes() == (copy / COPY).read_bytes(), "both are written anew"


@pytest.mark.parametrize("missing", [FILE, COPY])
def test_either_file_is_enough_if_the_other_is_missing(image: Image, fast_path: Path, missing: str) -> None:
    copy = image.copy_to(fast_path / "copy")
    (copy / missing).unlink()
    is_served(copy, image)


def test_without_a_readable_checkpoint_a_start_refuses_and_a_rebuild_brings_everything_back(
    image: Image, fast_path: Path
) -> None:
    for place in range((image.path / FILE).stat().st_size):
        copy = image.copy_to(fast_path / "copy")
        flip(copy / FILE, place)
        flip(copy / COPY, place)
        before = digest(copy)
        with pytest.raises(StorageError, match="tailrace storage rebuild-checkpoint DIR"):
            asyncio.run(read_contents(copy, image.config))
        assert digest(copy) == before, "a start that refuses changes nothing"
        if place % _REBUILT_EVERY:
            continue  # a rebuild does not look at the file, so a few are enough
        rebuild(copy, image)
        assert asyncio.run(read_contents(copy, image.config)) == image.final, f"byte {place}"
        kept = {digest(copy)[f"CHECKPOINT.damaged-{number}"] for number in (1, 2)}
        assert kept == {before[FILE], before[COPY]}


def test_a_rebuild_without_any_checkpoint_file(image: Image, fast_path: Path) -> None:
    copy = image.copy_to(fast_path / "copy")
    (copy / FILE).unlink()
    (copy / COPY).unlink()
    rebuild(copy, image)
    is_served(copy, image)


def test_a_dry_run_tells_the_same_and_writes_nothing(image: Image, fast_path: Path) -> None:
    copy = image.copy_to(fast_path / "copy")
    flip(copy / FILE, 20)
    flip(copy / COPY, 20)
    before = digest(copy)
    planned = rebuild(copy, image, dry_run=True)
    assert digest(copy) == before
    done = rebuild(copy, image)
    assert planned.partitions == done.partitions
    ends = {int(each.path.split("-")[1]): (each.start, each.end) for each in done.partitions}
    assert ends == {key: (state.start, state.end) for key, state in image.final.items()}
    assert done.kept == ("CHECKPOINT.damaged-1", "CHECKPOINT.damaged-2")


def test_a_whole_checkpoint_is_not_rebuilt(image: Image, fast_path: Path) -> None:
    copy = image.copy_to(fast_path / "copy")
    before = digest(copy)
    with pytest.raises(StorageError, match="CHECKPOINT is whole"):
        rebuild(copy, image)
    flip(copy / FILE, 20)
    with pytest.raises(StorageError, match=r"CHECKPOINT\.copy is whole"):
        rebuild(copy, image)
    flip(copy / FILE, 20)
    assert digest(copy) == before


def test_a_rebuild_refuses_while_a_broker_holds_the_lock(image: Image, fast_path: Path) -> None:
    copy = image.copy_to(fast_path / "copy")
    flip(copy / FILE, 20)
    flip(copy / COPY, 20)
    lock = DirectoryLock(str(copy))
    before = digest(copy)
    with pytest.raises(StorageError, match="in use by pid"):
        rebuild(copy, image)
    assert digest(copy) == before
    lock.release()
    rebuild(copy, image)


def test_bytes_of_a_write_that_was_torn_are_kept_elsewhere(image: Image, fast_path: Path) -> None:
    """Partition 2 has no record, so no entry of the journal says where its segment ends."""
    copy = image.copy_to(fast_path / "copy")
    (copy / FILE).unlink()
    (copy / COPY).unlink()
    (directory,) = [path for path in copy.glob("*-2-*") if path.is_dir()]
    (directory / f"{0:020d}.log").write_bytes(b"half a batch")
    report = rebuild(copy, image)
    assert [each.torn_bytes for each in report.partitions] == [0, 0, 12]
    assert (copy / report.kept[0]).read_bytes() == b"half a batch"
    is_served(copy, image)


@pytest.mark.parametrize("proof", ["snapshot", "batches"])
def test_damage_in_a_newest_segment_is_quarantined_and_not_cut(
    image: Image, fast_path: Path, proof: str
) -> None:
    """That the log goes on behind the damage is told by a snapshot, or by whole batches there."""
    copy = without_journal(image, fast_path / "copy")
    (directory,) = [path for path in copy.glob("*-0-*") if path.is_dir()]
    if proof == "batches":
        for file in directory.glob("*.snapshot"):
            file.unlink()
    newest = max(directory.glob("*.log"))
    flip(newest, 30)
    before = newest.read_bytes()
    report = rebuild(copy, image)
    assert report.partitions[0].quarantined_from == int(newest.stem)
    assert newest.read_bytes() == before


def without_journal(image: Image, path: Path) -> Path:
    """A copy whose segments hold everything, without a checkpoint, as if its rounds were long gone."""
    copy = image.copy_to(path)
    asyncio.run(read_contents(copy, image.config))
    (copy / FILE).unlink()
    (copy / COPY).unlink()
    for file in (copy / "journal").iterdir():
        data = bytearray(file.read_bytes())
        data[512:] = bytes(len(data) - 512)
        file.write_bytes(data)
    return copy


def test_a_partition_whose_files_and_journal_disagree_is_refused(image: Image, fast_path: Path) -> None:
    """Its batches in the journal would be written behind other bytes than they followed."""
    copy = image.copy_to(fast_path / "copy")
    rows = read_checkpoint(memoryview((copy / FILE).read_bytes()))
    assert rows is not None
    row = next(row for row in rows.rows if row.partition_id.partition == 1 and row.length)
    (copy / FILE).unlink()
    (copy / COPY).unlink()
    assert len({each.path for each in image.rounds}) == 1, "another file is one made ahead, without rounds"
    image.forget_rounds(copy, before=image.rounds[0])  # the run begins at the checkpoint
    newest = copy / partition_directory(row.partition_id, row.life) / numbered(row.segment, "log")
    flip(newest, 30)
    before = digest(copy)
    with pytest.raises(StorageError, match="and the journal disagree"):
        rebuild(copy, image)
    assert digest(copy) == before


@pytest.mark.parametrize("damaged", [False, True])
def test_a_sealed_index_counts_only_beside_the_bytes_it_was_made_of(
    image: Image, fast_path: Path, damaged: bool
) -> None:
    """After a truncation a sealed index may stand beside other bytes, until a checkpoint replaces it."""
    copy = without_journal(image, fast_path / "copy")
    (directory,) = [path for path in copy.glob("*-0-*") if path.is_dir()]
    segment = sorted(directory.glob("*.log"))[-2]
    if damaged:
        flip(segment, segment.stat().st_size - 1)
    surveyor = Surveyor(DirectDisk(str(copy)), lambda _: None)
    index = asyncio.run(surveyor.sealed_index(directory.name, int(segment.stem)))
    assert (index is None) == damaged


def test_a_copy_that_another_version_left_behind_is_not_believed(image: Image, fast_path: Path) -> None:
    """A build that keeps no copy may have used the journal again, or compacted, since it was written."""
    copy = image.copy_to(fast_path / "copy")
    flip(copy / FILE, 20)
    place = image.rounds[0]
    data = bytearray((copy / place.path).read_bytes())
    assert data[place.begin + ROUND_HEADER_BYTES - 4] == KEPT_TWICE
    data[place.begin + ROUND_HEADER_BYTES - 4] = 0
    _seal(data, place.begin, place.end)
    (copy / place.path).write_bytes(data)
    before = digest(copy)
    with pytest.raises(StorageError, match="its copy is older"):
        asyncio.run(read_contents(copy, image.config))
    assert digest(copy) == before
    rebuild(copy, image)
    is_served(copy, image)


def _seal(data: bytearray, begin: int, end: int) -> None:
    """Give a round that was changed the checksum that belongs to it."""
    crc = crc32c(data[begin + 16 : end], crc32c(data[begin : begin + 12]))
    data[begin + 12 : begin + 16] = crc.to_bytes(4, "little")


def test_progress_is_at_most_what_was_announced(image: Image, fast_path: Path) -> None:
    copy = image.copy_to(fast_path / "copy")
    (copy / FILE).unlink()
    (copy / COPY).unlink()
    steps: list[int] = []
    asyncio.run(rebuild_directory(copy, dry_run=True, advance=steps.append, config=image.config))
    assert 0 < sum(steps) <= bytes_to_survey(copy)


@pytest.mark.slow
def test_a_rebuild_may_be_interrupted_at_any_call_and_repeated() -> None:
    counts: collections.Counter[str] = collections.Counter()
    for seed in (*range(_HISTORIES), *_ONCE_FAILED):
        history, failed = play(seed, Options(rebuild=True))
        assert failed is None, f"seed {seed}: {failed.error}"
        counts += history.counts
    assert counts["rebuilds"] > _HISTORIES / 2
    assert counts["damaged indexes"] > 0
    assert not counts["rebuilds refused"]
    assert not counts["quarantines"]
