"""Checking spans of batches: both twins against checksums taken by crc32c, whole and damaged everywhere."""

from __future__ import annotations

import random
from array import array
from types import ModuleType
from typing import TypeAlias

import pytest

from tailrace.records import UNCHECKED_BYTES, build_batch, crc32c

Spans: TypeAlias = "tuple[bytearray, array[int], array[int], bytearray]"


@pytest.fixture
def spans() -> Spans:
    """A segment's worth in small: spans of several batches, and single ones, of many sizes."""
    rng = random.Random(5)
    data, positions, checksums, singles = bytearray(), array("I", [0]), array("I", [0]), bytearray(1)
    for size in (1, 20, 63, 64, 191, 192, 500, 3071, 3072, 3073, 7000, 20000):
        single = rng.random() < 0.5
        records = [(1, None, rng.randbytes(size), ())]
        span = b"".join(build_batch(records) for _ in range(1 if single else 2))
        data += span
        positions.append(len(data))
        checksums.append(crc32c(span[:UNCHECKED_BYTES] if single else span))
        singles.append(single)
    return data, positions, checksums, singles


def require(twin: ModuleType) -> ModuleType:
    if not getattr(twin, "CHECKS_SPANS", True):
        pytest.skip("this processor has no CRC32C instruction")
    return twin


def test_sound_spans_pass(twin: ModuleType, spans: Spans) -> None:
    data, *index = spans
    check = require(twin).check_spans
    assert check(memoryview(data), *index, 0, 12) == -1
    for first in range(12):
        begin, end = index[0][first], index[0][first + 1]
        assert check(memoryview(data)[begin:end], *index, first, first + 1) == -1


def test_any_flipped_bit_is_found_in_its_span(twin: ModuleType, spans: Spans) -> None:
    data, *index = spans
    check = require(twin).check_spans
    rng = random.Random(6)
    edges = [place + delta for place in index[0][:-1] for delta in range(24)]
    for place in [*edges, *(rng.randrange(len(data)) for _ in range(400))]:
        wrong = bytearray(data)
        wrong[place] ^= 1 << rng.randrange(8)
        span = sum(position <= place for position in index[0]) - 1
        assert check(memoryview(wrong), *index, 0, 12) == span


def test_missing_bytes_are_not_sound(twin: ModuleType, spans: Spans) -> None:
    data, *index = spans
    check = require(twin).check_spans
    assert check(memoryview(data)[:-1], *index, 0, 12) == 11
    assert check(memoryview(b""), *index, 3, 5) == 3


def test_positions_that_go_back_are_not_sound(twin: ModuleType, spans: Spans) -> None:
    data, positions, checksums, singles = spans
    positions[5] = positions[4] - 1
    assert require(twin).check_spans(memoryview(data), positions, checksums, singles, 0, 12) == 4


def test_spans_past_the_index_are_refused(twin: ModuleType, spans: Spans) -> None:
    data, *index = spans
    with pytest.raises(IndexError):
        require(twin).check_spans(memoryview(data), *index, 0, 13)
