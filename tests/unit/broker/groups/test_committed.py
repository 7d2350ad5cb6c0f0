"""A group's positions: what is visible, what is on its way, what is past its time."""

from __future__ import annotations

from tailrace.broker.groups.api import CommittedOffset
from tailrace.broker.groups.committed import CommittedOffsets, Placed
from tailrace.broker.groups.stored import StoredOffset
from tailrace.model import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("u", 1)
DAY_MS = 24 * 3600 * 1000


def at(offset: int, *, committed_ms: int = 0, expires_ms: int | None = None) -> StoredOffset:
    return StoredOffset(offset=offset, metadata="m", committed_ms=committed_ms, expires_ms=expires_ms)


def committed(offsets: dict[TopicPartition, StoredOffset]) -> CommittedOffsets:
    """These are durable, in a batch at 0."""
    return CommittedOffsets({partition: Placed(stored, 0) for partition, stored in offsets.items()})


def test_a_commit_is_visible_when_it_is_durable_and_not_before() -> None:
    offsets = CommittedOffsets()
    offsets.begin([P0])
    assert offsets.get(P0) is None and offsets.all() == {}
    assert P0 in offsets and len(offsets) == 1
    offsets.end({P0: at(5)}, at=1, durable=True)
    assert offsets.get(P0) == CommittedOffset(5, -1, "m")


def test_a_commit_that_failed_leaves_the_one_before() -> None:
    offsets = committed({P0: at(5)})
    offsets.begin([P0])
    offsets.end({P0: at(9)}, at=1, durable=False)
    assert offsets.get(P0) == CommittedOffset(5, -1, "m")


def test_two_commits_of_one_partition_may_be_on_their_way() -> None:
    offsets = CommittedOffsets()
    offsets.begin([P0])
    offsets.begin([P0])
    offsets.end({P0: at(1)}, at=1, durable=True)
    assert expired(offsets, now_ms=100 * DAY_MS) == []
    offsets.end({P0: at(2)}, at=1, durable=True)
    assert offsets.all() == {P0: CommittedOffset(2, -1, "m")}
    assert expired(offsets, now_ms=100 * DAY_MS) == [P0]


def test_what_is_on_its_way_belongs_to_its_topic_too() -> None:
    offsets = committed({P0: at(1)})
    offsets.begin([P1])
    assert offsets.of_topic("u") == [P1]
    assert sorted(offsets) == [P0, P1]


def test_removing_what_is_not_there_is_harmless() -> None:
    offsets = committed({P0: at(1)})
    offsets.remove([P0, P1], at=1)
    assert len(offsets) == 0


def expired(offsets: CommittedOffsets, *, now_ms: int, unused_since_ms: int = 0) -> list[TopicPartition]:
    return offsets.plan_expiry(now_ms=now_ms, retention_ms=7 * DAY_MS, unused_since_ms=unused_since_ms)


def test_positions_expire_so_long_after_the_last_member_left() -> None:
    offsets = committed({P0: at(1, committed_ms=0)})
    assert expired(offsets, now_ms=8 * DAY_MS - 1, unused_since_ms=DAY_MS) == []
    assert expired(offsets, now_ms=8 * DAY_MS, unused_since_ms=DAY_MS) == [P0]


def test_a_later_commit_counts_from_itself() -> None:
    offsets = committed({P0: at(1, committed_ms=0), P1: at(1, committed_ms=5 * DAY_MS)})
    assert expired(offsets, now_ms=7 * DAY_MS) == [P0]
    assert expired(offsets, now_ms=12 * DAY_MS) == [P0, P1]


def test_a_client_may_have_set_its_own_end() -> None:
    offsets = committed({P0: at(1, expires_ms=100), P1: at(1, expires_ms=30 * DAY_MS)})
    assert expired(offsets, now_ms=99) == []
    assert expired(offsets, now_ms=100) == [P0]
    assert expired(offsets, now_ms=29 * DAY_MS) == [P0]


def test_what_is_being_committed_does_not_expire() -> None:
    offsets = committed({P0: at(1)})
    offsets.begin([P0])
    assert expired(offsets, now_ms=100 * DAY_MS) == []


def shown(offsets: CommittedOffsets) -> dict[TopicPartition, int]:
    return {partition: position.offset for partition, position in offsets.all().items()}


def test_a_position_of_a_transaction_is_seen_when_the_transaction_has_committed() -> None:
    offsets = committed({P0: at(1)})
    offsets.pend("tx", {P0: Placed(at(5), 7), P1: Placed(at(6), 7)})
    assert shown(offsets) == {P0: 1}
    assert offsets.undecided_partitions() == {P0, P1} and offsets.undecided == 2
    assert sorted(offsets) == [P0, P1] and len(offsets) == 2 and P1 in offsets
    offsets.decide("tx", commit=True)
    assert shown(offsets) == {P0: 5, P1: 6}
    assert offsets.undecided_partitions() == set()


def test_a_position_of_an_aborted_transaction_is_never_seen() -> None:
    offsets = committed({P0: at(1)})
    offsets.pend("tx", {P0: Placed(at(5), 7), P1: Placed(at(6), 7)})
    offsets.decide("tx", commit=False)
    assert shown(offsets) == {P0: 1} and len(offsets) == 1


def test_the_last_position_of_a_transaction_counts() -> None:
    offsets = committed({})
    offsets.pend("tx", {P0: Placed(at(5), 7), P1: Placed(at(6), 7)})
    offsets.pend("tx", {P0: Placed(at(2), 8)})
    offsets.decide("tx", commit=True)
    assert shown(offsets) == {P0: 2, P1: 6}


def test_a_commit_behind_the_record_of_a_transaction_stays() -> None:
    offsets = committed({})
    offsets.pend("tx", {P0: Placed(at(5), 7)})
    offsets.begin([P0])
    offsets.end({P0: at(2)}, at=8, durable=True)
    offsets.decide("tx", commit=True)
    assert shown(offsets) == {P0: 2}


def test_of_two_transactions_the_later_record_counts_whichever_ends_first() -> None:
    for order in (("first", "second"), ("second", "first")):
        offsets = committed({})
        offsets.pend("first", {P0: Placed(at(5), 7)})
        offsets.pend("second", {P0: Placed(at(2), 8)})
        offsets.decide(order[0], commit=True)
        assert offsets.undecided_partitions() == {P0}
        offsets.decide(order[1], commit=True)
        assert shown(offsets) == {P0: 2}, order


def test_a_tombstone_removes_the_undecided_positions_before_it() -> None:
    offsets = committed({P0: at(1)})
    offsets.pend("before", {P0: Placed(at(5), 7)})
    offsets.pend("behind", {P0: Placed(at(6), 9)})
    offsets.remove([P0], at=8)
    offsets.decide("before", commit=True)
    assert shown(offsets) == {} and offsets.undecided == 1
    offsets.decide("behind", commit=True)
    assert shown(offsets) == {P0: 6}


def test_a_tombstone_leaves_alone_what_is_behind_it() -> None:
    offsets = committed({})
    offsets.pend("tx", {P0: Placed(at(5), 7)})
    offsets.decide("tx", commit=True)
    offsets.remove([P0], at=6)  # durable with the marker, and told of it later
    assert shown(offsets) == {P0: 5}


def test_what_is_undecided_does_not_expire() -> None:
    offsets = committed({P0: at(1), P1: at(1)})
    offsets.pend("tx", {P0: Placed(at(5), 7)})
    assert expired(offsets, now_ms=100 * DAY_MS) == [P1]
    offsets.decide("tx", commit=False)
    assert expired(offsets, now_ms=100 * DAY_MS) == [P0, P1]
