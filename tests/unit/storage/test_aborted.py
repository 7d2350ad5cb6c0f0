"""Lists of aborted transactions: what a read needs of them, against a plain search; and the written form."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from tailrace.records import crc32c
from tailrace.storage.aborted import AbortedEntry, AbortedList, read_aborted, write_aborted

ENTRIES = [AbortedEntry(7, 2, 5, 3), AbortedEntry(8, 3, 9, 10), AbortedEntry(7, 12, 20, 21)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[AbortedEntry], int]:
    """Aborted entries as a log makes them, and its end."""
    opened: dict[int, int] = {}
    entries: list[AbortedEntry] = []
    steps = draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("dac")), max_size=30))
    for offset, (producer_id, kind) in enumerate(steps):
        if kind == "d":
            opened.setdefault(producer_id, offset)
        elif producer_id in opened:
            first = opened.pop(producer_id)
            if kind == "a":
                stable = min(opened.values(), default=offset + 1)
                entries.append(AbortedEntry(producer_id, first, offset, stable))
    return entries, len(steps)


@given(histories(), st.integers(0, 30), st.integers(0, 30))
def test_a_read_is_told_of_every_transaction_that_it_meets(
    history: tuple[list[AbortedEntry], int], first: int, length: int
) -> None:
    entries, _ = history
    end = first + length
    expected = [(e.producer_id, e.first_offset) for e in entries if e.marker_offset >= first]
    expected = [each for each in expected if each[1] < end]
    assert list(AbortedList(entries).find(first, end)) == expected


def test_entries_come_and_go_in_order_of_their_markers() -> None:
    known = AbortedList()
    for entry in ENTRIES:
        known.add(entry)
    assert known == AbortedList(ENTRIES)
    assert known.between(5, 20) == ENTRIES[:2]
    twin = known.copy()
    known.truncate(20)
    assert list(known) == ENTRIES[:2]
    known.trim(6)
    assert list(known) == ENTRIES[1:2]
    assert list(twin) == ENTRIES
    twin.remove([9])
    assert list(twin) == [ENTRIES[0], ENTRIES[2]]
    assert list(twin.find(0, 100)) == [(7, 2), (7, 12)]


def test_the_written_form() -> None:
    body = struct.pack("<qqqq", 7, 2, 5, 3)
    head = struct.pack("<8sq", b"TRABORT1", 4)
    expected = head + struct.pack("<I", crc32c(body, crc32c(head))) + body
    assert write_aborted(4, ENTRIES[:1]) == expected
    assert read_aborted(expected, 4) == ENTRIES[:1]
    assert read_aborted(write_aborted(0, ENTRIES), 0) == ENTRIES
    assert read_aborted(write_aborted(0, []), 0) == []


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    whole = bytearray(write_aborted(0, ENTRIES))
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        assert read_aborted(bytes(whole), 0) is None, bit
        whole[bit // 8] ^= 1 << bit % 8
    for length in range(len(whole)):
        assert read_aborted(bytes(whole[:length]), 0) is None, length


def test_the_list_of_another_segment_is_refused() -> None:
    assert read_aborted(write_aborted(4, ENTRIES), 5) is None


def test_entries_out_of_order_are_refused_even_under_a_right_checksum() -> None:
    assert read_aborted(write_aborted(0, ENTRIES[::-1]), 0) is None
    assert read_aborted(write_aborted(0, [AbortedEntry(7, 5, 5, 6)]), 0) is None
    assert read_aborted(write_aborted(6, ENTRIES[:1]), 6) is None
