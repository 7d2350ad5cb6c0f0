"""What the next batch of a stream takes: losses, new partitions, limits."""

from __future__ import annotations

import pytest

from tailrace.model import TopicPartition
from tailrace.spark.source.offset import StreamOffset
from tailrace.spark.source.trigger import Limits, LogView, plan_end, plan_losses, plan_restarts, plan_starts

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
BEGUN = StreamOffset(positions={A: 10, B: 20}, starts={A: 0, B: 0}, ids={"orders": "one"})


def view(ends: dict[TopicPartition, int], *, topic_id: str = "one") -> LogView:
    return LogView(latest=ends, ids={"orders": topic_id})


def test_a_log_that_grew_or_stayed_has_lost_nothing() -> None:
    assert plan_losses(BEGUN, view({A: 10, B: 21})) == {}


@pytest.mark.parametrize(
    ("seen", "lost", "cause"),
    [
        (view({A: 9, B: 20}), [A], "the log ends at 9, before 10"),
        (view({B: 20}), [A], "does not exist any more"),
        (view({A: 50, B: 50}, topic_id="two"), [A, B], "deleted and created again"),
    ],
)
def test_a_log_that_is_not_what_it_was_is_a_loss(
    seen: LogView, lost: list[TopicPartition], cause: str
) -> None:
    losses = plan_losses(BEGUN, seen)
    assert list(losses) == lost
    assert all(cause in each for each in losses.values())


def test_a_broker_without_topic_ids_loses_nothing_by_that() -> None:
    assert plan_losses(BEGUN, LogView(latest={A: 10, B: 20})) == {}


def test_new_partitions_and_lost_ones_begin_at_the_start_of_their_log() -> None:
    new = TopicPartition("orders", 2)
    seen = view({A: 9, B: 25, new: 7})
    assert plan_restarts(BEGUN, seen) == [A, new]
    assert plan_starts(BEGUN, seen, {A: 4, new: 3}) == {A: 4, B: 20, new: 3}


def test_a_partition_that_is_gone_keeps_its_place() -> None:
    seen = view({B: 25})
    assert plan_restarts(BEGUN, seen) == []
    starts = plan_starts(BEGUN, seen, {})
    assert plan_end(starts, seen, limits=Limits(), is_due=True) == {A: 10, B: 25}


def test_nothing_new_is_no_batch() -> None:
    seen = view({A: 10, B: 20})
    assert plan_end(BEGUN.positions, seen, limits=Limits(), is_due=True) is None


@pytest.mark.parametrize(
    ("waiting", "is_due", "goes"), [(5, False, True), (4, False, False), (4, True, True)]
)
def test_a_batch_waits_for_its_least_size_until_it_is_due(waiting: int, is_due: bool, goes: bool) -> None:
    seen = view({A: 10 + waiting, B: 20})
    end = plan_end(BEGUN.positions, seen, limits=Limits(offsets_min=5), is_due=is_due)
    assert end == ({A: 10 + waiting, B: 20} if goes else None)


def test_limits_bound_a_batch() -> None:
    seen = view({A: 1010, B: 1020})
    assert plan_end(BEGUN.positions, seen, limits=Limits(offsets_max=10), is_due=True) == {A: 15, B: 25}
    end = plan_end(
        BEGUN.positions, seen, limits=Limits(bytes_max=200), is_due=True, record_bytes={A: 10.0, B: 10.0}
    )
    assert end == {A: 20, B: 30}
