"""The index of due times: order, buckets that come near in portions, and an oracle that is a sorted list."""

from __future__ import annotations

import random
import sys

from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.delayed.index import BUCKET_MS, LEAD_MS, DueIndex

NOW = 1_750_000_000_000 // BUCKET_MS * BUCKET_MS


def take_all(index: DueIndex, now_ms: int, *, portion: int = 1000) -> list[tuple[int, int]]:
    while not index.bring_near(now_ms, count_max=portion):
        pass
    return index.take_due(now_ms, count_max=1 << 40)


def test_what_is_due_comes_by_time_and_then_by_offset() -> None:
    index = DueIndex()
    for due_ms, offset in [(NOW + 5, 3), (NOW + 1, 4), (NOW + 5, 1), (NOW + 9, 0)]:
        index.add(due_ms, offset)
    assert take_all(index, NOW) == []
    assert take_all(index, NOW + 5) == [(NOW + 1, 4), (NOW + 5, 1), (NOW + 5, 3)]
    assert len(index) == 1
    assert take_all(index, NOW + 9) == [(NOW + 9, 0)]
    assert not len(index) and index.next_ms() is None and index.oldest_offset() is None


def test_no_more_are_taken_than_were_asked_for() -> None:
    index = DueIndex()
    for offset in range(10):
        index.add(NOW, offset)
    assert index.bring_near(NOW, count_max=100)
    assert [offset for _, offset in index.take_due(NOW, count_max=4)] == [0, 1, 2, 3]
    assert [offset for _, offset in index.take_due(NOW, count_max=100)] == [4, 5, 6, 7, 8, 9]


def test_a_bucket_is_looked_at_before_it_begins_and_then_when_something_is_due() -> None:
    index = DueIndex()
    due_ms = NOW + 3 * BUCKET_MS + 77
    index.add(due_ms, 0)
    assert index.next_ms() == NOW + 3 * BUCKET_MS - LEAD_MS
    assert index.next_due_ms() == due_ms
    assert take_all(index, NOW + 3 * BUCKET_MS - LEAD_MS) == []
    assert index.next_ms() == index.next_due_ms() == due_ms


def test_what_comes_while_its_bucket_is_brought_near_is_not_forgotten() -> None:
    index = DueIndex()
    for offset in range(10):
        index.add(NOW + BUCKET_MS + offset, offset)
    assert not index.bring_near(NOW + BUCKET_MS, count_max=4)
    index.add(NOW + BUCKET_MS + 3, 50)  # into the same bucket
    index.add(NOW + 1, 51)  # and into one before it
    found = take_all(index, NOW + 2 * BUCKET_MS - 1, portion=3)
    assert [offset for _, offset in found] == [51, 0, 1, 2, 3, 50, 4, 5, 6, 7, 8, 9]


def test_the_oldest_offset_is_never_above_one_that_waits() -> None:
    index = DueIndex()
    index.add(NOW + 5 * BUCKET_MS, 100)
    index.add(NOW + 5 * BUCKET_MS, 7)  # put back, older than what is there
    index.add(NOW, 20)
    assert index.oldest_offset() == 7
    assert not index.bring_near(NOW + 5 * BUCKET_MS, count_max=1)
    assert index.oldest_offset() == 7
    assert len(take_all(index, NOW)) == 1
    assert index.oldest_offset() == 7


def test_a_million_take_little_memory_wherever_they_lie() -> None:
    index = DueIndex()
    spread = random.Random(6)
    count = 200_000
    for offset in range(count):
        index.add(NOW + 2 * BUCKET_MS + spread.randrange(366 * 24 * 3_600_000), offset)
    size = sum(sys.getsizeof(bucket) for bucket in index._far.values())
    size += sys.getsizeof(index._far) + sys.getsizeof(index._starts) + 64 * len(index._far)
    # The buckets of a year, which a million would share, and what each message adds.
    assert size < 366 * 144 * 350 + count * 24


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-BUCKET_MS, 5 * BUCKET_MS)),
        st.tuples(st.just("pass"), st.integers(-1000, 2 * BUCKET_MS)),
        st.tuples(st.just("portion"), st.integers(1, 5)),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_comes_it_is_as_if_all_were_sorted(history: list[tuple[str, int]]) -> None:
    index, oracle, now_ms = DueIndex(), set[tuple[int, int]](), NOW
    for offset, (step, number) in enumerate(history):
        if step == "add":
            index.add(now_ms + number, offset)
            oracle.add((now_ms + number, offset))
        elif step == "portion":
            index.bring_near(now_ms, count_max=number)
        else:
            now_ms += number
            expected = sorted(each for each in oracle if each[0] <= now_ms)
            assert take_all(index, now_ms, portion=2) == expected
            oracle.difference_update(expected)
        assert len(index) == len(oracle)
        assert index.next_due_ms() == min((due_ms for due_ms, _ in oracle), default=None)
        if oracle:
            oldest, next_ms = index.oldest_offset(), index.next_ms()
            assert oldest is not None and oldest <= min(offset for _, offset in oracle)
            assert next_ms is not None and next_ms <= min(oracle)[0]
