"""Producer states: KIP-98's rules on hand-made batches, the written form, and hostile bytes."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import BrokerError, ErrorCode
from tailrace.records import Batch, build_batch, read_batch
from tailrace.storage import ProducerStates
from tailrace.storage.producers import BATCHES_KEPT, fair_limit

LAST_SEQUENCE = (1 << 31) - 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


def batch_of(
    sequence: int,
    *,
    producer_id: int = 9,
    epoch: int = 0,
    count: int = 1,
    offset: int = 0,
    timestamp: int = 1000,
    control: bool = False,
) -> Batch:
    data = build_batch(
        [(timestamp, b"k", b"v", ())] * count,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=control,
        control=control,
    )
    return read_batch(data)


def marker(*, epoch: int, offset: int = 0) -> Batch:
    return batch_of(-1, epoch=epoch, offset=offset, control=True)


def states_of(*batches: Batch) -> ProducerStates:
    states = ProducerStates()
    for batch in batches:
        states.apply(batch)
    return states


def refusal(states: ProducerStates, batch: Batch) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        states.check(batch)
    return caught.value.code


def test_a_batch_without_a_producer_leaves_no_trace() -> None:
    plain = batch_of(-1, producer_id=-1, epoch=-1)
    states = states_of(plain)
    assert len(states) == 0
    assert states.check(plain) is None


@pytest.mark.parametrize("sequence", [0, 5, LAST_SEQUENCE])
def test_an_unknown_producer_may_go_on_anywhere(sequence: int) -> None:
    assert ProducerStates().check(batch_of(sequence, epoch=3)) is None


def test_sequences_go_on_after_the_last_record() -> None:
    states = states_of(batch_of(5, count=3))
    assert states.check(batch_of(8)) is None


@pytest.mark.parametrize("sequence", [0, 6, 7, 9, LAST_SEQUENCE])
def test_a_hole_or_an_overlap_is_out_of_order(sequence: int) -> None:
    states = states_of(batch_of(5, count=3))
    assert refusal(states, batch_of(sequence)) == OUT_OF_ORDER


@pytest.mark.parametrize(
    ("base", "count", "following"),
    [(LAST_SEQUENCE, 1, 0), (LAST_SEQUENCE - 2, 5, 2), (LAST_SEQUENCE - 1, 1, LAST_SEQUENCE)],
)
def test_sequences_wrap(base: int, count: int, following: int) -> None:
    states = states_of(batch_of(base, count=count))
    assert states.check(batch_of(following)) is None
    assert refusal(states, batch_of(following + 1 & LAST_SEQUENCE)) == OUT_OF_ORDER


def test_a_wrapped_batch_is_recognised() -> None:
    states = states_of(batch_of(LAST_SEQUENCE - 2, count=5, offset=40))
    found = states.check(batch_of(LAST_SEQUENCE - 2, count=5))
    assert found is not None
    assert found[:2] == (40, 44)


def test_the_last_five_batches_are_recognised() -> None:
    states = states_of(*(batch_of(2 * n, count=2, offset=100 + 2 * n, timestamp=n) for n in range(8)))
    for n in range(8 - BATCHES_KEPT, 8):
        assert states.check(batch_of(2 * n, count=2)) == (100 + 2 * n, 101 + 2 * n, n)
    assert BATCHES_KEPT == 5
    assert refusal(states, batch_of(2 * (7 - BATCHES_KEPT), count=2)) == OUT_OF_ORDER


def test_the_same_start_with_another_length_is_no_duplicate() -> None:
    states = states_of(batch_of(0, count=2))
    assert refusal(states, batch_of(0, count=1)) == OUT_OF_ORDER
    assert refusal(states, batch_of(0, count=3)) == OUT_OF_ORDER


def test_an_older_epoch_is_refused_even_if_it_repeats() -> None:
    states = states_of(batch_of(0, epoch=1), batch_of(0, epoch=2))
    assert refusal(states, batch_of(0, epoch=1)) == OLD_EPOCH
    assert refusal(states, batch_of(1, epoch=0)) == OLD_EPOCH
    assert refusal(states, marker(epoch=1)) == OLD_EPOCH


def test_a_new_epoch_starts_at_sequence_0() -> None:
    states = states_of(batch_of(4, epoch=1))
    assert states.check(batch_of(0, epoch=2)) is None
    assert refusal(states, batch_of(5, epoch=2)) == OUT_OF_ORDER
    assert refusal(states, batch_of(4, epoch=2)) == OUT_OF_ORDER


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    states = states_of(batch_of(0, epoch=1, offset=3), batch_of(0, epoch=2, offset=4))
    found = states.check(batch_of(0, epoch=2))
    assert found is not None
    assert found.base_offset == 4


def test_producers_do_not_mix() -> None:
    states = states_of(batch_of(5, producer_id=1), batch_of(8, producer_id=2))
    assert states.check(batch_of(6, producer_id=1)) is None
    assert states.check(batch_of(9, producer_id=2)) is None
    assert refusal(states, batch_of(9, producer_id=1)) == OUT_OF_ORDER
    assert 1 in states
    assert 3 not in states


def test_a_marker_leaves_the_sequences_of_its_epoch_alone() -> None:
    states = states_of(batch_of(5, epoch=1, offset=0), marker(epoch=1, offset=1))
    assert states.check(marker(epoch=1)) is None
    assert states.check(batch_of(6, epoch=1)) is None
    found = states.check(batch_of(5, epoch=1))
    assert found is not None
    assert found.base_offset == 0


def test_a_marker_of_a_new_epoch_fences_the_old_one() -> None:
    states = states_of(batch_of(5, epoch=1), marker(epoch=2))
    assert refusal(states, batch_of(6, epoch=1)) == OLD_EPOCH
    assert refusal(states, batch_of(6, epoch=2)) == OUT_OF_ORDER
    assert states.check(batch_of(0, epoch=2)) is None


def test_after_a_lone_marker_any_sequence_is_right() -> None:
    states = states_of(marker(epoch=4))
    assert states.check(batch_of(123, epoch=4)) is None
    assert refusal(states, batch_of(0, epoch=3)) == OLD_EPOCH


def test_apply_believes_what_the_leader_accepted() -> None:
    states = states_of(batch_of(5, epoch=7), batch_of(90, epoch=7))
    assert states.check(batch_of(91, epoch=7)) is None


def test_an_older_epoch_in_the_log_never_replaces_a_newer_one() -> None:
    states = states_of(batch_of(5, epoch=7), batch_of(90, epoch=2, offset=1))
    assert refusal(states, batch_of(91, epoch=2)) == OLD_EPOCH
    assert states.check(batch_of(6, epoch=7)) is None
    assert states.standing(9) == (7, 6, 2)


def test_check_changes_nothing() -> None:
    states = states_of(batch_of(0))
    before = states.copy()
    states.check(batch_of(1))
    states.check(batch_of(0, epoch=1))
    states.check(batch_of(0, producer_id=77))
    assert states == before


def test_quiet_producers_are_forgotten_whatever_the_age_of_their_records() -> None:
    states = states_of(
        batch_of(0, producer_id=1, timestamp=10**12),
        batch_of(0, producer_id=2, timestamp=0),
    )
    assert states.forget_idle(1000, idle_ms=100) == 0  # both were busy before this look
    states.apply(batch_of(1, producer_id=2, timestamp=0, offset=9))
    assert states.forget_idle(1099, idle_ms=100) == 0
    assert states.forget_idle(1100, idle_ms=100) == 1
    assert (1 in states, 2 in states) == (False, True)
    assert states.forget_idle(1199, idle_ms=100) == 1
    assert len(states) == 0


def test_it_knows_whether_a_truncation_matters() -> None:
    states = states_of(batch_of(0, count=5, offset=10), marker(epoch=0, offset=20))
    assert states.reaches(14)
    assert states.reaches(20)
    assert not states.reaches(21)
    assert not ProducerStates().reaches(0)


def test_clearing_forgets_everything() -> None:
    states = states_of(batch_of(0))
    states.clear()
    assert states == ProducerStates()


def test_a_copy_goes_its_own_way() -> None:
    states = states_of(batch_of(0))
    twin = states.copy()
    assert twin == states
    twin.apply(batch_of(1))
    assert twin != states
    assert states.check(batch_of(1)) is None


def test_equality_looks_at_every_part() -> None:
    base = states_of(batch_of(0))
    different = [
        states_of(batch_of(0, producer_id=10)),
        states_of(batch_of(0, epoch=1)),
        states_of(batch_of(1)),
        states_of(batch_of(0, count=2)),
        states_of(batch_of(0, offset=1)),
        states_of(batch_of(0, timestamp=1)),
        states_of(batch_of(0), marker(epoch=0, offset=1)),
    ]
    assert base == states_of(batch_of(0))
    assert all(base != other for other in different)
    assert base != 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(-1, LAST_SEQUENCE)), max_size=40))
def test_what_is_written_is_read(batches: list[tuple[int, int, int]]) -> None:
    states = states_of(
        *(
            batch_of(sequence, producer_id=producer_id, epoch=epoch, offset=offset, control=sequence < 0)
            for offset, (producer_id, epoch, sequence) in enumerate(batches)
        )
    )
    data = states.write()
    again = ProducerStates.read(data)
    assert again == states
    assert again.write() == data


def test_equal_states_are_written_alike() -> None:
    first, second = batch_of(0, producer_id=1), batch_of(0, producer_id=2)
    assert states_of(first, second).write() == states_of(second, first).write()


def test_a_read_state_keeps_five_batches_too() -> None:
    states = ProducerStates.read(states_of(*(batch_of(n, offset=n) for n in range(5))).write())
    states.apply(batch_of(5, offset=5))
    assert refusal(states, batch_of(0)) == OUT_OF_ORDER
    assert states.check(batch_of(1)) is not None


GOOD = (
    struct.pack(">I", 1) + struct.pack(">qhiqqB", 9, 0, 3, 11, 1000, 1) + struct.pack(">iiqq", 0, 2, 9, 1000)
)


def test_the_written_form() -> None:
    assert states_of(batch_of(0, count=3, offset=9)).write() == GOOD


def test_every_cut_is_refused() -> None:
    for size in range(len(GOOD)):
        with pytest.raises(ValueError, match="end early"):
            ProducerStates.read(GOOD[:size])


def one(*fields: int, batches: tuple[tuple[int, int, int, int], ...] = ()) -> bytes:
    head = struct.pack(">I", 1) + struct.pack(">qhiqqB", *fields, len(batches))
    return head + b"".join(struct.pack(">iiqq", *batch) for batch in batches)


@pytest.mark.parametrize(
    "data",
    [
        GOOD + b"\0",  # something follows
        struct.pack(">I", 0xFFFFFFFF) + GOOD[4:],  # a count that lies
        struct.pack(">I", 2) + GOOD[4:] * 2,  # the same producer twice
        one(-1, 0, 0, 0, 0),  # ids are not negative
        one(9, -1, 0, 0, 0),  # nor are epochs
        one(9, 0, 5, 0, 0),  # a sequence without a batch
        one(9, 0, -2, 0, 0),
        one(9, 0, 0, -1, 0),  # an end without an offset
        one(9, 0, 2, 5, 0, batches=((0, 0, 5, 0),)),  # not the sequence after the batch
        one(9, 0, -1, 5, 0, batches=((0, 0, 5, 0),)),
        one(9, 0, 1, 4, 0, batches=((0, 0, 5, 0),)),  # ends before its batch
        one(9, 0, 0, 5, 0, batches=((-1, 0, 5, 0),)),
        one(9, 0, 0, 5, 0, batches=((0, -1, 5, 0),)),
        one(9, 0, 1, 5, 0, batches=((0, 0, -5, 0),)),
        one(9, 0, 2, 9, 0, batches=((0, 1, 5, 0), (1, 0, 6, 0))),  # batches overlap
        one(9, 0, 6, 9, 0, batches=tuple((n, 0, n, 0) for n in range(6))),  # more than are kept
    ],
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="producer"):
        ProducerStates.read(data)


def test_where_a_producer_stands() -> None:
    states = states_of(batch_of(5, count=3, offset=10), batch_of(8, count=2, offset=40, epoch=0))
    assert states.standing(9) == (0, 10, 42)
    assert states.standing(8) is None
    assert states_of(marker(epoch=2, offset=7)).standing(9) == (2, -1, 8)


@pytest.mark.parametrize("first", [5, LAST_SEQUENCE - 1], ids=["plain", "over the end"])
def test_a_record_is_found_by_its_sequence(first: int) -> None:
    states = states_of(batch_of(first, count=3, offset=10, timestamp=1000))
    states.apply(batch_of((first + 3) & LAST_SEQUENCE, count=2, offset=40, timestamp=2000))
    found = [states.find_sequence(9, (first + n) & LAST_SEQUENCE) for n in range(-1, 6)]
    assert found == [None, (10, 1000), (11, 1000), (12, 1000), (40, 2000), (41, 2000), None]
    assert states.find_sequence(8, first) is None


def test_a_record_of_a_batch_too_long_ago_is_not_found() -> None:
    states = states_of(*(batch_of(n, offset=n) for n in range(BATCHES_KEPT + 1)))
    assert states.find_sequence(9, 0) is None
    assert states.find_sequence(9, 1) == (1, 1000)


MUTATIONS: list[Callable[[bytes, int, int], bytes]] = [
    lambda data, at, value: data[:at] + bytes([value]) + data[at + 1 :],
    lambda data, at, value: data[:at] + bytes([value]) + data[at:],
    lambda data, at, value: data[:at] + data[at + 1 :],
]


@given(st.sampled_from(MUTATIONS), st.integers(0, 200), st.integers(0, 255))
def test_damaged_bytes_are_read_or_refused(
    mutate: Callable[[bytes, int, int], bytes], at: int, value: int
) -> None:
    states = states_of(*(batch_of(n, producer_id=n % 3, offset=n, epoch=n // 3) for n in range(9)))
    try:
        again = ProducerStates.read(mutate(states.write(), at, value))
    except ValueError:
        return
    assert ProducerStates.read(again.write()) == again


# ---- bounds


def filled(count: int) -> ProducerStates:
    return states_of(*[batch_of(0, producer_id=number, offset=number) for number in range(count)])


def test_a_log_knows_so_many_producers_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.storage.producers.PRODUCERS_MAX", 100)
    states = filled(100)
    states.apply(batch_of(1, producer_id=0, offset=100))  # the oldest one is busy again
    for number in range(100, 110):
        states.apply(batch_of(0, producer_id=number, offset=number + 1))
    assert len(states) == 100
    assert 0 in states and 109 in states
    assert not any(number in states for number in range(1, 11)) and 11 in states


def test_a_producer_that_was_forgotten_may_go_on_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.storage.producers.PRODUCERS_MAX", 3)
    states = filled(4)
    assert states.check(batch_of(77, producer_id=0)) is None
    assert refusal(states, batch_of(77, producer_id=1)) is OUT_OF_ORDER


def test_a_producer_with_a_batch_that_is_not_durable_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.storage.producers.PRODUCERS_MAX", 10)
    states = ProducerStates()
    for number in range(30):
        states.apply(batch_of(0, producer_id=number, offset=number), keep_from=5)
    assert len(states) == 25 and all(number in states for number in range(5, 30))
    states.apply(batch_of(0, producer_id=30, offset=30), keep_from=30)
    assert len(states) == 10 and 30 in states


def test_the_order_of_forgetting_survives_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.storage.producers.PRODUCERS_MAX", 3)
    states = states_of(*[batch_of(0, producer_id=9 - number, offset=number) for number in range(3)])
    again = ProducerStates.read(states.write())
    again.apply(batch_of(0, producer_id=1, offset=3))
    assert 9 not in again and 7 in again


def test_states_are_packed_in_slices_of_a_bounded_size() -> None:
    states = filled(1_000)
    slices = list(states.write_slices())
    assert b"".join(slices) == states.write()
    assert len(slices) > 5 and max(map(len, slices)) < 20_000


def test_a_producer_costs_less_than_a_kilobyte() -> None:
    tracemalloc.start()
    try:
        states = filled(2_000)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / len(states) < 1_000


@pytest.mark.parametrize(
    ("sizes", "total_max", "limit"),
    [
        ([], 10, 10),
        ([3, 4], 10, 10),
        ([100], 10, 10),
        ([1, 100], 10, 9),
        ([100, 100, 1], 11, 5),
        ([100] * 7, 3, 0),
    ],
)
def test_a_fair_limit_cuts_the_largest_only(sizes: list[int], total_max: int, limit: int) -> None:
    assert fair_limit(sizes, total_max) == limit
    assert sum(min(size, limit) for size in sizes) <= total_max
