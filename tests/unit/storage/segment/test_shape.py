"""Shapes: hand-made sequences of entries, and generated ones against a plain list of batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import Offset, PartitionId
from tailrace.records import Batch, build_batch, read_batch
from tailrace.storage.segment.entry import Append, Create, Delete, Trim, Truncate
from tailrace.storage.segment.shape import Shape, wholly_below


def batch_at(offset: int, count: int = 1) -> Batch:
    return read_batch(build_batch([(0, None, b"v", ())] * count, base_offset=offset))


SIZE = batch_at(0).size


def append(offset: int, segment: int, position: int, count: int = 1) -> Append:
    return Append(1, batch_at(offset, count), segment, position)


def facts(shape: Shape) -> tuple[int, int, dict[int, int]]:
    return shape.start, shape.end, shape.segments


def test_a_new_partition_has_one_empty_segment() -> None:
    assert facts(Shape()) == (0, 0, {0: 0})
    assert Shape().last() == (0, 0)


def test_new_shapes_share_nothing() -> None:
    one, other = Shape(), Shape()
    one.apply(append(0, 0, 0))
    assert facts(other) == (0, 0, {0: 0})


def test_appends_lengthen_the_last_segment_or_begin_another() -> None:
    shape = Shape()
    shape.apply(append(0, 0, 0, count=3))
    first = shape.segments[0]
    shape.apply(append(3, 0, first))
    shape.apply(append(4, 4, 0))
    assert facts(shape) == (0, 5, {0: first + SIZE, 4: SIZE})
    assert shape.last() == (4, SIZE)


def test_a_gap_moves_the_end_past_it() -> None:
    shape = Shape()
    shape.apply(append(7, 0, 0))
    assert shape.end == 8


def test_truncation_within_a_segment() -> None:
    shape = Shape(Offset(0), Offset(9), {0: 900, 5: 400})
    shape.apply(Truncate(1, Offset(7), 5, 200))
    assert facts(shape) == (0, 7, {0: 900, 5: 200})


def test_truncation_takes_the_segments_above() -> None:
    shape = Shape(Offset(0), Offset(9), {0: 900, 5: 400, 8: 50})
    shape.apply(Truncate(1, Offset(2), 0, 200))
    assert facts(shape) == (0, 2, {0: 200})


def test_truncation_may_leave_an_empty_segment() -> None:
    shape = Shape(Offset(0), Offset(9), {0: 900, 5: 400})
    shape.apply(Truncate(1, Offset(5), 5, 0))
    assert facts(shape) == (0, 5, {0: 900, 5: 0})


def test_truncation_into_a_segment_that_the_checkpoint_did_not_name() -> None:
    """Out of a checkpoint comes the last segment alone; those before it are known by name only."""
    shape = Shape(Offset(0), Offset(9), {5: 400})
    shape.apply(Truncate(1, Offset(2), 0, 200))
    assert facts(shape) == (0, 2, {0: 200})


def test_truncation_below_a_start_inside_a_batch_moves_the_start() -> None:
    shape = Shape(Offset(4), Offset(9), {0: 900})
    shape.apply(Truncate(1, Offset(3), 0, 300))
    assert (shape.start, shape.end) == (3, 3)


def test_trimming_forgets_what_lies_wholly_below() -> None:
    shape = Shape(Offset(0), Offset(9), {0: 10, 3: 20, 6: 30})
    shape.apply(Trim(1, Offset(5)))
    assert facts(shape) == (5, 9, {3: 20, 6: 30})
    shape.apply(Trim(1, Offset(6)))
    assert facts(shape) == (6, 9, {6: 30})


def test_trimming_never_goes_back() -> None:
    shape = Shape(Offset(5), Offset(9), {3: 20, 6: 30})
    shape.apply(Trim(1, Offset(2)))
    assert facts(shape) == (5, 9, {3: 20, 6: 30})


def test_trimming_everything_rolls_first() -> None:
    shape = Shape(Offset(0), Offset(9), {0: 10, 3: 20})
    shape.apply(Trim(1, Offset(9), 9))
    assert facts(shape) == (9, 9, {9: 0})


def test_the_last_segment_is_never_forgotten() -> None:
    shape = Shape(Offset(0), Offset(9), {0: 10, 3: 20})
    shape.apply(Trim(1, Offset(9)))
    assert facts(shape) == (9, 9, {3: 20})


def test_create_and_delete_have_no_shape() -> None:
    shape = Shape(Offset(1), Offset(9), {0: 10})
    shape.apply(Create(1, PartitionId(UUID(int=1), 0)))
    shape.apply(Delete(1))
    assert facts(shape) == (1, 9, {0: 10})


def test_a_copy_goes_its_own_way() -> None:
    shape = Shape(Offset(0), Offset(1), {0: 10})
    twin = shape.copy()
    twin.apply(append(1, 0, 10))
    twin.apply(Trim(1, Offset(1)))
    assert facts(shape) == (0, 1, {0: 10})


@pytest.mark.parametrize(
    ("bases", "start", "below"),
    [
        ([], 5, []),
        ([0], 5, []),
        ([0, 5], 5, [0]),
        ([0, 5], 4, []),
        ([9, 0, 5], 9, [0, 5]),
        ([0, 5, 9], 100, [0, 5]),
    ],
)
def test_segments_wholly_below(bases: list[int], start: int, below: list[int]) -> None:
    assert wholly_below(bases, start) == below


@dataclass
class PlainLog:
    """Every batch with its place, kept in a list; the obvious way to know the lengths of the files."""

    start: int = 0
    end: int = 0
    batches: list[Append] = field(default_factory=list)
    empty: int | None = 0  # the last segment, while it holds nothing

    def segments(self) -> dict[int, int]:
        lengths = {entry.segment: entry.position + entry.batch.size for entry in self.batches}
        if self.empty is not None:
            lengths[self.empty] = 0
        last = max(lengths)
        following = {base: min(b for b in lengths if b > base) for base in lengths if base != last}
        return {base: size for base, size in lengths.items() if base == last or following[base] > self.start}

    def place(self, *, roll: bool) -> tuple[int, int]:
        if self.empty is not None:
            return self.empty, 0
        last = self.batches[-1]
        return (self.end, 0) if roll else (last.segment, last.position + last.batch.size)


@given(st.data())
def test_any_sequence_leaves_what_a_plain_list_says(data: st.DataObject) -> None:
    shape, plain = Shape(), PlainLog()
    for kind in data.draw(st.lists(st.sampled_from(["append", "roll", "truncate", "trim"]), max_size=30)):
        if kind in ("append", "roll"):
            segment, position = plain.place(roll=kind == "roll")
            entry = append(plain.end, segment, position, count=data.draw(st.integers(1, 3)))
            plain.batches.append(entry)
            plain.end, plain.empty = entry.batch.next_offset, None
            shape.apply(entry)
        elif kind == "truncate" and plain.batches:
            first_gone = data.draw(st.integers(0, len(plain.batches) - 1))
            gone = plain.batches[first_gone]
            if gone.batch.next_offset <= plain.start:
                continue
            plain.end = gone.batch.base_offset
            plain.start = min(plain.start, plain.end)
            plain.batches = plain.batches[:first_gone]
            kept = plain.batches and plain.batches[-1].segment == gone.segment
            plain.empty = None if kept else gone.segment
            shape.apply(Truncate(1, Offset(plain.end), gone.segment, gone.position))
        elif kind == "trim" and plain.batches:
            plain.start = data.draw(st.integers(plain.start, plain.end))
            rolled = plain.end if plain.start == plain.end and plain.empty is None else -1
            if rolled >= 0:
                plain.empty = rolled
            plain.batches = [
                entry for entry in plain.batches if entry.segment in plain.segments() and rolled < 0
            ]
            shape.apply(Trim(1, Offset(plain.start), rolled))
        pruned = shape.copy()
        pruned.prune()  # an append may leave the segment before it wholly below the start
        assert facts(pruned) == (plain.start, plain.end, plain.segments())
        assert list(shape.segments) == sorted(shape.segments)
