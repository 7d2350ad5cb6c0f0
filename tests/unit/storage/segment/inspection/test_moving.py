"""Directories that move on between two reads: each test swaps in a later state at a chosen moment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.model import Offset
from tailrace.storage.segment import SegmentStorage
from tailrace.storage.segment.inspection import Inspection, Verification, inspect_directory, verify_directory
from tailrace.storage.segment.inspection.expectation import (
    Expectation,
    ExpectedPartition,
    look_at_partition,
    read_expectation,
)
from tailrace.storage.segment.inspection.partition_check import Counts, PartitionCheck
from tailrace.storage.segment.inspection.progress import Progress
from tailrace.storage.segment.inspection.report import Findings
from tailrace.storage.segment.inspection.root import read_root
from tailrace.storage.segment.inspection.source import Source

if TYPE_CHECKING:
    from tests.unit.storage.segment.inspection.conftest import Story, Workshop

Look = Callable[[Path], Verification | Inspection]
FIRST = "6f1c23456789abcdef0123456789abcd-0-1"


def move_on(path: Path, later: Path) -> None:
    """Make `path` what `later` is."""
    shutil.rmtree(path)
    shutil.copytree(later, path)


def continued(workshop: Workshop, path: Path, *stories: Story) -> Path:
    """A copy of a directory in which more happened."""
    later = workshop.copy(path)
    for story in stories:
        workshop.closed(story, path=later)
    return later


def check(source: Source, expectation: Expectation, path: str) -> Findings:
    findings = Findings()

    def look(expected: ExpectedPartition, collected: Findings) -> Counts:
        return PartitionCheck(
            source, path, expected, findings=collected, progress=Progress(lambda _: None)
        ).run()

    look_at_partition(source, expectation, path, look, findings)
    return findings


@pytest.mark.parametrize("look", [verify_directory, inspect_directory])
def test_a_journal_used_again_since_the_checkpoint_was_read_is_no_damage(
    workshop: Workshop, clean: Path, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    async def more(storage: SegmentStorage) -> None:
        await workshop.append(storage.logs()[0], 300)

    later = continued(workshop, clean, more, more)
    real_read = Source.read_whole
    moved: list[str] = []

    def moving_read(source: Source, path: str, *, bytes_max: int = 1 << 30) -> bytes | None:
        data = real_read(source, path, bytes_max=bytes_max)
        if path == "CHECKPOINT" and not moved:
            moved.append(path)
            move_on(clean, later)
        return data

    monkeypatch.setattr(Source, "read_whole", moving_read)
    assert look(clean).problems == ()
    assert moved


def test_a_partition_created_since_is_known(workshop: Workshop, clean: Path) -> None:
    async def more(storage: SegmentStorage) -> None:
        await workshop.create(storage, 7)

    later = continued(workshop, clean, more)
    source, findings = Source(clean), Findings()
    expectation = read_expectation(source)
    move_on(clean, later)
    root = read_root(source, expectation, findings)
    assert (findings.problems, root.leftovers) == ([], [])


def test_segments_trimmed_away_since_are_not_missed(workshop: Workshop, clean: Path) -> None:
    async def more(storage: SegmentStorage) -> None:
        await storage.logs()[0].trim(Offset(250))

    later = continued(workshop, clean, more)
    source = Source(clean)
    expectation = read_expectation(source)
    move_on(clean, later)
    assert check(source, expectation, FIRST).problems == []


def test_what_was_truncated_since_is_not_missed(workshop: Workshop, clean: Path) -> None:
    async def more(storage: SegmentStorage) -> None:
        await storage.logs()[0].truncate(Offset(250))
        await workshop.append(storage.logs()[0], 500, 500)

    later = continued(workshop, clean, more)
    source = Source(clean)
    expectation = read_expectation(source)
    move_on(clean, later)
    assert check(source, expectation, FIRST).problems == []


def test_a_partition_deleted_since_is_a_note(workshop: Workshop, clean: Path) -> None:
    async def more(storage: SegmentStorage) -> None:
        await storage.delete(storage.logs()[0].partition_id)

    later = continued(workshop, clean, more)
    source = Source(clean)
    expectation = read_expectation(source)
    move_on(clean, later)
    findings = check(source, expectation, FIRST)
    assert findings.problems == []
    assert [(note.path, note.message) for note in findings.notes] == [
        (FIRST, "deleted while it was looked at")
    ]


def test_damage_in_a_directory_that_moves_is_still_reported(workshop: Workshop, clean: Path) -> None:
    async def more(storage: SegmentStorage) -> None:
        await workshop.append(storage.logs()[0], 300)

    later = continued(workshop, clean, more)
    with open(later / FIRST / f"{0:020d}.log", "r+b") as file:
        file.write(b"\1")
    source = Source(clean)
    expectation = read_expectation(source)
    move_on(clean, later)
    assert [problem.path for problem in check(source, expectation, FIRST).problems] == [
        f"{FIRST}/{0:020d}.log"
    ]
