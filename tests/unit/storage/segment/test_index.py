"""The span index against plain searches of generated segments, and its files with every bit flipped."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records import HEADER_BYTES, Batch, build_batch, iter_batches, read_batch
from tailrace.storage.segment.index import (
    LARGE_BATCH_BYTES,
    NO_TIMESTAMP,
    IndexState,
    SpanIndex,
    read_following,
    read_index,
    write_footers,
    write_headers,
)

BASE = 1000


@dataclass(frozen=True, slots=True)
class Draft:
    """A batch to be: records, offsets left out before it, bytes of its values, its timestamp."""

    count: int = 1
    gap: int = 0
    value_bytes: int = 10
    timestamp: int = 0


drafts = st.builds(
    Draft, st.integers(1, 4), st.sampled_from([0, 0, 0, 1, 7]), st.integers(0, 200), st.integers(-5, 60)
)
segments = st.lists(drafts, min_size=1, max_size=25)
intervals = st.sampled_from([1, 100, 300, 1000, 1 << 20])


def batches_of(made: list[Draft]) -> list[Batch]:
    found, offset = [], BASE
    for number, draft in enumerate(made):
        offset += draft.gap
        value = (b"%d." % number * draft.value_bytes)[: draft.value_bytes]
        data = build_batch(
            [(draft.timestamp, None, value, ())] * draft.count, base_offset=offset, leader_epoch=3
        )
        found.append(read_batch(data))
        offset += draft.count
    return found


def index_of(batches: list[Batch], interval_bytes: int, *, seal: bool = True) -> SpanIndex:
    index = SpanIndex(BASE, interval_bytes)
    for batch in batches:
        index.add(batch)
    if seal:
        index.seal(batches[-1].next_offset)
    return index


def end_of(batches: list[Batch]) -> int:
    """The offset that follows; a segment without batches ends where it begins."""
    return batches[-1].next_offset if batches else BASE


def bytes_of(batches: list[Batch]) -> memoryview:
    return memoryview(bytearray(b"".join(batch.data for batch in batches)))


def span(index: SpanIndex, number: int, data: memoryview) -> memoryview:
    return data[index.positions[number] : index.positions[number + 1]]


def large(offset: int = BASE) -> Batch:
    return read_batch(build_batch([(9, None, bytes(LARGE_BATCH_BYTES), ())], base_offset=offset))


# ---- spans


@given(segments, intervals)
def test_spans_are_whole_batches_and_end_when_they_are_full(made: list[Draft], interval_bytes: int) -> None:
    batches = batches_of(made)
    index, data = index_of(batches, interval_bytes), bytes_of(batches)
    assert index.end == index.closed_position == len(data)
    assert index.closed_offset == batches[-1].next_offset
    for number in range(len(index)):
        inside = list(iter_batches(span(index, number, data)))
        assert sum(batch.size for batch in inside[:-1]) < interval_bytes
        assert index.offsets[number + 1] + BASE == inside[-1].next_offset
        if number < len(index) - 1:
            assert sum(batch.size for batch in inside) >= interval_bytes


@given(segments, intervals)
def test_the_greatest_timestamp_so_far_is_noted(made: list[Draft], interval_bytes: int) -> None:
    batches = batches_of(made)
    index = index_of(batches, interval_bytes)
    for number in range(len(index)):
        before = [b.max_timestamp for b in batches if b.next_offset - BASE <= index.offsets[number + 1]]
        assert index.times[number + 1] == max(before)
    assert index.max_timestamp == max(batch.max_timestamp for batch in batches)


def test_a_new_index_has_no_span() -> None:
    index = SpanIndex(BASE, 100)
    assert (len(index), index.end, index.closed_offset, index.max_timestamp) == (0, 0, BASE, NO_TIMESTAMP)
    index.seal(BASE)
    assert len(index) == 0


def test_an_open_span_is_not_counted() -> None:
    batches = batches_of([Draft(), Draft()])
    index = index_of(batches, 1 << 20, seal=False)
    assert len(index) == 0
    assert index.end == sum(batch.size for batch in batches)
    assert index.closed_position == 0
    index.seal(batches[-1].next_offset)
    index.seal(batches[-1].next_offset)
    assert len(index) == 1


def test_a_large_batch_is_a_span_by_itself() -> None:
    before, after = (
        batches_of([Draft()])[0],
        read_batch(build_batch([(1, None, b"", ())], base_offset=BASE + 2)),
    )
    batches = [before, large(BASE + 1), after]
    index = index_of(batches, 1 << 20)
    assert list(index.offsets) == [0, 1, 2, 3]
    assert list(index.singles) == [0, 0, 1, 0]


def test_a_batch_of_just_the_limit_is_not_large() -> None:
    overhead = read_batch(build_batch([(1, None, bytes(4000), ())])).size - 4000
    data = build_batch([(1, None, bytes(LARGE_BATCH_BYTES - overhead), ())], base_offset=BASE)
    assert len(data) == LARGE_BATCH_BYTES
    assert list(index_of([read_batch(data)], 1 << 20).singles) == [0, 0]
    assert list(index_of([large()], 1 << 20).singles) == [0, 1]


# ---- finding


@given(segments, intervals)
def test_every_offset_is_found_in_the_span_that_holds_it(made: list[Draft], interval_bytes: int) -> None:
    batches = batches_of(made)
    index, data = index_of(batches, interval_bytes), bytes_of(batches)
    for batch in batches:
        for offset in range(batch.base_offset, batch.next_offset):
            inside = iter_batches(span(index, index.span_of(offset), data))
            assert any(b.base_offset <= offset < b.next_offset for b in inside)


@given(segments, intervals)
def test_an_offset_in_a_gap_never_leads_past_what_follows_it(made: list[Draft], interval_bytes: int) -> None:
    batches = batches_of(made)
    index = index_of(batches, interval_bytes)
    for offset in range(BASE, batches[-1].next_offset):
        following = min(batch.base_offset for batch in batches if batch.next_offset > offset)
        assert index.span_of(offset) <= index.span_of(following)


def test_an_offset_past_the_end_is_in_no_span() -> None:
    index = index_of(batches_of([Draft(3), Draft(2)]), 50)
    assert index.span_of(BASE + 5) == len(index)
    assert index.span_of(BASE + 500) == len(index)


@given(segments, intervals, st.integers(-7, 63))
def test_a_time_is_found_in_the_first_span_that_reaches_it(
    made: list[Draft], interval_bytes: int, timestamp: int
) -> None:
    batches = batches_of(made)
    index, data = index_of(batches, interval_bytes), bytes_of(batches)
    expected = next(
        (
            number
            for number in range(len(index))
            if any(b.max_timestamp >= timestamp for b in iter_batches(span(index, number, data)))
        ),
        len(index),
    )
    assert index.span_at_time(timestamp) == expected


def test_an_index_without_spans_finds_no_time() -> None:
    assert SpanIndex(BASE, 100).span_at_time(0) == 0


def test_the_smallest_time_there_is_is_found_in_the_first_span() -> None:
    assert index_of(batches_of([Draft(), Draft()]), 1).span_at_time(NO_TIMESTAMP) == 0


# ---- checking


@given(segments, st.sampled_from([1, 150, 1 << 20]), st.data())
def test_what_was_written_passes(made: list[Draft], interval_bytes: int, data: st.DataObject) -> None:
    batches = batches_of(made)
    index, whole = index_of(batches, interval_bytes), bytes_of(batches)
    first = data.draw(st.integers(0, len(index) - 1))
    last = data.draw(st.integers(first, len(index)))
    assert index.check(first, last, whole[index.positions[first] : index.positions[last]]) is None


def test_any_flipped_bit_of_any_span_is_found_there() -> None:
    batches = batches_of([Draft(2), Draft(1, gap=3), Draft(3), Draft(1, value_bytes=90), Draft()])
    index, data = index_of(batches, 150), bytes_of(batches)
    assert len(index) >= 3
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        holder = max(n for n in range(len(index)) if index.positions[n] <= bit // 8)
        assert index.check(0, len(index), data) == holder, bit
        data[bit // 8] ^= 1 << bit % 8


def test_any_flipped_bit_of_a_large_batch_is_found() -> None:
    """Its checksum covers the header that the batch's own CRC leaves out, and that CRC covers the rest."""
    batch = large()
    index, data = index_of([batch], 100), bytes_of([batch])
    assert index.check(0, 1, data) is None
    places = [*range(HEADER_BYTES + 20), *range(HEADER_BYTES + 20, len(data), 997), len(data) - 1]
    for place in places:
        for bit in range(8):
            data[place] ^= 1 << bit
            assert index.check(0, 1, data) == 0, (place, bit)
            data[place] ^= 1 << bit


def test_a_batch_with_another_offset_or_epoch_is_not_what_was_written() -> None:
    for batch in (batches_of([Draft()])[0], large()):
        index = index_of([batch], 1)
        forged = read_batch(bytearray(batch.data))
        forged.assign(batch.base_offset, batch.leader_epoch)
        assert index.check(0, 1, forged.data) is None
        forged.assign(type(batch.base_offset)(batch.base_offset + 1), batch.leader_epoch)
        assert index.check(0, 1, forged.data) == 0


def test_the_first_of_several_bad_spans_is_named() -> None:
    batches = batches_of([Draft()] * 6)
    index, data = index_of(batches, 1), bytes_of(batches)
    for number in (4, 2):
        data[index.positions[number] + 30] ^= 1
    assert index.check(0, 6, data) == 2
    assert index.check(3, 6, data[index.positions[3] :]) == 4


def test_unreadable_bytes_never_pass() -> None:
    first, second = batches_of([Draft(), Draft(2)])
    for header in (None, second.data):
        index = SpanIndex(BASE, 1 << 20)
        index.add(first)
        index.add_unreadable(
            offset=second.base_offset, size=second.size, next_offset=second.next_offset, header=header
        )
        assert index.end == first.size + second.size
        assert index.closed_offset == second.next_offset
        bad = len(index) - 1
        for data in (bytes(second.size), b"\xff" * second.size, bytes(second.data[:-1]) + b"\x01"):
            assert index.check(bad, bad + 1, memoryview(data)) == bad


def test_what_lies_before_unreadable_bytes_is_found_and_passes() -> None:
    first, second = batches_of([Draft(5), Draft(2)])
    index = SpanIndex(BASE, 1 << 20)
    index.add(first)
    index.add_unreadable(
        offset=second.base_offset, size=second.size, next_offset=second.next_offset, header=second.data
    )
    for offset in range(first.base_offset, first.next_offset):
        assert index.span_of(offset) == 0
    assert index.check(0, 1, first.data) is None
    assert index.span_of(second.base_offset) == 1


# ---- cutting


@given(segments, intervals, st.data())
def test_a_cut_index_is_the_one_of_a_shorter_segment(
    made: list[Draft], interval_bytes: int, data: st.DataObject
) -> None:
    batches = batches_of(made)
    index = index_of(batches, interval_bytes, seal=False)
    kept = batches[: data.draw(st.integers(0, len(batches)))]
    position, offset = sum(batch.size for batch in kept), end_of(kept)
    cut = index.cut(position, offset=offset)
    assert cut.closed_position == cut.end <= position
    assert cut.closed_offset <= offset
    for batch in kept:
        if batch.next_offset > cut.closed_offset:  # the open rest must be added again
            cut.add(batch)
    fresh = SpanIndex(BASE, interval_bytes)
    for batch in kept:
        fresh.add(batch)
    assert everything(cut) == everything(fresh)


def test_a_span_that_reaches_over_a_gap_is_cut_with_the_gap() -> None:
    """Sealed, the last span ends where the next segment begins; a truncation may end in between."""
    batches = batches_of([Draft(), Draft()])
    index = index_of(batches, 1 << 20, seal=False)
    index.seal(BASE + 9)
    assert len(index.cut(index.end, offset=BASE + 9)) == 1
    assert len(index.cut(index.end, offset=BASE + 5)) == 0


def test_a_cut_index_is_not_sealed() -> None:
    index = index_of(batches_of([Draft()] * 3), 1)
    assert index.following == BASE + 3
    assert index.cut(index.end, offset=BASE + 3).following is None


def test_a_cut_leaves_the_original_alone() -> None:
    index = index_of(batches_of([Draft()] * 5), 1)
    before = everything(index)
    cut = index.cut(index.positions[2], offset=BASE + 2)
    cut.add(batches_of([Draft(value_bytes=50)])[0])
    assert everything(index) == before


def cut_to(index: SpanIndex, spans: int) -> SpanIndex:
    return index.cut(index.positions[spans], offset=index.offsets[spans] + BASE)


def everything(index: SpanIndex) -> tuple[object, ...]:
    columns = (index.offsets, index.positions, index.checksums, index.times, index.singles)
    return (*map(list, columns), index.end, index.open_crc, index.max_timestamp, index.following)


# ---- as files


def sealed_files(index: SpanIndex) -> tuple[bytes, bytes]:
    places, times = index.write_entries(0)
    headers, footers = write_headers(index.base), write_footers(state_of(index), following_of(index))
    return headers[0] + places + footers[0], headers[1] + times + footers[1]


def following_of(index: SpanIndex) -> int:
    assert index.following is not None
    return index.following


def state_of(index: SpanIndex) -> IndexState:
    """What `IndexState.cut` says of an index that was wholly durable."""
    return IndexState(len(index) + 1).cut(index)


def read_sealed(places: bytes, times: bytes, *, base: int = BASE) -> SpanIndex | None:
    return read_index(places, times, base=base, interval_bytes=100, state=None)


@given(segments, intervals)
def test_a_sealed_index_is_read_as_it_was_written(made: list[Draft], interval_bytes: int) -> None:
    index = index_of(batches_of(made), interval_bytes)
    found = read_index(*sealed_files(index), base=BASE, interval_bytes=interval_bytes, state=None)
    assert found is not None
    assert everything(found) == everything(index)


def test_a_large_batch_is_still_one_when_it_is_read_back() -> None:
    index = index_of([large()], 100)
    found = read_sealed(*sealed_files(index))
    assert found is not None
    assert list(found.singles) == [0, 1]
    assert list(found.positions) == list(index.positions)


def test_every_flipped_bit_of_a_sealed_index_is_noticed() -> None:
    files = sealed_files(index_of(batches_of([Draft()] * 4), 100))
    for which in (0, 1):
        for bit in range(8 * len(files[which])):
            damaged = [bytearray(file) for file in files]
            damaged[which][bit // 8] ^= 1 << bit % 8
            assert read_sealed(bytes(damaged[0]), bytes(damaged[1])) is None, (which, bit)


def test_every_cut_of_a_sealed_index_is_noticed() -> None:
    places, times = sealed_files(index_of(batches_of([Draft()] * 4), 100))
    for length in range(len(places)):
        assert read_sealed(places[:length], times) is None
    for length in range(len(times)):
        assert read_sealed(places, times[:length]) is None
    assert read_sealed(places + b"\0", times) is None
    assert read_sealed(places, times + b"\0") is None


def test_an_index_of_another_segment_is_noticed() -> None:
    index = index_of(batches_of([Draft()] * 4), 100)
    assert read_sealed(*sealed_files(index), base=BASE + 1) is None
    places, times = sealed_files(index)
    assert read_sealed(times, places) is None


def test_a_sealed_index_names_the_segment_that_follows() -> None:
    batches = batches_of([Draft()] * 4)
    index = index_of(batches, 1, seal=False)
    index.seal(BASE + 77)
    places, times = sealed_files(index)
    assert read_following(places) == read_following(times) == BASE + 77
    found = read_sealed(places, times)
    assert found is not None
    assert found.following == BASE + 77


def test_two_files_that_name_different_followers_are_no_index() -> None:
    pairs = []
    for following in (BASE + 4, BASE + 5):
        index = index_of(batches_of([Draft()] * 4), 1, seal=False)
        index.seal(following)
        pairs.append(sealed_files(index))
    assert read_sealed(pairs[0][0], pairs[1][1]) is None


@pytest.mark.parametrize("data", [b"", bytes(39), bytes(200), b"TRSEALED" * 2])
def test_without_a_footer_no_follower_is_named(data: bytes) -> None:
    assert read_following(data) is None


def test_two_files_that_count_differently_are_no_index() -> None:
    four, five = (sealed_files(index_of(batches_of([Draft()] * count), 1)) for count in (4, 5))
    assert read_sealed(four[0], five[1]) is None


@given(segments, intervals, st.data())
def test_an_unsealed_index_is_read_up_to_what_is_durable(
    made: list[Draft], interval_bytes: int, data: st.DataObject
) -> None:
    index = index_of(batches_of(made), interval_bytes)
    kept = cut_to(index, data.draw(st.integers(0, len(index))))
    places, times = (
        header + body for header, body in zip(write_headers(BASE), index.write_entries(0), strict=True)
    )
    rest = data.draw(st.binary(max_size=30))  # whatever a crash left behind the durable entries
    durable_places, durable_times = 16 + 12 * len(kept), 16 + 8 * len(kept)
    found = read_index(
        places[:durable_places] + rest,
        times[:durable_times] + rest,
        base=BASE,
        interval_bytes=interval_bytes,
        state=state_of(kept),
    )
    assert found is not None
    assert everything(found) == everything(kept)


def test_every_flipped_bit_of_durable_entries_is_noticed() -> None:
    index = index_of(batches_of([Draft()] * 5), 1)
    kept = cut_to(index, 3)
    files = [header + body for header, body in zip(write_headers(BASE), index.write_entries(0), strict=True)]
    for which, size in ((0, 16 + 3 * 12), (1, 16 + 3 * 8)):
        for bit in range(8 * size):
            damaged = [bytearray(file) for file in files]
            damaged[which][bit // 8] ^= 1 << bit % 8
            found = read_index(
                bytes(damaged[0]), bytes(damaged[1]), base=BASE, interval_bytes=1, state=state_of(kept)
            )
            assert found is None, (which, bit)


def test_missing_durable_entries_are_noticed() -> None:
    index = index_of(batches_of([Draft()] * 3), 1)
    files = [header + body for header, body in zip(write_headers(BASE), index.write_entries(0), strict=True)]
    for length in range(len(files[0])):
        assert (
            read_index(files[0][:length], files[1], base=BASE, interval_bytes=1, state=state_of(index))
            is None
        )
    for length in range(len(files[1])):
        assert (
            read_index(files[0], files[1][:length], base=BASE, interval_bytes=1, state=state_of(index))
            is None
        )


@given(segments, st.data())
def test_entries_may_be_written_in_pieces(made: list[Draft], data: st.DataObject) -> None:
    index = index_of(batches_of(made), 1)
    first = data.draw(st.integers(0, len(index)))
    whole, before, after = index.write_entries(0), cut_to(index, first), index.write_entries(first)
    pieces = [one + other for one, other in zip(before.write_entries(0), after, strict=True)]
    assert pieces == list(whole)


def test_a_durable_state_is_cut_with_its_index() -> None:
    index = index_of(batches_of([Draft()] * 5), 1)
    whole, shorter = state_of(index), cut_to(index, 2)
    assert whole.cut(index) == whole
    assert whole.cut(shorter) == state_of(shorter)
    assert state_of(shorter).cut(index) == state_of(shorter)


def test_memory_grows_with_the_spans() -> None:
    small, larger = (index_of(batches_of([Draft()] * count), 1) for count in (2, 20))
    assert 0 < small.memory_bytes < larger.memory_bytes
