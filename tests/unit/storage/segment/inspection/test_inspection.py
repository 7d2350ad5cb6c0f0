"""Looking into data directories that the real engine made, sound and damaged: facts, and what is wrong."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.model import Offset, PartitionId
from tailrace.records import iter_batches
from tailrace.storage.segment import SegmentStorage
from tailrace.storage.segment.inspection import Inspection, inspect_directory, list_batches, list_rounds
from tailrace.storage.segment.inspection.source import SourceFile

if TYPE_CHECKING:
    from tests.unit.storage.segment.inspection.conftest import Workshop

FIRST = "6f1c23456789abcdef0123456789abcd-0-1"
SECOND = "6f1c23456789abcdef0123456789abcd-1-2"
OLDEST, NEWEST = (f"{FIRST}/{base:020d}" for base in (0, 260))
SNAPSHOT = f"{FIRST}/{276:020d}.snapshot"
JOURNAL = "journal/0001.journal"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def problem_paths(inspection: Inspection) -> set[str]:
    return {problem.path for problem in inspection.problems}


# ---- facts


def test_a_clean_directory_has_neither_problems_nor_notes(clean: Path) -> None:
    inspection = inspect_directory(clean)
    assert inspection.problems == ()
    assert inspection.notes == ()
    assert inspection.leftovers == ()


def test_the_checkpoint_is_shown(clean: Path) -> None:
    checkpoint = inspect_directory(clean).checkpoint
    assert checkpoint is not None
    assert checkpoint.lsn == max(each.lsn for each in list_rounds(clean, JOURNAL, checkpoint_lsn=0))
    assert (checkpoint.next_life, checkpoint.partitions, checkpoint.journal_files) == (3, 2, (1,))
    assert checkpoint.bytes == (clean / "CHECKPOINT").stat().st_size


def test_journal_files_are_shown(clean: Path) -> None:
    (file,) = inspect_directory(clean).journal
    assert (file.path, file.bytes, file.listed) == (JOURNAL, 128 * 1024, True)
    count = len(list(list_rounds(clean, JOURNAL, checkpoint_lsn=0)))
    assert (file.first_lsn, file.last_lsn, file.rounds, file.rounds_above) == (1, count, count, 0)
    assert file.entries == {"append": 139, "create": 2, "trim": 1}
    assert file.journal_id == int.from_bytes((clean / JOURNAL).read_bytes()[8:16], "little")


def test_partitions_are_shown(clean: Path) -> None:
    first, second = inspect_directory(clean).partitions
    assert (first.path, first.partition, first.life) == (FIRST, 0, 1)
    assert (first.start, first.end, first.checkpoint_end, first.quarantined_from) == (100, 276, 276, None)
    assert (second.path, second.start, second.end) == (SECOND, 0, 2)
    assert first.bytes == sum(file.stat().st_size for file in (clean / FIRST).glob("*.log"))


def test_segments_are_shown(clean: Path) -> None:
    first, second = inspect_directory(clean).partitions
    assert [segment.base for segment in first.segments] == [0, 102, 204, 240, 242, 260]
    assert [segment.state for segment in first.segments] == ["sealed"] * 5 + ["active"]
    assert [segment.index for segment in first.segments] == ["sealed"] * 5 + ["open"]
    oldest = first.segments[0]
    batches = list(iter_batches((clean / oldest.path).read_bytes()))
    assert (oldest.batches, oldest.records) == (len(batches), 2 * len(batches))
    assert (oldest.first_offset, oldest.next_offset) == (0, 102)
    assert oldest.max_timestamp_ms == batches[-1].max_timestamp
    assert second.segments[0].index == "none"


def test_snapshots_are_shown(clean: Path) -> None:
    first = inspect_directory(clean).partitions[0]
    assert [(each.offset, each.current) for each in first.snapshots] == [(264, False), (276, True)]
    assert first.snapshots[1].producers == 2
    assert first.snapshots[1].path == SNAPSHOT


def test_rounds_above_the_checkpoint_are_counted(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        await storage.checkpoint()
        await workshop.hold_applier(storage)
        await workshop.append(log, 300, 300)
        await log.truncate(Offset(2))
        await workshop.append(log, 300)

    inspection = inspect_directory(workshop.crashed(story))
    (file,) = inspection.journal
    assert (file.rounds, file.rounds_above) == (4, 3)
    assert file.entries == {"create": 1, "append": 3, "truncate": 1}
    assert inspection.problems == ()
    assert any("3 rounds (LSN 2 to 4)" in note.message for note in inspection.notes)
    partition = inspection.partitions[0]
    assert (partition.checkpoint_end, partition.end) == (0, 4)


def test_a_segment_that_the_journal_begins_is_shown_as_such(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage, segment_bytes=1000)
        await storage.checkpoint()
        await workshop.append(log, 600)
        await workshop.append(log, 600)

    partition = inspect_directory(workshop.crashed(story)).partitions[0]
    assert [(segment.base, segment.state) for segment in partition.segments] == [
        (0, "active"),
        (2, "journalled"),
    ]


def test_the_process_that_serves_is_named(workshop: Workshop) -> None:
    owners = []

    async def story(storage: SegmentStorage) -> None:
        owners.append(inspect_directory(storage.directory.path).owner)

    workshop.closed(story)
    (owner,) = owners
    assert owner is not None
    assert (owner.pid, owner.running) == (os.getpid(), True)


@pytest.mark.parametrize("text", ["", "not a number", "-1", "0", "9" * 30, "1" * 500])
def test_a_lock_file_that_names_nobody_is_nobody(clean: Path, text: str) -> None:
    (clean / "LOCK").write_text(text)
    assert inspect_directory(clean).owner is None


def test_only_the_partitions_asked_for_are_looked_at(clean: Path) -> None:
    def wanted(partition_id: PartitionId, life: int) -> bool:
        return (partition_id.partition, life) == (1, 2)

    flip(clean / f"{OLDEST}.log", 16)
    inspection = inspect_directory(clean, wanted=wanted)
    assert [partition.path for partition in inspection.partitions] == [SECOND]
    assert inspection.problems == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"stray-{FIRST}", "stray"),
        (f"deleted-{FIRST}", "deleted"),
        ("mine", "foreign"),
    ],
)
def test_leftovers_are_shown(clean: Path, name: str, kind: str) -> None:
    (clean / name).mkdir()
    (clean / name / "file").write_bytes(bytes(10))
    inspection = inspect_directory(clean)
    assert [(each.path, each.kind, each.bytes) for each in inspection.leftovers] == [(name, kind, 10)]
    assert inspection.problems == ()


def test_an_unfinished_checkpoint_is_shown(clean: Path) -> None:
    (clean / "CHECKPOINT.tmp").write_bytes(b"half")
    inspection = inspect_directory(clean)
    assert [(each.path, each.kind) for each in inspection.leftovers] == [("CHECKPOINT.tmp", "unfinished")]
    assert [note.path for note in inspection.notes] == ["CHECKPOINT.tmp"]


def test_a_directory_being_formatted_is_shown(clean: Path) -> None:
    for path in clean.iterdir():
        if path.name in {"CHECKPOINT", "CHECKPOINT.copy"}:
            path.unlink()
        elif path.is_dir() and path.name != "journal":
            shutil.rmtree(path)
    (clean / JOURNAL).write_bytes(bytes(1000))
    inspection = inspect_directory(clean)
    assert (inspection.checkpoint, inspection.partitions) == (None, ())
    assert "CHECKPOINT" in {note.path for note in inspection.notes}


# ---- lists


def test_batches_are_listed(clean: Path) -> None:
    listed = list(list_batches(clean, f"{OLDEST}.log"))
    batches = list(iter_batches((clean / f"{OLDEST}.log").read_bytes()))
    assert [batch.first_offset for batch in listed] == [batch.base_offset for batch in batches]
    assert [batch.position for batch in listed][:2] == [0, batches[0].size]
    assert all(batch.crc_ok for batch in listed)
    assert {batch.producer_id for batch in listed} == {7}


def test_a_listed_batch_tells_that_its_crc_is_wrong(clean: Path) -> None:
    flip(clean / f"{OLDEST}.log", 100)
    listed = list(list_batches(clean, f"{OLDEST}.log"))
    assert [batch.crc_ok for batch in listed[:3]] == [False, True, True]


def test_a_list_of_batches_ends_where_they_do(clean: Path) -> None:
    flip(clean / f"{OLDEST}.log", 16)
    assert list(list_batches(clean, f"{OLDEST}.log")) == []


def test_rounds_are_listed(clean: Path) -> None:
    listed = list(list_rounds(clean, JOURNAL, checkpoint_lsn=8))
    assert [each.lsn for each in listed] == list(range(1, len(listed) + 1))
    assert [each.lsn for each in listed if not each.above_checkpoint] == list(range(1, 9))
    assert [entry.kind for entry in listed[0].entries] == ["create"]
    large = [entry for each in listed for entry in each.entries if entry.first_offset == 240]
    assert [(entry.how, entry.segment, entry.position, entry.next_offset) for entry in large] == [
        ("referenced", 240, 0, 242)
    ]


def test_no_rounds_are_listed_of_an_unreadable_file(clean: Path) -> None:
    flip(clean / JOURNAL, 0)
    assert list(list_rounds(clean, JOURNAL, checkpoint_lsn=0)) == []


# ---- what is wrong


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("CHECKPOINT", 20),
        (JOURNAL, 9),
        (f"{OLDEST}.log", 16),
        (f"{NEWEST}.log", 16),
        (f"{OLDEST}.index", 17),
        (f"{OLDEST}.timeindex", 17),
        (f"{NEWEST}.index", 17),
        (f"{NEWEST}.timeindex", 17),
        (SNAPSHOT, 20),
    ],
)
def test_damage_that_headers_tell_names_its_file(clean: Path, name: str, position: int) -> None:
    flip(clean / name, position)
    assert name in problem_paths(inspect_directory(clean))


@pytest.mark.parametrize("name", ["CHECKPOINT", JOURNAL, f"{NEWEST}.log", f"{NEWEST}.index", SNAPSHOT])
def test_a_missing_file_is_a_problem(clean: Path, name: str) -> None:
    (clean / name).unlink()
    assert name in problem_paths(inspect_directory(clean))


def test_missing_segments_at_the_start_are_a_problem(clean: Path) -> None:
    (clean / f"{OLDEST}.log").unlink()
    (problem,) = inspect_directory(clean).problems
    assert (problem.path, problem.first_offset, problem.next_offset) == (FIRST, 100, 102)


def test_a_short_segment_is_a_problem(clean: Path) -> None:
    size = (clean / f"{NEWEST}.log").stat().st_size
    os.truncate(clean / f"{NEWEST}.log", size - 1)
    problems = [problem for problem in inspect_directory(clean).problems if problem.position == size - 1]
    assert [(problem.path, problem.end) for problem in problems] == [(f"{NEWEST}.log", size)]


def test_a_missing_partition_is_a_problem(clean: Path) -> None:
    shutil.rmtree(clean / FIRST)
    inspection = inspect_directory(clean)
    assert problem_paths(inspection) == {FIRST}
    assert inspection.partitions[0].segments == ()


def test_without_a_checkpoint_the_segments_are_still_shown(clean: Path) -> None:
    (clean / "CHECKPOINT").write_bytes(b"nonsense")
    (clean / "CHECKPOINT.copy").unlink()
    inspection = inspect_directory(clean)
    assert problem_paths(inspection) == {"CHECKPOINT"}
    first = inspection.partitions[0]
    assert (first.start, first.end) == (None, None)
    assert [segment.state for segment in first.segments] == ["sealed"] * 5 + ["unknown"]
    assert first.segments[-1].next_offset == 276


def test_a_damaged_checkpoint_with_a_whole_copy_is_shown(clean: Path) -> None:
    whole = inspect_directory(clean)
    (clean / "CHECKPOINT").write_bytes(b"nonsense")
    inspection = inspect_directory(clean)
    (problem,) = inspection.problems
    assert (problem.path, "takes the copy" in problem.hint) == ("CHECKPOINT", True)
    assert (inspection.checkpoint, inspection.partitions) == (whole.checkpoint, whole.partitions)


def test_headers_alone_are_read_of_large_batches(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = clean / f"{FIRST}/{240:020d}.log"
    read: list[int] = []
    real_read = SourceFile.read

    def recording_read(file: SourceFile, position: int, size: int) -> memoryview:
        if file.size() == large.stat().st_size:
            read.append(size)
        return real_read(file, position, size)

    monkeypatch.setattr(SourceFile, "read", recording_read)
    inspect_directory(clean)
    assert read
    assert max(read) <= 64 * 1024


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: None, FileNotFoundError),
        (lambda path: path.mkdir(), FileNotFoundError),
        (lambda path: path.write_bytes(b""), NotADirectoryError),
    ],
    ids=["missing", "empty", "a file"],
)
def test_no_data_directory(tmp_path: Path, make: Callable[[Path], None], error: type[OSError]) -> None:
    make(tmp_path / "data")
    with pytest.raises(error):
        inspect_directory(tmp_path / "data")


@pytest.mark.parametrize("seed", range(60))
def test_damage_of_any_kind_is_reported_and_never_raised(clean: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = [
        file for file in clean.rglob("*") if file.is_file() and file.stat().st_size and file.name != "LOCK"
    ]
    for file in rng.sample(files, 4):
        size = file.stat().st_size
        match rng.randrange(4):
            case 0:
                os.truncate(file, rng.randrange(size))
            case 1:
                file.write_bytes(rng.randbytes(size))
            case 2:
                file.unlink()
            case _:
                flip(file, rng.randrange(size))
    inspection = inspect_directory(clean)
    for partition in inspection.partitions:
        for segment in partition.segments:
            if (clean / segment.path).exists():
                list(list_batches(clean, segment.path))
    for journal_file in inspection.journal:
        list(list_rounds(clean, journal_file.path, checkpoint_lsn=0))
