"""Which batches a walk shows: ranges, compaction, markers, aborted transactions, damage under each policy."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import ErrorCode
from tailrace.records import (
    HEADER_BYTES,
    NO_END,
    BadSpan,
    BatchError,
    BytesLike,
    Compression,
    Visible,
    Walk,
    build_batch,
    crc32c,
    iter_batches,
    pass_over,
    read_batch,
    rebuild_batch,
    stop,
)

MOST = (1 << 63) - 1


def plain(base: int, count: int = 3, *, codec: Compression = Compression.NONE) -> bytearray:
    return build_batch(
        [(0, None, b"%d" % (base + i), ()) for i in range(count)], base_offset=base, compression=codec
    )


def transactional(base: int, count: int = 1, *, producer_id: int = 5) -> bytearray:
    return build_batch(
        [(0, None, b"%d" % (base + i), ()) for i in range(count)],
        base_offset=base,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )


def marker(base: int, *, producer_id: int = 5, commits: bool = False) -> bytearray:
    return build_batch(
        [(0, struct.pack(">hh", 0, commits), bytes(6), ())],
        base_offset=base,
        control=True,
        transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
    )


def compacted(base: int, count: int, kept: Sequence[int]) -> bytearray:
    batch = read_batch(plain(base, count))
    return rebuild_batch(
        batch, [each for each in batch.records() if each.offset in kept], delete_horizon_ms=None
    )


def with_crc(data: bytearray) -> bytearray:
    """The batch with a checksum that is true of what it now holds."""
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data


class Walking:
    """A walk over some bytes."""

    def __init__(self, data: BytesLike, *, start: int, **parameters: Any) -> None:
        self._walk = Walk(start)
        self._batches = self._walk.over(data, **parameters)

    @property
    def next_offset(self) -> int:
        return self._walk.next_offset

    def __iter__(self) -> Iterator[Visible]:
        return self._batches


def offsets_of(walk: Walking) -> list[int]:
    """The offsets of every record to keep, found batch by batch."""
    return [record.offset for visible in walk for record in visible.records()]


def offsets(
    data: BytesLike,
    start: int = 0,
    end: int = NO_END,
    *,
    aborted: Sequence[tuple[int, int]] = (),
    may_be_cut: bool = False,
) -> list[int]:
    return offsets_of(Walking(data, start=start, end=end, aborted=aborted, may_be_cut=may_be_cut))


# ---- ranges


def test_nothing_is_no_batch() -> None:
    walk = Walking(b"", start=7)
    assert list(walk) == []
    assert walk.next_offset == 7


def test_a_batch_comes_with_its_place_and_the_offsets_to_keep() -> None:
    first, second = plain(10), plain(13, 4)
    one, other = Walking(first + second, start=11, end=15)
    assert (one.batch.base_offset, one.first, one.end, one.position) == (10, 11, 13, 0)
    assert (other.batch.base_offset, other.first, other.end, other.position) == (13, 13, 15, len(first))
    assert one.batch.data == first and other.batch.data == second


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_records_are_clipped_at_both_ends(codec: Compression) -> None:
    data = plain(0, 4, codec=codec) + plain(4, 4, codec=codec)
    for start in range(9):
        for end in range(start, 10):
            assert offsets(data, start, end) == list(range(start, min(end, 8)))


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, NO_END, 9), (0, 5, 5), (20, 30, 20), (0, 6, 6), (0, 8, 8), (1, 2, 2)]
)
def test_it_says_where_to_read_on(start: int, end: int, expected: int) -> None:
    walk = Walking(plain(0) + plain(6), start=start, end=end)
    list(walk)
    assert walk.next_offset == expected


def test_a_walk_goes_on_over_the_next_bytes() -> None:
    walk = Walk(1)
    found = [
        record.offset
        for data in (plain(0), plain(3))
        for each in walk.over(data)
        for record in each.records()
    ]
    assert (found, walk.next_offset) == ([1, 2, 3, 4, 5], 6)


def test_where_to_read_on_follows_the_walk() -> None:
    walk = Walking(plain(0) + marker(3) + plain(4) + marker(7), start=0)
    assert [(visible.first, walk.next_offset) for visible in walk] == [(0, 0), (4, 4)]
    assert walk.next_offset == 8


@pytest.mark.parametrize("end", [0, 1, 4, 5])
def test_a_range_of_no_offset_shows_nothing(end: int) -> None:
    walk = Walking(plain(0, 10), start=5, end=end)
    assert list(walk) == []
    assert walk.next_offset == 5


def test_a_batch_before_the_start_is_not_shown() -> None:
    assert [each.batch.base_offset for each in Walking(plain(0) + plain(3) + plain(6), start=6)] == [6]


def test_a_batch_behind_the_end_is_never_looked_at() -> None:
    damaged = plain(3)
    damaged[-1] ^= 1
    walk = Walking(plain(0) + damaged, start=0, end=3, check_crcs=True)
    assert offsets_of(walk) == [0, 1, 2]


def test_offsets_may_reach_the_last_that_there_is() -> None:
    assert offsets(plain(MOST - 3), MOST - 3) == [MOST - 3, MOST - 2, MOST - 1]
    with pytest.raises(BatchError, match="out of range"):
        offsets(plain(MOST - 2), MOST - 3)


# ---- compaction


def test_holes_are_passed() -> None:
    data = compacted(0, 10, [1, 4]) + compacted(10, 5, []) + compacted(40, 5, [44])
    walk = Walking(data, start=0)
    assert offsets_of(walk) == [1, 4, 44]
    assert walk.next_offset == 45


@pytest.mark.parametrize("start", [2, 3, 5, 9])
def test_a_range_that_begins_in_a_hole_of_a_batch_keeps_what_follows(start: int) -> None:
    data = compacted(0, 10, [1, 9])
    assert offsets(data, start) == [9]
    assert offsets(data, start, 9) == []


def test_an_emptied_batch_is_not_shown_and_is_passed() -> None:
    walk = Walking(compacted(5, 4, []), start=5)
    assert list(walk) == []
    assert walk.next_offset == 9


def test_an_emptied_batch_of_a_damaged_checksum_is_damage() -> None:
    data = compacted(5, 4, [])
    data[30] ^= 1
    with pytest.raises(BatchError, match="CRC"):
        list(Walking(data, start=5, check_crcs=True))


# ---- control batches and transactions


def test_control_batches_are_hidden_unless_asked_for() -> None:
    data = plain(0, 1) + marker(1) + plain(2, 1)
    assert offsets(data) == [0, 2]
    shown = Walking(data, start=0, shows_control=True)
    assert [(each.first, each.batch.is_control) for each in shown] == [(0, False), (1, True), (2, False)]


# Two producers whose transactions overlap; producer 9 ends first.
#   0: A   1: B   2: A   3: plain   4: B ends   5: B   6: A ends   7: A   8: B ends
A, B = 5, 9
OVERLAPPING = (
    transactional(0, producer_id=A)
    + transactional(1, producer_id=B)
    + transactional(2, producer_id=A)
    + plain(3, 1)
    + marker(4, producer_id=B)
    + transactional(5, producer_id=B)
    + marker(6, producer_id=A)
    + transactional(7, producer_id=A)
    + marker(8, producer_id=B)
)


@pytest.mark.parametrize(
    ("aborted", "shown"),
    [
        ([], [0, 1, 2, 3, 5, 7]),
        ([(A, 0)], [1, 3, 5, 7]),
        ([(B, 1)], [0, 2, 3, 5, 7]),
        ([(B, 5)], [0, 1, 2, 3, 7]),
        ([(A, 0), (B, 1)], [3, 5, 7]),
        ([(B, 5), (A, 0)], [1, 3, 7]),
        ([(B, 5), (B, 1)], [0, 2, 3, 7]),
        ([(A, 7), (B, 5), (B, 1), (A, 0)], [3]),
        ([(77, 0)], [0, 1, 2, 3, 5, 7]),
    ],
)
def test_aborted_transactions_are_hidden_from_their_first_offset_to_their_marker(
    aborted: list[tuple[int, int]], shown: list[int]
) -> None:
    assert offsets(OVERLAPPING, aborted=aborted) == shown
    assert offsets(OVERLAPPING, aborted=aborted[::-1]) == shown


def test_what_a_producer_writes_outside_of_transactions_is_shown() -> None:
    outside = build_batch([(0, None, b"v", ())], base_offset=1, producer_id=A, producer_epoch=0)
    assert offsets(transactional(0) + outside, aborted=[(A, 0)]) == [1]


def test_a_transaction_that_began_before_the_bytes_is_hidden_too() -> None:
    data = transactional(10) + marker(11) + transactional(12)
    assert offsets(data, 10, aborted=[(A, 3)]) == [12]


def test_batches_before_the_start_still_end_transactions() -> None:
    data = transactional(0) + marker(1) + transactional(2)
    assert offsets(data, 2, aborted=[(A, 0)]) == [2]


def test_an_emptied_marker_ends_its_transaction() -> None:
    emptied = rebuild_batch(read_batch(marker(1)), [], delete_horizon_ms=None)
    assert offsets(transactional(0) + emptied + transactional(2), aborted=[(A, 0)]) == [2]


def test_a_shown_marker_ends_its_transaction_too() -> None:
    data = transactional(0) + marker(1) + transactional(2)
    walk = Walking(data, start=0, aborted=[(A, 0)], shows_control=True)
    assert [visible.first for visible in walk] == [1, 2]


def test_the_callers_list_of_aborted_transactions_is_left_as_it_is() -> None:
    aborted = [(A, 0), (B, 1)]
    offsets(OVERLAPPING, aborted=aborted)
    assert aborted == [(A, 0), (B, 1)]


def test_the_content_of_a_marker_is_not_looked_at() -> None:
    strange = marker(1)
    strange[57:61] = bytes(4)  # bytes of no record
    walk = Walking(plain(0, 1) + with_crc(strange) + plain(2, 1), start=0, check_crcs=True)
    assert offsets_of(walk) == [0, 2]


# ---- the end of the bytes


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch_wherever_it_is_cut() -> None:
    whole, last = plain(0), plain(3)
    for cut in range(len(last)):
        walk = Walking(whole + last[:cut], start=0, check_crcs=True, may_be_cut=True)
        assert offsets_of(walk) == [0, 1, 2]
        assert walk.next_offset == 3


def test_a_first_batch_that_is_cut_off_is_damage_wherever_it_is_cut() -> None:
    data = plain(40)
    for cut in range(1, len(data)):
        with pytest.raises(BatchError, match="the batch at offset 40: ") as caught:
            offsets(data[:cut], 40, may_be_cut=True)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_bytes_that_are_cut_off_are_damage_where_batches_are_whole() -> None:
    whole, last = plain(0), plain(3)
    for cut in range(1, len(last)):
        with pytest.raises(BatchError, match="the batch at offset 3: "):
            offsets(whole + last[:cut])


def test_bytes_behind_the_last_batch_that_are_no_batch_are_damage_in_a_fetch_too() -> None:
    trailing = plain(3)
    trailing[16] = 1  # another format, and whole
    for may_be_cut in (False, True):
        with pytest.raises(BatchError, match="the batch at offset 3: "):
            offsets(plain(0) + trailing, may_be_cut=may_be_cut)


def test_every_byte_of_a_fetch_that_grows_is_read_once() -> None:
    """As a client does it: what is cut off comes again with the next fetch."""
    data = plain(0, 2) + marker(2) + plain(3, 2) + compacted(5, 4, [6]) + transactional(9, 2)
    for cut in range(len(plain(0, 2)), len(data) + 1):
        first = Walking(data[:cut], start=0, may_be_cut=True)
        found = offsets_of(first)
        found += offsets(data, first.next_offset, may_be_cut=True)
        assert found == [0, 1, 3, 4, 6, 9, 10]


# ---- damage


def wrong_crc() -> bytearray:
    data = plain(3)
    data[-1] ^= 1
    return data


def offsets_that_go_back() -> bytearray:
    return plain(2, 4)


def negative_delta() -> bytearray:
    data = plain(3)
    data[23:27] = b"\xff" * 4
    return with_crc(data)


def negative_count() -> bytearray:
    data = plain(3)
    data[57:61] = b"\xff" * 4
    return with_crc(data)


def bytes_of_no_records() -> bytearray:
    data = plain(3)
    data[57:61] = bytes(4)
    return with_crc(data)


DAMAGES = [wrong_crc, offsets_that_go_back, negative_delta, negative_count, bytes_of_no_records]
AnyDamage = pytest.mark.parametrize("damage", DAMAGES)


@AnyDamage
def test_damage_is_refused_with_its_place(damage: Callable[[], bytearray]) -> None:
    bad = damage()
    at = read_batch(bad).base_offset
    walk = Walking(plain(0) + bad + plain(6), start=0, check_crcs=True)
    found: list[int] = []
    with pytest.raises(BatchError, match=f"^the batch at offset {at}: "):
        found.extend(visible.first for visible in walk)
    assert found == [0]
    assert walk.next_offset == 3


@AnyDamage
def test_damage_is_passed_over(damage: Callable[[], bytearray]) -> None:
    walk = Walking(plain(0) + damage() + plain(6), start=0, check_crcs=True, on_damage=pass_over)
    assert offsets_of(walk) == [0, 1, 2, 6, 7, 8]
    assert walk.next_offset == 9


@AnyDamage
def test_a_walk_may_end_before_damage(damage: Callable[[], bytearray]) -> None:
    walk = Walking(plain(0) + damage() + plain(6), start=0, check_crcs=True, on_damage=stop)
    assert offsets_of(walk) == [0, 1, 2]
    assert walk.next_offset == 3


@AnyDamage
def test_damage_is_told_with_its_place_and_reason(damage: Callable[[], bytearray]) -> None:
    before, bad, after = plain(0), damage(), plain(6)
    spans: list[BadSpan] = []

    def note(span: BadSpan) -> bool:
        spans.append(span)
        return True

    assert offsets_of(Walking(before + bad + after, start=0, check_crcs=True, on_damage=note)) == [
        *range(3),
        6,
        7,
        8,
    ]
    (span,) = spans
    assert (span.position, span.size) == (len(before), len(bad))
    assert (span.first_offset, span.code) == (read_batch(bad).base_offset, ErrorCode.CORRUPT_MESSAGE)
    assert span.reason and span.next_offset is not None and span.next_offset > span.first_offset


def test_an_error_of_the_policy_ends_the_walk() -> None:
    def fail(span: BadSpan) -> bool:
        raise LookupError(span.first_offset)

    with pytest.raises(LookupError, match="3"):
        list(Walking(plain(0) + wrong_crc(), start=0, check_crcs=True, on_damage=fail))


def test_checksums_are_not_looked_at_unless_asked_for() -> None:
    assert [each.first for each in Walking(plain(0) + wrong_crc(), start=0)] == [0, 3]


def test_offsets_grow_over_damage_too() -> None:
    spans: list[BadSpan] = []

    def note(span: BadSpan) -> bool:
        spans.append(span)
        return True

    data = plain(0) + wrong_crc() + plain(3) + plain(2) + plain(4)
    assert offsets_of(Walking(data, start=0, check_crcs=True, on_damage=note)) == [0, 1, 2, 4, 5, 6]
    assert [span.first_offset for span in spans] == [3, 3, 2]


def test_the_next_batch_tells_where_damage_ends_and_else_its_header() -> None:
    far = wrong_crc()
    far[23:27] = (1000).to_bytes(4, "big")  # claims offsets 3 to 1003
    between = Walking(far + plain(6), start=0, check_crcs=True, on_damage=pass_over)
    assert (offsets_of(between), between.next_offset) == ([6, 7, 8], 9)
    last = Walking(far, start=0, check_crcs=True, on_damage=pass_over)
    assert (offsets_of(last), last.next_offset) == ([], 1004)
    bounded = Walking(far, start=0, end=500, check_crcs=True, on_damage=pass_over)
    assert (offsets_of(bounded), bounded.next_offset) == ([], 500)


@pytest.mark.parametrize("length", [-1, 0, 48, -(1 << 31)])
@pytest.mark.parametrize("policy", [pass_over, stop])
def test_where_a_length_makes_no_sense_the_rest_is_one_span(
    length: int, policy: Callable[[BadSpan], bool]
) -> None:
    spans: list[BadSpan] = []

    def note(span: BadSpan) -> bool:
        spans.append(span)
        return policy(span)

    bad = plain(3)
    bad[8:12] = length.to_bytes(4, "big", signed=True)
    data = plain(0) + bad + plain(6)
    walk = Walking(data, start=0, may_be_cut=True, on_damage=note)
    assert offsets_of(walk) == [0, 1, 2]
    (span,) = spans
    assert (span.position, span.position + span.size) == (len(plain(0)), len(data))
    assert (span.first_offset, span.next_offset, walk.next_offset) == (3, None, 3)


def test_records_that_make_no_sense_are_an_error_of_the_batch_and_not_of_the_walk() -> None:
    broken = plain(3)
    broken[HEADER_BYTES:] = b"\xff" * (len(broken) - HEADER_BYTES)
    shown = list(Walking(plain(0) + with_crc(broken) + plain(6), start=0, check_crcs=True))
    assert [each.first for each in shown] == [0, 3, 6]
    with pytest.raises(BatchError):
        list(shown[1].records())


# ---- against a rule of one line per record


class Part(NamedTuple):
    """One batch of a generated log."""

    kind: str
    producer_id: int
    gap: int
    size: int
    kept: int
    """Bits that say which records compaction kept."""


PART = st.builds(
    Part,
    kind=st.sampled_from(["plain", "transactional", "transactional", "commit", "abort"]),
    producer_id=st.integers(1, 3),
    gap=st.sampled_from([0, 0, 0, 1, 3]),
    size=st.integers(1, 4),
    kept=st.sampled_from([15, 15, 15, 0, 5, 8]),
)


class Log(NamedTuple):
    """Bytes, the transactions in them that were aborted, and every record with whether it is shown."""

    data: bytes
    aborted: list[tuple[int, int]]
    records: list[tuple[int, bool]]
    end: int


def log_of(parts: list[Part]) -> Log:
    """A log as a broker writes it; transactions that have no marker by its end are aborted after it."""
    data = bytearray()
    offset = 0
    open_since: dict[int, int] = {}
    open_records: dict[int, list[int]] = {}
    hidden: set[int] = set()
    aborted: list[tuple[int, int]] = []
    records: list[int] = []
    for part in parts:
        offset += part.gap
        if part.kind in ("commit", "abort"):
            data += marker(offset, producer_id=part.producer_id, commits=part.kind == "commit")
            since = open_since.pop(part.producer_id, None)
            written = open_records.pop(part.producer_id, [])
            if since is not None and part.kind == "abort":
                aborted.append((part.producer_id, since))
                hidden.update(written)
            offset += 1
            continue
        is_open = part.kind == "transactional"
        built = (
            transactional(offset, part.size, producer_id=part.producer_id)
            if is_open
            else plain(offset, part.size)
        )
        batch = read_batch(built)
        kept = [each for i, each in enumerate(batch.records()) if part.kept >> i & 1]
        data += rebuild_batch(batch, kept, delete_horizon_ms=None)
        records += [each.offset for each in kept]
        if is_open:
            open_since.setdefault(part.producer_id, offset)
            open_records.setdefault(part.producer_id, []).extend(each.offset for each in kept)
        offset = batch.next_offset
    for producer_id, since in open_since.items():
        aborted.append((producer_id, since))
        hidden.update(open_records[producer_id])
    return Log(bytes(data), aborted, [(each, each not in hidden) for each in records], offset)


@settings(deadline=None, max_examples=300)
@given(st.lists(PART, max_size=12), st.integers(0, 50), st.integers(0, 50), st.booleans())
def test_a_walk_shows_what_a_rule_for_single_records_shows(
    parts: list[Part], start: int, length: int, is_reversed: bool
) -> None:
    log, end = log_of(parts), start + length
    aborted = log.aborted[::-1] if is_reversed else log.aborted
    walk = Walking(log.data, start=start, end=end, aborted=aborted, check_crcs=True)
    assert offsets_of(walk) == [
        offset for offset, is_shown in log.records if is_shown and start <= offset < end
    ]
    assert walk.next_offset == max(start, min(end, log.end))
    everything = Walking(log.data, start=start, end=end, check_crcs=True)
    assert offsets_of(everything) == [offset for offset, _ in log.records if start <= offset < end]


@settings(deadline=None, max_examples=200)
@given(st.lists(PART, min_size=1, max_size=6), st.data())
def test_a_flipped_byte_hides_its_batch_and_no_other(parts: list[Part], data: st.DataObject) -> None:
    """Of the bytes that a checksum covers: without transactions, so that no marker can be lost."""
    log = log_of([part._replace(kind="plain") for part in parts])
    batches = list(iter_batches(log.data))
    flipped = data.draw(st.integers(0, len(batches) - 1))
    begin = sum(batch.size for batch in batches[:flipped])
    at = begin + data.draw(st.integers(21, batches[flipped].size - 1))
    damaged = bytearray(log.data)
    damaged[at] ^= data.draw(st.integers(1, 255))
    bad: list[int] = []

    def note(span: BadSpan) -> bool:
        bad.append(span.position)
        return True

    found = offsets_of(Walking(damaged, start=0, check_crcs=True, on_damage=note))
    expected = [each.offset for i, batch in enumerate(batches) if i != flipped for each in batch.records()]
    assert (found, bad) == (expected, [begin])
