"""A group's positions: what is visible, what is on its way, what is past its time."""

from __future__ import annotations

from tailrace.broker.groups.api import CommittedOffset
from tailrace.broker.groups.committed import CommittedOffsets
from tailrace.broker.groups.stored import StoredOffset
from tailrace.model import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("u", 1)
DAY_MS = 24 * 3600 * 1000


def at(offset: int, *, committed_ms: int = 0, expires_ms: int | None = None) -> StoredOffset:
    return StoredOffset(offset=offset, metadata="m", committed_ms=committed_ms, expires_ms=expires_ms)


def test_a_commit_is_visible_when_it_is_durable_and_not_before() -> None:
    offsets = CommittedOffsets()
    offsets.begin([P0])
    assert offsets.get(P0) is None and offsets.all() == {}
    assert P0 in offsets and len(offsets) == 1
    offsets.end({P0: at(5)}, durable=True)
    assert offsets.get(P0) == CommittedOffset(5, -1, "m")


def test_a_commit_that_failed_leaves_the_one_before() -> None:
    offsets = CommittedOffsets({P0: at(5)})
    offsets.begin([P0])
    offsets.end({P0: at(9)}, durable=False)
    assert offsets.get(P0) == CommittedOffset(5, -1, "m")


def test_two_commits_of_one_partition_may_be_on_their_way() -> None:
    offsets = CommittedOffsets()
    offsets.begin([P0])
    offsets.begin([P0])
    offsets.end({P0: at(1)}, durable=True)
    assert expired(offsets, now_ms=100 * DAY_MS) == []
    offsets.end({P0: at(2)}, durable=True)
    assert offsets.all() == {P0: CommittedOffset(2, -1, "m")}
    assert expired(offsets, now_ms=100 * DAY_MS) == [P0]


def test_what_is_on_its_way_belongs_to_its_topic_too() -> None:
    offsets = CommittedOffsets({P0: at(1)})
    offsets.begin([P1])
    assert offsets.of_topic("u") == [P1]
    assert sorted(offsets) == [P0, P1]


def test_removing_what_is_not_there_is_harmless() -> None:
    offsets = CommittedOffsets({P0: at(1)})
    offsets.remove([P0, P1])
    assert len(offsets) == 0


def expired(offsets: CommittedOffsets, *, now_ms: int, unused_since_ms: int = 0) -> list[TopicPartition]:
    return offsets.plan_expiry(now_ms=now_ms, retention_ms=7 * DAY_MS, unused_since_ms=unused_since_ms)


def test_positions_expire_so_long_after_the_last_member_left() -> None:
    offsets = CommittedOffsets({P0: at(1, committed_ms=0)})
    assert expired(offsets, now_ms=8 * DAY_MS - 1, unused_since_ms=DAY_MS) == []
    assert expired(offsets, now_ms=8 * DAY_MS, unused_since_ms=DAY_MS) == [P0]


def test_a_later_commit_counts_from_itself() -> None:
    offsets = CommittedOffsets({P0: at(1, committed_ms=0), P1: at(1, committed_ms=5 * DAY_MS)})
    assert expired(offsets, now_ms=7 * DAY_MS) == [P0]
    assert expired(offsets, now_ms=12 * DAY_MS) == [P0, P1]


def test_a_client_may_have_set_its_own_end() -> None:
    offsets = CommittedOffsets({P0: at(1, expires_ms=100), P1: at(1, expires_ms=30 * DAY_MS)})
    assert expired(offsets, now_ms=99) == []
    assert expired(offsets, now_ms=100) == [P0]
    assert expired(offsets, now_ms=29 * DAY_MS) == [P0]


def test_what_is_being_committed_does_not_expire() -> None:
    offsets = CommittedOffsets({P0: at(1)})
    offsets.begin([P0])
    assert expired(offsets, now_ms=100 * DAY_MS) == []
