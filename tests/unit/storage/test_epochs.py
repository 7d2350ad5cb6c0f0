"""Leader epochs: what they answer, by hand-made lists and against a plain search of generated logs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.storage import LeaderEpochs


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, offset in entries:
        epochs.apply(epoch, offset)
    return epochs


def test_no_batch_no_epoch() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest is None
    assert list(epochs) == []
    assert epochs.end_of(0, log_end=0) is None


def test_an_epoch_begins_at_its_first_batch() -> None:
    epochs = epochs_of((0, 0), (0, 5), (2, 9), (2, 12), (7, 20))
    assert list(epochs) == [(0, 0), (2, 9), (7, 20)]
    assert epochs.latest == 7
    assert len(epochs) == 3


def test_a_batch_of_a_lower_epoch_counts_for_the_newest() -> None:
    epochs = epochs_of((3, 0), (5, 10), (4, 20), (5, 30))
    assert list(epochs) == [(3, 0), (5, 10)]


def test_a_batch_without_an_epoch_is_ignored() -> None:
    assert list(epochs_of((-1, 0), (0, 5), (-1, 9))) == [(0, 5)]


def test_offsets_that_go_back_are_a_bug() -> None:
    epochs = epochs_of((0, 10))
    with pytest.raises(AssertionError):
        epochs.apply(1, 9)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (7, (7, 40)),  # the newest ends with the log
        (2, (2, 20)),
        (3, (2, 20)),  # never was: the one before it
        (6, (2, 20)),
        (1, (1, 9)),
        (0, (0, 4)),
        (8, None),  # newer than everything here
        (-1, None),
    ],
)
def test_the_end_of_an_epoch(asked: int, answer: tuple[int, int] | None) -> None:
    epochs = epochs_of((0, 0), (1, 4), (2, 9), (7, 20))
    assert epochs.end_of(asked, log_end=40) == answer


def test_an_epoch_before_all_known_ones_ends_where_they_begin() -> None:
    assert epochs_of((4, 100), (5, 110)).end_of(2, log_end=120) == (2, 100)


def test_truncating_forgets_epochs_that_begin_there() -> None:
    epochs = epochs_of((0, 0), (1, 4), (2, 9))
    epochs.truncate(10)
    assert epochs.latest == 2
    epochs.truncate(9)
    assert list(epochs) == [(0, 0), (1, 4)]
    epochs.apply(2, 9)
    assert list(epochs) == [(0, 0), (1, 4), (2, 9)]
    epochs.truncate(0)
    assert epochs.latest is None


def test_trimming_keeps_the_epoch_that_goes_on() -> None:
    epochs = epochs_of((0, 0), (1, 4), (2, 9))
    epochs.trim(6)
    assert list(epochs) == [(1, 6), (2, 9)]
    epochs.trim(9)
    assert list(epochs) == [(2, 9)]
    epochs.trim(50)
    assert list(epochs) == [(2, 50)]


def test_trimming_before_the_first_epoch_changes_nothing() -> None:
    epochs = epochs_of((3, 10))
    epochs.trim(9)
    assert list(epochs) == [(3, 10)]
    LeaderEpochs().trim(9)


def test_an_epoch_trimmed_to_nothing_makes_room_for_the_next() -> None:
    epochs = epochs_of((3, 10))
    epochs.trim(20)
    epochs.apply(4, 20)
    assert list(epochs) == [(4, 20)]
    assert epochs.latest == 4


def test_a_copy_goes_its_own_way() -> None:
    epochs = epochs_of((0, 0), (1, 4))
    twin = epochs.copy()
    assert twin == epochs
    twin.apply(2, 9)
    assert twin != epochs
    assert list(epochs) == [(0, 0), (1, 4)]
    assert epochs.latest == 1


def test_equality_is_of_epochs_and_offsets() -> None:
    assert epochs_of((0, 0)) != epochs_of((0, 1))
    assert epochs_of((0, 0)) != epochs_of((1, 0))
    assert epochs_of((0, 0)) != [(0, 0)]


def test_the_written_form() -> None:
    data = epochs_of((1, 2), (3, 0x0102030405060708)).write()
    assert data.hex() == "00000002" + "00000001" + "0000000000000002" + "00000003" + "0102030405060708"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), max_size=30))
def test_what_is_written_is_read(appends: list[tuple[int, int]]) -> None:
    epochs, _ = replay(appends)
    assert LeaderEpochs.read(epochs.write()) == epochs
    assert LeaderEpochs.read(memoryview(bytearray(epochs.write()))).latest == epochs.latest


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\1",
        struct.pack(">Iiq", 2, 0, 0),  # claims more than is there
        struct.pack(">Iiq", 0, 0, 0),  # and less
        struct.pack(">Iiq", 0xFFFFFFFF, 0, 0),
        struct.pack(">Iiqb", 1, 0, 0, 0),
        struct.pack(">Iiq", 1, -1, 0),
        struct.pack(">Iiq", 1, 0, -1),
        struct.pack(">Iiqiq", 2, 3, 0, 3, 1),  # epochs do not grow
        struct.pack(">Iiqiq", 2, 3, 5, 4, 5),  # offsets do not grow
    ],
)
def test_malformed_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="leader epoch"):
        LeaderEpochs.read(data)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=25),
    st.integers(-1, 11),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_answers_are_those_of_a_plain_search(
    appends: list[tuple[int, int]], asked: int, trimmed: int, cut: int
) -> None:
    epochs, owners = replay(appends)
    start = min(trimmed, len(owners))
    end = max(start, min(cut, len(owners)))
    epochs.trim(start)
    if end < len(owners):
        epochs.truncate(end)
    kept = owners[start:end]
    if not kept:
        return  # what an empty log remembers has tests of its own
    assert epochs.latest == kept[-1]
    assert epochs.end_of(asked, log_end=end) == search(kept, asked, start=start)


def replay(appends: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[int]]:
    """Epochs after batches of (epoch, records), and the epoch that each offset counts for."""
    epochs = LeaderEpochs()
    owners: list[int] = []
    for epoch, count in appends:
        epochs.apply(epoch, len(owners))
        owners += [max(epoch, owners[-1] if owners else -1)] * count
    return epochs, owners


def search(owners: list[int], asked: int, *, start: int) -> tuple[int, int] | None:
    if asked < 0 or asked > owners[-1]:
        return None
    if asked < owners[0]:
        return asked, start
    known = max(epoch for epoch in owners if epoch <= asked)
    return known, start + sum(epoch <= known for epoch in owners)
