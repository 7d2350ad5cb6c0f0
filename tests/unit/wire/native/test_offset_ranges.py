"""Offsets of an acknowledgement as text: round trips, and everything that is not ascending offsets."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.native import OFFSET_RANGES_MAX, PROPERTIES_BYTES_MAX, read_offsets, write_offsets

GREATEST = 2**63 - 2  # an end is one more, and fits int64

boundaries = st.lists(st.integers(0, GREATEST + 1) | st.integers(0, 30), min_size=2, max_size=20, unique=True)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("5,7-9", [(5, 6), (7, 10)]),
        ("0", [(0, 1)]),
        ("0-0", [(0, 1)]),
        ("1,2,3-4", [(1, 2), (2, 3), (3, 5)]),
        ("007", [(7, 8)]),
        (str(GREATEST), [(GREATEST, GREATEST + 1)]),
    ],
)
def test_offsets_are_read_as_half_open_ranges(text: str, ranges: list[tuple[int, int]]) -> None:
    assert read_offsets(text) == ranges


def test_ranges_are_written_with_both_ends() -> None:
    assert write_offsets([(5, 6), (7, 10)]) == "5,7-9"


@given(boundaries=boundaries)
def test_ranges_come_back(boundaries: list[int]) -> None:
    ordered = sorted(boundaries)
    ranges = list(zip(ordered[::2], ordered[1::2], strict=False))
    assert read_offsets(write_offsets(ranges)) == ranges


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "5,", ",5", "5,,6", "-", "5-", "-5", "5-6-7", "5--6"),
        *(" 5", "5 ", "+5", "-5-6", "1_0", "5.0", "0x5", "a", "٣", "²", "5\n"),
        *("9-8", "5,5", "5,4", "5-9,9", "5-9,7-8", "5-9,3"),
        *(str(GREATEST + 1), str(2**64), "9" * 19, "1" * 20, "0-" + "9" * 5000),
    ],
)
def test_anything_else_is_refused_and_the_text_is_named(text: str) -> None:
    with pytest.raises(BrokerError, match="_offsets = ") as caught:
        read_offsets(text)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert len(str(caught.value)) < 250


def test_as_many_ranges_as_allowed_fit_into_the_properties_of_a_frame() -> None:
    most = [(GREATEST - 3 * at, GREATEST - 3 * at + 2) for at in range(OFFSET_RANGES_MAX)][::-1]
    most = [(start - 10, end - 10) for start, end in most]
    text = write_offsets(most)
    assert read_offsets(text) == most
    assert len(text) < PROPERTIES_BYTES_MAX - 1024


def test_more_ranges_than_allowed_are_refused_either_way() -> None:
    many = [(2 * at, 2 * at + 1) for at in range(OFFSET_RANGES_MAX + 1)]
    with pytest.raises(BrokerError, match="1 to 1000 do"):
        write_offsets(many)
    with pytest.raises(BrokerError, match="over 1000 ranges"):
        read_offsets(",".join(str(start) for start, _ in many))


def test_no_ranges_are_not_written() -> None:
    with pytest.raises(BrokerError, match="0 ranges"):
        write_offsets([])


@given(text=st.text(st.sampled_from("0123456789,-"), max_size=12))
def test_noise_is_read_or_refused(text: str) -> None:
    try:
        ranges = read_offsets(text)
    except BrokerError:
        return
    assert all(start < end for start, end in ranges)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ranges))
