"""Open transactions in producer states: what opens and ends them, fencing, the written form, forgetting."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import BrokerError, ErrorCode, Offset
from tailrace.records import Batch, build_batch, read_batch, write_marker
from tailrace.storage import ProducerStates
from tailrace.storage.aborted import AbortedEntry
from tailrace.storage.producers import OpenTransaction

A, B = 7, 8
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


def data(
    offset: int, sequence: int = 0, *, producer_id: int = A, epoch: int = 0, transactional: bool = True
) -> Batch:
    return read_batch(
        build_batch(
            [(1000 + offset, b"k", b"v", ())],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def end(
    offset: int, *, producer_id: int = A, epoch: int = 0, commit: bool = True, coordinator_epoch: int = 0
) -> Batch:
    batch = write_marker(
        producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, timestamp_ms=1000 + offset
    )
    batch.assign(Offset(offset), batch.leader_epoch)
    return batch


def states_of(*batches: Batch) -> ProducerStates:
    states = ProducerStates()
    for batch in batches:
        states.apply(batch)
    return states


def refusal(states: ProducerStates, batch: Batch) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        states.check(batch)
    return caught.value.code


# ---- open and end


def test_the_first_batch_opens_a_transaction_and_later_ones_belong_to_it() -> None:
    states = states_of(data(5, 0), data(6, 1))
    assert states.open_transaction(A) == OpenTransaction(0, Offset(5), 1005)
    assert list(states.open_transactions()) == [(A, OpenTransaction(0, Offset(5), 1005))]
    assert states.first_open == 5


def test_a_batch_without_a_transaction_opens_none() -> None:
    states = states_of(data(5, transactional=False))
    assert states.open_transaction(A) is None
    assert states.first_open is None
    assert states.undecided == 0


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_ends_the_transaction_of_its_producer(commit: bool) -> None:
    states = states_of(data(5, producer_id=A), data(6, producer_id=B))
    aborted = states.apply(end(7, producer_id=A, commit=commit))
    assert states.open_transaction(A) is None
    assert states.first_open == 6
    expected = AbortedEntry(producer_id=A, first_offset=5, marker_offset=7, stable_offset=6)
    assert aborted == (None if commit else expected)


def test_the_stable_offset_behind_the_last_marker_is_the_next_offset() -> None:
    states = states_of(data(5))
    aborted = states.apply(end(6, commit=False))
    assert aborted is not None
    assert aborted.stable_offset == 7


def test_a_second_marker_ends_nothing() -> None:
    states = states_of(data(5), end(6))
    assert states.apply(end(7, commit=False)) is None
    states.settle()
    assert states.undecided == 0


def test_a_marker_that_cannot_be_read_leaves_the_transaction_open() -> None:
    states = states_of(data(5))
    broken = read_batch(
        build_batch(
            [(0, b"?", b"?", ())],
            base_offset=6,
            producer_id=A,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )
    assert states.apply(broken) is None
    assert states.first_open == 5


def test_a_marker_of_a_newer_epoch_ends_the_transaction_and_fences() -> None:
    states = states_of(data(5, 3), end(6, epoch=1))
    assert states.first_open is None
    assert refusal(states, data(7, 4)) == OLD_EPOCH
    assert states.check(data(7, 0, epoch=1)) is None
    assert refusal(states, data(7, 4, epoch=1)) == OUT_OF_ORDER


def test_an_open_transaction_stays_open_through_a_newer_epoch() -> None:
    states = states_of(data(5, 0), data(6, 0, producer_id=B), data(7, 0, epoch=1, transactional=False))
    assert states.open_transaction(A) == OpenTransaction(1, Offset(5), 1005)
    assert states.first_open == 5


# ---- undecided: open, or its marker not visible


def test_a_transaction_is_undecided_until_its_marker_is_visible() -> None:
    states = states_of(data(5), end(6), data(7, producer_id=B))
    assert states.first_undecided(6) == 5
    assert states.first_undecided(7) == 7
    assert states.undecided == 1
    states.apply(end(8, producer_id=B))
    assert states.first_undecided(9) is None
    assert states.undecided == 0


def test_the_earliest_of_several_endings_counts() -> None:
    states = states_of(
        data(5, producer_id=A), data(6, producer_id=B), end(7, producer_id=B), end(8, producer_id=A)
    )
    assert states.first_undecided(7) == 5
    assert states.first_undecided(8) == 5
    assert states.first_undecided(9) is None


def test_a_copy_has_its_own_transactions() -> None:
    states = states_of(data(5, producer_id=A), end(6, producer_id=A), data(7, producer_id=B))
    twin = states.copy()
    states.apply(end(8, producer_id=B))
    assert states.first_undecided(9) is None
    assert twin.first_undecided(6) == 5
    assert twin.first_undecided(7) == 7
    assert twin.open_transaction(B) is not None


# ---- fencing


@pytest.mark.parametrize("sequence", [1, 7])
def test_a_transaction_of_an_unknown_producer_begins_at_sequence_0(sequence: int) -> None:
    assert refusal(ProducerStates(), data(0, sequence)) == OUT_OF_ORDER
    assert ProducerStates().check(data(0, 0)) is None
    assert ProducerStates().check(data(0, sequence, transactional=False)) is None


def test_a_batch_that_the_broker_adds_to_a_transaction_has_no_sequence() -> None:
    assert ProducerStates().check(data(0, -1)) is None
    states = states_of(data(0, 5), data(1, -1))
    assert states.check(data(2, -1)) is None
    assert states.check(data(2, 6)) is None
    assert refusal(states_of(data(0, 5, epoch=3)), data(1, -1, epoch=2)) == OLD_EPOCH


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    states = states_of(data(5, epoch=3))
    with pytest.raises(BrokerError, match="epoch 2") as caught:
        states.check_marker(A, 2, coordinator_epoch=0)
    assert caught.value.code == OLD_EPOCH
    states.check_marker(A, 3, coordinator_epoch=0)
    states.check_marker(B, 0, coordinator_epoch=0)


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    states = states_of(data(5), end(6, coordinator_epoch=4), data(7, 1))
    with pytest.raises(BrokerError, match="epoch 3") as caught:
        states.check_marker(A, 0, coordinator_epoch=3)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    states.check_marker(A, 0, coordinator_epoch=4)


def test_a_new_epoch_of_the_producer_keeps_the_epoch_of_the_coordinator() -> None:
    states = states_of(data(5), end(6, coordinator_epoch=4), data(7, 0, epoch=1))
    with pytest.raises(BrokerError):
        states.check_marker(A, 1, coordinator_epoch=3)


# ---- the written form


def test_without_a_transaction_the_form_is_the_first() -> None:
    assert states_of(data(5, transactional=False)).form == 1
    assert states_of(data(5)).form == 2
    assert states_of(data(5), end(6)).form == 2


def test_the_second_form() -> None:
    written = states_of(data(5)).write(2)
    expected = struct.pack(">I", 1) + struct.pack(">qhiqqB", A, 0, 1, 5, 1005, 1)
    expected += struct.pack(">qqi", 5, 1005, -1) + struct.pack(">iiqq", 0, 0, 5, 1005)
    assert written == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["data", "commit", "abort"])), max_size=30))
def test_what_is_written_is_read(steps: list[tuple[int, str]]) -> None:
    states, sequences = ProducerStates(), dict.fromkeys(range(5), 0)
    for offset, (producer_id, kind) in enumerate(steps):
        if kind == "data":
            states.apply(data(offset, sequences[producer_id], producer_id=producer_id))
            sequences[producer_id] += 1
        else:
            states.apply(end(offset, producer_id=producer_id, commit=kind == "commit"))
    states.settle()
    again = ProducerStates.read(states.write(2), 2)
    assert again == states
    assert again.write(2) == states.write(2)
    assert list(again.open_transactions()) == list(states.open_transactions())
    assert again.undecided == states.undecided
    assert again.first_undecided(len(steps)) == states.first_undecided(len(steps))


def test_states_that_differ_by_an_open_transaction_are_not_equal() -> None:
    assert states_of(data(5)) != states_of(data(5, transactional=False))


@pytest.mark.parametrize(
    ("first", "coordinator_epoch"), [(6, -1), (-2, -1), (5, -2)], ids=["past its end", "-2", "epoch -2"]
)
def test_a_transaction_that_makes_no_sense_is_refused(first: int, coordinator_epoch: int) -> None:
    written = struct.pack(">I", 1) + struct.pack(">qhiqqB", A, 0, 0, 5, 0, 0)
    with pytest.raises(ValueError, match="producer 7"):
        ProducerStates.read(written + struct.pack(">qqi", first, 0, coordinator_epoch), 2)


def test_every_cut_of_the_second_form_is_refused() -> None:
    written = states_of(data(5), data(6, producer_id=B), end(7, producer_id=B)).write(2)
    for size in range(len(written)):
        with pytest.raises(ValueError, match="end early"):
            ProducerStates.read(written[:size], 2)


# ---- forgetting spares open transactions


def test_an_idle_producer_with_an_open_transaction_is_kept() -> None:
    states = states_of(data(5, producer_id=A), data(6, producer_id=B, transactional=False))
    states.forget_idle(0, idle_ms=10)
    assert states.forget_idle(100, idle_ms=10) == 1
    assert A in states and B not in states
    states.apply(end(7))
    states.forget_idle(200, idle_ms=10)
    assert states.forget_idle(300, idle_ms=10) == 1


def test_the_oldest_producer_is_kept_while_its_transaction_is_open() -> None:
    states = states_of(
        data(5, producer_id=A), *(data(6 + n, producer_id=B + n, transactional=False) for n in range(3))
    )
    assert states.forget_oldest(2) == 2
    assert A in states and B not in states and B + 1 not in states and B + 2 in states
    assert states.forget_oldest(5) == 1
    assert A in states


def test_forgetting_everything_forgets_transactions() -> None:
    states = states_of(data(5), end(6), data(7, producer_id=B))
    states.clear()
    assert states.first_undecided(100) is None
    assert states.undecided == 0
    assert not list(states.open_transactions())
