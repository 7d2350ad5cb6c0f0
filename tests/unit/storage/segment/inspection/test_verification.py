"""Verifying data directories that the real engine made: sound ones are clean, and damage names its file."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.model import Epoch, Offset
from tailrace.records import build_batch, crc32c, iter_batches, read_batch, write_marker
from tailrace.storage import OS, LogConfig
from tailrace.storage.segment import SegmentStorage
from tailrace.storage.segment.index import IndexState, SpanIndex, read_index, write_footers, write_headers
from tailrace.storage.segment.inspection import (
    Problem,
    Verification,
    bytes_to_verify,
    inspect_directory,
    verify_directory,
)
from tailrace.storage.segment.inspection.source import SourceFile
from tailrace.storage.segment.inspection.walk import PIECE_BYTES
from tailrace.storage.segment.journal import SECTOR

if TYPE_CHECKING:
    from tests.unit.storage.segment.inspection.conftest import Workshop

BESIDE = {"LOCK", "CLOCK"}
"""Files of a data directory that are no part of the log."""

FIRST = "6f1c23456789abcdef0123456789abcd-0-1"
OLDEST, MIDDLE, NEWEST = (f"{FIRST}/{base:020d}" for base in (0, 204, 260))
LARGE = f"{FIRST}/{240:020d}"
SNAPSHOT = f"{FIRST}/{276:020d}.snapshot"
JOURNAL = "journal/0001.journal"
LIST = f"{OLDEST}.aborted"


def flip(path: Path, position: int, bit: int = 0) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def problem_paths(verification: Verification) -> set[str]:
    return {problem.path for problem in verification.problems}


def only_problem(path: Path) -> Problem:
    (problem,) = verify_directory(path).problems
    return problem


# ---- what is sound


def test_a_clean_directory_has_neither_problems_nor_notes(clean: Path) -> None:
    verification = verify_directory(clean)
    assert verification.problems == ()
    assert verification.notes == ()
    assert (verification.partitions, verification.segments) == (2, 7)
    assert (verification.batches, verification.records) == (139, 278)


def test_an_empty_log_is_clean(workshop: Workshop) -> None:
    async def nothing(storage: SegmentStorage) -> None:
        await workshop.create(storage)

    verification = verify_directory(workshop.closed(nothing))
    assert (verification.problems, verification.notes, verification.batches) == ((), (), 0)


def test_a_directory_without_partitions_is_clean(workshop: Workshop) -> None:
    async def nothing(storage: SegmentStorage) -> None:
        pass

    verification = verify_directory(workshop.closed(nothing))
    assert (verification.problems, verification.notes) == ((), ())


def test_nothing_is_changed(clean: Path) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in clean.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    verify_directory(clean)
    assert state() == before


def test_files_are_opened_read_only(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    real_open = os.open

    def recording_open(path: str, flags: int, *args: int, **kwargs: int) -> int:
        opened.append(flags)
        return real_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", recording_open)
    verify_directory(clean)
    assert opened
    assert set(opened) == {os.O_RDONLY | os.O_CLOEXEC}


def test_progress_adds_up_to_what_was_announced(clean: Path) -> None:
    steps: list[int] = []
    verify_directory(clean, advance=steps.append)
    total = sum(
        path.stat().st_size for path in clean.rglob("*") if path.is_file() and path.name not in BESIDE
    )
    assert bytes_to_verify(clean) == total
    assert sum(steps) == total - 2 * (clean / "CHECKPOINT").stat().st_size  # and its copy


def test_what_was_truncated_and_written_again_is_clean(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        await workshop.append(log, *[900] * 50, producer_id=3)
        await storage.checkpoint()
        await log.truncate(Offset(40))
        await workshop.append(log, *[500] * 9)
        await storage.checkpoint()
        await log.truncate(Offset(50))

    assert verify_directory(workshop.closed(story)).problems == ()


def test_a_compacted_log_is_clean(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        log.configure(LogConfig(segment_bytes=5000, compact=True, delete=False))
        await workshop.append(log, *[900] * 40)  # one key, again and again
        await storage.checkpoint()
        before = log.size_bytes
        await storage.maintain()
        assert log.size_bytes < before / 2

    verification = verify_directory(workshop.closed(story))
    assert verification.problems == ()


def test_which_batches_are_spans_by_themselves_is_the_writers_choice(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(storage: SegmentStorage) -> None:
        await workshop.append(await workshop.create(storage), *[5000, 300] * 9)

    with monkeypatch.context() as patched:
        patched.setattr("tailrace.storage.segment.index.LARGE_BATCH_BYTES", 64 * 1024)
        path = workshop.closed(story)
    assert verify_directory(path).problems == ()


def aborted_story(workshop: Workshop) -> Path:
    """A directory whose first segment has a list of aborted transactions, `LIST`."""

    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        for batch in (
            build_batch(
                [(0, b"k", b"v", ())],
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            ),
            write_marker(7, 0, commit=False, coordinator_epoch=0, timestamp_ms=0).data,
        ):
            log.append(read_batch(batch), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)

    return workshop.closed(story)


def test_a_log_with_aborted_transactions_is_clean(workshop: Workshop) -> None:
    path = aborted_story(workshop)
    assert (path / LIST).exists()
    found = verify_directory(path)
    assert (found.problems, found.notes) == ((), ())


def test_every_byte_of_a_list_of_aborted_transactions_is_checked(workshop: Workshop) -> None:
    path = aborted_story(workshop)
    for position in range((path / LIST).stat().st_size):
        damaged = workshop.copy(path)
        flip(damaged / LIST, position)
        assert problem_paths(verify_directory(damaged)) == {LIST}, position


def test_a_missing_list_of_aborted_transactions_is_a_problem(workshop: Workshop) -> None:
    path = aborted_story(workshop)
    (path / LIST).unlink()
    (problem,) = verify_directory(path).problems
    assert problem.path == LIST
    assert "missing" in problem.message


def test_a_trimmed_log_is_clean(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        await workshop.append(log, *[900] * 60)
        await log.trim(Offset(70))
        other = await workshop.create(storage, 1)
        await workshop.append(other, *[900] * 60)
        await other.trim(other.end_offset)

    assert verify_directory(workshop.closed(story)).problems == ()


# ---- one wrong bit


def data_files(path: Path) -> list[Path]:
    """Every file of which each byte counts: of the log, without rounds that the checkpoint has passed."""
    found = [file for file in path.rglob("*") if file.is_file() and file.name not in BESIDE]
    return sorted(file for file in found if file.parent.name != "journal" and file.stat().st_size)


def test_any_flipped_bit_of_data_is_found_in_its_file(clean: Path) -> None:
    rng = random.Random(20240229)
    files = data_files(clean)
    assert {file.suffix for file in files} == {"", ".copy", ".log", ".index", ".timeindex", ".snapshot"}
    for _ in range(200):
        file = rng.choice(files)
        position, bit = rng.randrange(file.stat().st_size), rng.randrange(8)
        flip(file, position, bit)
        name = str(file.relative_to(clean))
        assert name in problem_paths(verify_directory(clean)), f"bit {bit} of byte {position} of {name}"
        flip(file, position, bit)
    assert verify_directory(clean).problems == ()


@pytest.mark.parametrize("position", range(21))
@pytest.mark.parametrize("segment", [MIDDLE, LARGE, NEWEST])
def test_the_bytes_that_no_batch_crc_covers_are_checked(clean: Path, segment: str, position: int) -> None:
    flip(clean / f"{segment}.log", position)
    assert problem_paths(verify_directory(clean)) == {f"{segment}.log"}


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("segment", [OLDEST, NEWEST, "6f1c23456789abcdef0123456789abcd-1-2/" + "0" * 20])
def test_every_byte_of_an_index_is_checked(clean: Path, segment: str, suffix: str) -> None:
    file = clean / f"{segment}.{suffix}"
    for position in range(file.stat().st_size):
        flip(file, position, bit=7)
        assert only_problem(clean).path == f"{segment}.{suffix}"
        flip(file, position, bit=7)


def test_a_problem_tells_bytes_and_offsets(clean: Path) -> None:
    segment = clean / f"{OLDEST}.log"
    batches, position = list(iter_batches(segment.read_bytes())), 0
    for batch in batches[:30]:
        position += batch.size
    flip(segment, position + 100)
    problem = only_problem(clean)
    assert problem.position is not None
    assert problem.end is not None
    assert problem.position <= position < problem.end
    assert problem.end - problem.position < 8192
    assert problem.first_offset is not None
    assert problem.next_offset is not None
    assert problem.first_offset <= batches[30].base_offset < problem.next_offset
    assert "Restore" in problem.hint


def test_neighbouring_damage_is_one_problem(clean: Path) -> None:
    segment = clean / f"{OLDEST}.log"
    with open(segment, "r+b") as file:
        file.write(bytes(segment.stat().st_size))
    problem = only_problem(clean)
    assert (problem.position, problem.end) == (0, segment.stat().st_size)
    assert (problem.first_offset, problem.next_offset) == (0, 102)


def test_damage_in_two_places_is_two_problems(clean: Path) -> None:
    flip(clean / f"{OLDEST}.log", 0)
    flip(clean / f"{OLDEST}.log", 19_000)
    flip(clean / f"{NEWEST}.log", 11_000)
    paths = [problem.path for problem in verify_directory(clean).problems]
    assert paths == [f"{OLDEST}.log", f"{OLDEST}.log", f"{NEWEST}.log"]


def test_with_a_wrong_index_the_batches_are_still_checked(clean: Path) -> None:
    flip(clean / f"{OLDEST}.index", 20)
    flip(clean / f"{OLDEST}.log", 5_000)
    assert problem_paths(verify_directory(clean)) == {f"{OLDEST}.index", f"{OLDEST}.log"}


def test_with_a_wrong_timeindex_every_byte_is_still_checked(clean: Path) -> None:
    flip(clean / f"{OLDEST}.timeindex", 20)
    flip(clean / f"{OLDEST}.log", 0)  # the index alone proves this byte
    assert problem_paths(verify_directory(clean)) == {f"{OLDEST}.timeindex", f"{OLDEST}.log"}


def change_index(path: Path, base: int, change: Callable[[SpanIndex], None]) -> None:
    """Write a sealed index anew that is whole by its checksums, and wrong."""
    places, times = path.with_suffix(".index"), path.with_suffix(".timeindex")
    index = read_index(places.read_bytes(), times.read_bytes(), base=base, interval_bytes=4096, state=None)
    assert index is not None
    change(index)
    entries = index.write_entries(0)
    headers, footers = (
        write_headers(base),
        write_footers(IndexState(len(index), crc32c(entries[0]), crc32c(entries[1])), index.following or 0),
    )
    places.write_bytes(headers[0] + entries[0] + footers[0])
    times.write_bytes(headers[1] + entries[1] + footers[1])


def test_an_index_that_tells_other_offsets_than_the_segment_is_found(clean: Path) -> None:
    def change(index: SpanIndex) -> None:
        index.offsets[1] -= 1

    change_index(clean / f"{OLDEST}.log", 0, change)
    problem = only_problem(clean)
    assert (problem.path, problem.position) == (f"{OLDEST}.index", 16)


def test_an_index_that_tells_other_times_than_the_segment_is_found(clean: Path) -> None:
    def change(index: SpanIndex) -> None:
        index.times[2] += 1

    change_index(clean / f"{OLDEST}.log", 0, change)
    problem = only_problem(clean)
    assert (problem.path, problem.position) == (f"{OLDEST}.timeindex", 24)


def test_an_index_that_tells_another_following_segment_is_found(clean: Path) -> None:
    def change(index: SpanIndex) -> None:
        index.following = 150

    change_index(clean / f"{OLDEST}.log", 0, change)
    problem = only_problem(clean)
    assert (problem.path, problem.first_offset, problem.next_offset) == (f"{OLDEST}.log", 102, 150)


# ---- cut, removed, added

CUT_FILES = [
    f"{OLDEST}.log",
    f"{NEWEST}.log",
    f"{OLDEST}.index",
    f"{NEWEST}.index",
    f"{OLDEST}.timeindex",
    f"{NEWEST}.timeindex",
    SNAPSHOT,
    "CHECKPOINT",
    JOURNAL,
]


@pytest.mark.parametrize("left", [0, 1, 0.5, -1])
@pytest.mark.parametrize("name", CUT_FILES)
def test_a_cut_file_is_reported(clean: Path, name: str, left: float) -> None:
    file = clean / name
    size = file.stat().st_size
    cut(file, int(size * left) if left == 0.5 else int(left) % size)
    assert name in problem_paths(verify_directory(clean))


def test_a_segment_cut_between_two_batches_is_reported(clean: Path) -> None:
    segment = clean / f"{OLDEST}.log"
    *_, last = iter_batches(segment.read_bytes())
    size = segment.stat().st_size
    cut(segment, size - last.size)
    problem = only_problem(clean)
    assert (problem.path, problem.position, problem.end) == (f"{OLDEST}.log", size - last.size, size)


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        (f"{OLDEST}.log", FIRST),
        (f"{MIDDLE}.log", f"{FIRST}/{102:020d}.log"),  # the one that ends where it began
        (f"{NEWEST}.log", f"{NEWEST}.log"),
        (f"{NEWEST}.index", f"{NEWEST}.index"),
        (f"{NEWEST}.timeindex", f"{NEWEST}.timeindex"),
        (SNAPSHOT, SNAPSHOT),
        ("CHECKPOINT", "CHECKPOINT"),
        (JOURNAL, JOURNAL),
    ],
)
def test_a_missing_file_is_reported(clean: Path, name: str, reported: str) -> None:
    (clean / name).unlink()
    assert reported in problem_paths(verify_directory(clean))


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_missing_index_of_a_sealed_segment_is_a_note(clean: Path, suffix: str) -> None:
    (clean / f"{OLDEST}.{suffix}").unlink()
    verification = verify_directory(clean)
    assert verification.problems == ()
    assert [note.path for note in verification.notes] == [f"{OLDEST}.{suffix}"]


def compacted(workshop: Workshop) -> Path:
    """A log whose every key was superseded: each segment but the newest lost all or most of its batches."""

    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        log.configure(LogConfig(segment_bytes=5000, compact=True, delete=False))
        await workshop.append(log, *[900] * 40)
        await storage.checkpoint()
        await storage.maintain()

    return workshop.closed(story)


def test_a_missing_segment_of_a_compacted_log_is_reported(workshop: Workshop) -> None:
    path = compacted(workshop)
    assert verify_directory(path).problems == ()
    segments = sorted(path.glob("*-*-*/*.log"))
    segments[2].unlink()
    assert only_problem(path).path == str(segments[1].relative_to(path))


def test_a_missing_segment_is_reported_where_the_index_is_missing_too(clean: Path) -> None:
    (clean / f"{MIDDLE}.log").unlink()
    (clean / f"{FIRST}/{102:020d}.index").unlink()
    problem = only_problem(clean)
    assert (problem.path, problem.first_offset, problem.next_offset) == (
        f"{FIRST}/{102:020d}.log",
        204,
        240,
    )


def test_a_gap_that_compaction_may_have_left_is_a_note_without_the_index(workshop: Workshop) -> None:
    path = compacted(workshop)
    for index in path.glob("*-*-*/*.index"):
        if index.with_suffix(".log").stat().st_size == 0:
            index.unlink()
    verification = verify_directory(path)
    assert verification.problems == ()
    assert any("as compaction leaves it" in note.message for note in verification.notes)


def test_a_missing_partition_is_reported(clean: Path) -> None:
    shutil.rmtree(clean / FIRST)
    problem = only_problem(clean)
    assert (problem.path, problem.first_offset, problem.next_offset) == (FIRST, 100, 276)


def test_bytes_behind_a_sealed_segment_are_reported(clean: Path) -> None:
    segment = clean / f"{OLDEST}.log"
    size = segment.stat().st_size
    with open(segment, "ab") as file:
        file.write(b"more")
    problem = only_problem(clean)
    assert (problem.path, problem.position, problem.end) == (f"{OLDEST}.log", size, size + 4)


def test_bytes_behind_the_checkpoint_are_not_judged(clean: Path) -> None:
    with open(clean / f"{NEWEST}.log", "ab") as file:
        file.write(random.Random(1).randbytes(5000))
    assert verify_directory(clean).problems == ()


def test_a_partition_that_nothing_knows_is_reported(clean: Path) -> None:
    shutil.copytree(clean / FIRST, clean / FIRST.replace("-0-1", "-5-9"))
    assert only_problem(clean).path == FIRST.replace("-0-1", "-5-9")


@pytest.mark.parametrize("name", [f"stray-{FIRST}", f"deleted-{FIRST}"])
def test_what_was_put_aside_is_a_note(clean: Path, name: str) -> None:
    (clean / name).mkdir()
    verification = verify_directory(clean)
    assert verification.problems == ()
    assert [note.path for note in verification.notes] == [name]


@pytest.mark.parametrize(
    "name",
    [f"{OLDEST}.log.tmp", f"{FIRST}/{300:020d}.log", f"{FIRST}/{300:020d}.snapshot", f"{FIRST}/mine.txt"],
)
def test_what_recovery_will_remove_is_a_note(clean: Path, name: str) -> None:
    (clean / name).write_bytes(b"anything")
    verification = verify_directory(clean)
    assert verification.problems == ()
    assert [note.path for note in verification.notes] == [name]


def test_foreign_files_beside_the_logs_are_left_alone(clean: Path) -> None:
    (clean / "tailrace.ports.json").write_text("{}")
    (clean / "lost+found").mkdir()
    verification = verify_directory(clean)
    assert (verification.problems, verification.notes) == ((), ())


def test_without_a_checkpoint_complete_segments_are_still_checked(clean: Path) -> None:
    (clean / "CHECKPOINT").unlink()
    (clean / "CHECKPOINT.copy").unlink()
    flip(clean / f"{OLDEST}.log", 7)
    assert problem_paths(verify_directory(clean)) == {"CHECKPOINT", f"{OLDEST}.log"}


def test_a_bad_sector_is_reported_and_the_rest_goes_on(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_read = SourceFile.read

    def failing_read(file: SourceFile, position: int, size: int) -> memoryview:
        if file.size() == (clean / f"{OLDEST}.log").stat().st_size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real_read(file, position, size)

    monkeypatch.setattr(SourceFile, "read", failing_read)
    flip(clean / f"{NEWEST}.log", 3)
    assert problem_paths(verify_directory(clean)) >= {f"{OLDEST}.log", f"{NEWEST}.log"}


@pytest.mark.parametrize("name", ["CHECKPOINT", JOURNAL, SNAPSHOT, f"{NEWEST}.index"])
def test_a_file_that_cannot_be_read_is_a_problem(clean: Path, name: str) -> None:
    (clean / name).unlink()
    (clean / name).mkdir()
    assert verify_directory(clean).problems


def test_a_length_that_lies_takes_no_memory(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = clean / f"{OLDEST}.log"
    cut(segment, 64 << 20)  # sparse
    with open(segment, "r+b") as file:
        file.seek(8)
        file.write((60 << 20).to_bytes(4, "big"))
    for suffix in (".index", ".timeindex"):
        segment.with_suffix(suffix).unlink()
    asked: list[int] = []
    real_read = SourceFile.read

    def recording_read(file: SourceFile, position: int, size: int) -> memoryview:
        asked.append(size)
        return real_read(file, position, size)

    monkeypatch.setattr(SourceFile, "read", recording_read)
    assert f"{OLDEST}.log" in problem_paths(verify_directory(clean))
    assert max(asked) <= PIECE_BYTES


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
        verify_directory(tmp_path / "data")


# ---- after a crash


async def unapplied(workshop: Workshop, storage: SegmentStorage) -> None:
    """Rounds above the checkpoint, small batches inline and large ones by reference."""
    log = await workshop.create(storage)
    await workshop.append(log, 300, 300)
    await storage.checkpoint()
    for _ in range(4):
        await workshop.append(log, 300, 300)  # inline
    await workshop.append(log, 9000)  # by reference
    await workshop.append(log, 300)


@pytest.fixture
def crashed(workshop: Workshop) -> Path:
    return workshop.crashed(lambda storage: unapplied(workshop, storage))


def test_rounds_that_wait_to_be_applied_are_a_note(crashed: Path) -> None:
    verification = verify_directory(crashed)
    assert verification.problems == ()
    (note,) = verification.notes
    assert "6 rounds (LSN 3 to 8)" in note.message


def round_positions(path: Path) -> list[int]:
    data = (path / JOURNAL).read_bytes()
    journal_id = data[8:16]
    return [place for place in range(SECTOR, len(data), SECTOR) if data[place : place + 8] == journal_id]


def test_a_torn_last_round_is_a_note(crashed: Path) -> None:
    position = round_positions(crashed)[-1]
    flip(crashed / JOURNAL, position + 60)
    verification = verify_directory(crashed)
    assert verification.problems == ()
    assert any(note.path == JOURNAL and note.position == position for note in verification.notes)


def test_a_damaged_round_that_was_acknowledged_is_a_problem(crashed: Path) -> None:
    position = round_positions(crashed)[3]
    flip(crashed / JOURNAL, position + 60)
    problem = only_problem(crashed)
    assert (problem.path, problem.position) == (JOURNAL, position)
    assert "round 4" in problem.message


def test_a_damaged_round_below_the_checkpoint_is_a_note(crashed: Path) -> None:
    position = round_positions(crashed)[0]
    flip(crashed / JOURNAL, position + 60)
    verification = verify_directory(crashed)
    assert verification.problems == ()
    assert any("nothing needs it" in note.message for note in verification.notes)


def test_the_padding_of_a_round_is_not_data(crashed: Path) -> None:
    flip(crashed / JOURNAL, round_positions(crashed)[-1] - 1)
    assert verify_directory(crashed).problems == ()


@pytest.mark.parametrize("position", [0, 8, 16, 24, 32, 511])
def test_a_damaged_journal_header_is_a_problem(crashed: Path, position: int) -> None:
    flip(crashed / JOURNAL, position)
    assert JOURNAL in problem_paths(verify_directory(crashed))


def test_an_inline_batch_may_be_missing_from_its_segment(crashed: Path) -> None:
    segment = crashed / FIRST / f"{0:020d}.log"
    with open(segment, "r+b") as file:
        file.seek(800)
        file.write(bytes(300))
    assert verify_directory(crashed).problems == ()


def test_a_batch_by_reference_may_not_be_missing(crashed: Path) -> None:
    segment = crashed / FIRST / f"{0:020d}.log"
    flip(segment, segment.stat().st_size - 100)
    problem = only_problem(crashed)
    assert problem.path == f"{FIRST}/{0:020d}.log"
    assert problem.first_offset == 20
    assert problem.end == segment.stat().st_size


def test_a_loose_batch_may_be_missing(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage, fsync=OS)
        await workshop.append(log, 300)
        await storage.checkpoint()
        await workshop.append(log, 9000)

    crashed = workshop.crashed(story)
    assert verify_directory(crashed).problems == ()
    segment = crashed / FIRST / f"{0:020d}.log"
    flip(segment, segment.stat().st_size - 100)
    verification = verify_directory(crashed)
    assert verification.problems == ()
    assert any("fsync = os" in note.message for note in verification.notes)


def test_a_deletion_that_waits_is_a_note(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        await workshop.append(log, 300)
        await storage.checkpoint()
        await workshop.hold_applier(storage)
        await storage.delete(log.partition_id)

    verification = verify_directory(workshop.crashed(story))
    assert verification.problems == ()
    assert FIRST in {note.path for note in verification.notes}


def test_a_snapshot_that_a_truncation_overtook_may_be_missing(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        await workshop.append(log, 300, 300)
        await storage.checkpoint()
        await workshop.append(log, 300)
        await log.truncate(Offset(4))

    crashed = workshop.crashed(story)
    (crashed / FIRST / f"{4:020d}.snapshot").unlink()
    assert verify_directory(crashed).problems == ()


def test_a_segment_that_a_truncation_begins_need_not_be_there(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        log.configure(LogConfig(segment_bytes=2500, compact=True, delete=False))
        await workshop.append(log, 300, *[900] * 7)
        await storage.checkpoint()
        await storage.maintain()
        await workshop.hold_applier(storage)
        following = list(log.segments)[1]
        await log.truncate(Offset(following - 1))  # into the gap that compaction left
        assert log.end_offset == following - 1
        assert log.end_offset not in log.segments

    crashed = workshop.crashed(story)
    assert verify_directory(crashed).problems == ()
    assert inspect_directory(crashed).problems == ()


def test_a_partition_that_the_journal_creates_needs_no_directory(workshop: Workshop) -> None:
    async def story(storage: SegmentStorage) -> None:
        await workshop.hold_applier(storage)
        await workshop.append(await workshop.create(storage), 300)

    crashed = workshop.crashed(story)
    assert not (crashed / FIRST).exists()
    assert verify_directory(crashed).problems == ()


def test_a_quarantined_partition_is_reported(workshop: Workshop, clean: Path) -> None:
    cut(clean / f"{NEWEST}.log", 11_000)

    async def nothing(storage: SegmentStorage) -> None:
        pass

    workshop.closed(nothing, path=clean)
    assert any("quarantined" in problem.message for problem in verify_directory(clean).problems)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happened_before_a_crash_is_clean(workshop: Workshop, seed: int) -> None:
    rng = random.Random(seed)

    async def story(storage: SegmentStorage) -> None:
        log = await workshop.create(storage)
        for _ in range(rng.randrange(10, 40)):
            span = range(log.start_offset, log.durable_offset + 1)
            match rng.randrange(10):
                case 0:
                    await storage.checkpoint()
                case 1:
                    await storage.wait_applied()
                case 2:
                    await log.truncate(Offset(rng.choice(span)))
                case 3:
                    await log.trim(Offset(rng.choice(span)))
                case 4:
                    await storage.delete(log.partition_id)
                    log = await workshop.create(storage)
                case _:
                    sizes = [rng.choice([40, 300, 3000, 30_000, 70_000]) for _ in range(rng.randrange(1, 6))]
                    await workshop.append(log, *sizes, producer_id=rng.choice([-1, 4]))

    assert verify_directory(workshop.crashed(story)).problems == ()


def test_a_directory_that_is_being_served_is_clean(workshop: Workshop) -> None:
    async def run() -> list[Problem]:
        path, found = workshop.new_path(), []
        storage = await SegmentStorage.open(path, config=workshop.config)
        log = await workshop.create(storage)
        rng = random.Random(3)
        reader = asyncio.ensure_future(verify_repeatedly(path))
        while not reader.done():
            await workshop.append(log, *[rng.choice([300, 3000, 70_000]) for _ in range(5)])
            step = rng.randrange(8)
            if step == 0:
                await log.truncate(Offset(rng.randrange(log.start_offset, log.end_offset)))
            elif step == 1:
                await log.trim(Offset(rng.randrange(log.start_offset, log.durable_offset)))
            elif step == 2:
                await storage.checkpoint()
            elif step == 3:
                await storage.delete(log.partition_id)
                log = await workshop.create(storage)
        found = await reader
        await storage.close()
        return found

    async def verify_repeatedly(path: Path) -> list[Problem]:
        found: list[Problem] = []
        for _ in range(30):
            found += (await asyncio.to_thread(verify_directory, path)).problems
        return found

    assert asyncio.run(run()) == []


@pytest.mark.parametrize("seed", range(60))
def test_damage_of_any_kind_is_reported_and_never_raised(workshop: Workshop, clean: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = [
        file for file in clean.rglob("*") if file.is_file() and file.stat().st_size and file.name != "LOCK"
    ]
    for file in rng.sample(files, 3):
        size = file.stat().st_size
        match rng.randrange(4):
            case 0:
                cut(file, rng.randrange(size))
            case 1:
                file.write_bytes(rng.randbytes(size))
            case 2:
                file.unlink()
            case _:
                with open(file, "r+b") as opened:
                    opened.seek(rng.randrange(size))
                    opened.write(rng.randbytes(rng.randrange(1, 600)))
    verify_directory(clean)
