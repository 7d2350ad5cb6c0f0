"""File names of a data directory: each is read as what it was written, and anything else as nothing."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import PartitionId
from tailrace.storage.segment.names import (
    journal_file,
    numbered,
    partition_directory,
    read_journal_file,
    read_numbered,
    read_partition_directory,
)

partition_ids = st.builds(PartitionId, st.uuids(), st.integers(0, (1 << 31) - 1))


@given(partition_ids, st.integers(1, (1 << 63) - 1))
def test_a_partition_directory_is_read_as_it_was_written(partition_id: PartitionId, life: int) -> None:
    assert read_partition_directory(partition_directory(partition_id, life)) == (partition_id, life)


@given(st.integers(0, (1 << 63) - 1), st.sampled_from(["log", "index", "timeindex", "snapshot"]))
def test_a_numbered_file_is_read_as_it_was_written(offset: int, suffix: str) -> None:
    assert read_numbered(numbered(offset, suffix), suffix) == offset


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_names_sort_as_offsets_do(one: int, other: int) -> None:
    assert (numbered(one, "log") < numbered(other, "log")) == (one < other)


@pytest.mark.parametrize("number", [1, 12, 9999])
def test_a_journal_file_is_read_as_it_was_written(number: int) -> None:
    assert read_journal_file(journal_file(number).removeprefix("journal/")) == number


def test_the_names_themselves() -> None:
    partition_id = PartitionId(UUID(int=0xABC), 7)
    assert partition_directory(partition_id, 42) == "00000000000000000000000000000abc-7-42"
    assert numbered(17, "log") == "00000000000000000017.log"
    assert journal_file(3) == "journal/0003.journal"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "journal",
        "00000000000000000000000000000abc-7",
        "00000000000000000000000000000abc-7-42/",
        "deleted-00000000000000000000000000000abc-7-42",
        "stray-00000000000000000000000000000abc-7-42",
        "00000000000000000000000000000ABC-7-42",
        "0000000000000000000000000000abc-7-42",
        "00000000000000000000000000000abc-7-42-1",
        "00000000000000000000000000000abc--7-42",
        "00000000000000000000000000000abc-7-42\n",
    ],
)
def test_other_names_are_no_partition(name: str) -> None:
    assert read_partition_directory(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "17.log",
        "00000000000000000017.log.tmp",
        "00000000000000000017.index",
        "00000000000000000017.",
        "00000000000000000017",
        "0000000000000000001a.log",
        "-0000000000000000017.log",
        "00000000000000000017.log\n",
    ],
)
def test_other_names_are_no_segment(name: str) -> None:
    assert read_numbered(name, "log") is None


@pytest.mark.parametrize(
    "name", ["", "1.journal", "0001.journal.tmp", "0001", "x001.journal", "0001.journal\n"]
)
def test_other_names_are_no_journal_file(name: str) -> None:
    assert read_journal_file(name) is None
