"""Fetch sessions (KIP-227) as pure state: what a request reads, and what of the answer is sent."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tailrace.kafka.fetch_session import FetchContext, FetchSessions
from tailrace.model import ErrorCode
from tailrace.wire.kafka import FetchPartition, FetchRequest, FetchResult, FetchTopic, TopicRef

INT_MAX = 2**31 - 1


def sessions(*, sessions_max: int = 10, partitions_max: int = 100, idle_s: float = 60.0) -> FetchSessions:
    ids = itertools.count(1)
    return FetchSessions(
        sessions_max=sessions_max, partitions_max=partitions_max, idle_s=idle_s, draw=lambda *_: next(ids)
    )


def request(
    offsets: Mapping[int, int],
    *,
    session_id: int = 0,
    epoch: int = 0,
    forgotten: Sequence[tuple[TopicRef, list[int]]] = (),
    topic: TopicRef = "t",
    by_id: bool = False,
) -> FetchRequest:
    asked = [FetchPartition(index, 3, offset, -1, -1, 1000) for index, offset in offsets.items()]
    topics = [FetchTopic(topic, asked)] if asked else []
    return FetchRequest(-1, 500, 1, 1 << 20, 0, session_id, epoch, topics, list(forgotten), "", by_id)


def read(context: FetchContext) -> dict[int, int]:
    return {wanted.tp.partition: wanted.offset for wanted in context.wanted}


def answer(context: FetchContext, **records: object) -> list[int]:
    """Answer with records for the partitions named p<n>, nothing new for the others; what is sent."""
    answers: list[tuple[Any, FetchResult[Any]]] = [
        (
            wanted,
            FetchResult(wanted.tp.partition, 0, 10, 10, 0, records=records.get(f"p{wanted.tp.partition}")),
        )
        for wanted in context.wanted
    ]
    return [wanted.tp.partition for wanted, _ in context.choose(answers)]


def test_without_a_session_everything_is_named_and_answered() -> None:
    known = sessions()
    context = known.begin(request({0: 5, 1: 6}, epoch=-1), 0.0)
    assert read(context) == {0: 5, 1: 6} and context.session_id == 0 and len(known) == 0
    assert answer(context) == [0, 1]


def test_epoch_0_makes_a_session_and_answers_everything_once() -> None:
    known = sessions()
    context = known.begin(request({0: 5, 1: 6}), 0.0)
    assert context.session_id == 1 and answer(context) == [0, 1]


def test_a_later_request_names_changes_and_hears_of_changes() -> None:
    known = sessions()
    answer(known.begin(request({0: 5, 1: 6}), 0.0))
    context = known.begin(request({1: 8}, session_id=1, epoch=1), 0.0)
    assert read(context) == {0: 5, 1: 8} and context.session_id == 1
    assert answer(context) == []
    context = known.begin(request({}, session_id=1, epoch=2), 0.0)
    assert answer(context, p0=b"records") == [0]


def test_partitions_come_and_go() -> None:
    known = sessions()
    answer(known.begin(request({0: 5, 1: 6}), 0.0))
    context = known.begin(request({2: 7}, session_id=1, epoch=1, forgotten=[("t", [0]), ("u", [9])]), 0.0)
    assert read(context) == {1: 6, 2: 7}
    assert answer(context) == [2]  # it was never told of before


def test_new_offsets_are_told_without_records() -> None:
    known = sessions()
    answer(known.begin(request({0: 5, 1: 6}), 0.0))
    context = known.begin(request({}, session_id=1, epoch=1), 0.0)
    first, second = context.wanted
    moved = context.choose([(first, FetchResult(0, 0, 11, 11, 0)), (second, FetchResult(1, 0, 10, 10, 0))])
    assert [wanted.tp.partition for wanted, _ in moved] == [0]
    trimmed = context.choose([(first, FetchResult(0, 0, 11, 11, 0)), (second, FetchResult(1, 0, 10, 10, 4))])
    assert [wanted.tp.partition for wanted, _ in trimmed] == [1]


def test_an_error_is_told_and_so_is_its_end() -> None:
    known = sessions()
    answer(known.begin(request({0: 5}), 0.0))
    context = known.begin(request({}, session_id=1, epoch=1), 0.0)
    (wanted,) = context.wanted
    assert len(context.choose([(wanted, FetchResult(0, 6))])) == 1
    assert len(context.choose([(wanted, FetchResult(0, 6))])) == 1
    assert len(context.choose([(wanted, FetchResult(0, 0, 10, 10, 0))])) == 1
    assert len(context.choose([(wanted, FetchResult(0, 0, 10, 10, 0))])) == 0


def test_partitions_with_records_go_to_the_end_of_the_line() -> None:
    known = sessions()
    answer(known.begin(request({0: 5, 1: 6, 2: 7}), 0.0))
    answer(known.begin(request({}, session_id=1, epoch=1), 0.0), p0=b"x")
    context = known.begin(request({}, session_id=1, epoch=2), 0.0)
    assert [wanted.tp.partition for wanted in context.wanted] == [1, 2, 0]


def test_an_unknown_session_is_an_error() -> None:
    context = sessions().begin(request({0: 5}, session_id=7, epoch=3), 0.0)
    assert context.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not context.wanted
    assert context.session_id == 0


def test_another_epoch_than_the_next_is_an_error_and_the_session_stays() -> None:
    known = sessions()
    answer(known.begin(request({0: 5}), 0.0))
    for epoch in (2, INT_MAX, -7):
        context = known.begin(request({}, session_id=1, epoch=epoch), 0.0)
        assert context.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert known.begin(request({}, session_id=1, epoch=1), 0.0).error == ErrorCode.NONE


def test_the_epoch_wraps_to_1() -> None:
    known = sessions()
    context = known.begin(request({0: 5}), 0.0)
    assert context.session is not None
    context.session.epoch = INT_MAX
    assert not known.begin(request({}, session_id=1, epoch=INT_MAX), 0.0).error
    assert not known.begin(request({}, session_id=1, epoch=1), 0.0).error


def test_epoch_minus_1_ends_a_session() -> None:
    known = sessions()
    answer(known.begin(request({0: 5}), 0.0))
    context = known.begin(request({0: 9}, session_id=1, epoch=-1), 0.0)
    assert read(context) == {0: 9} and context.session_id == 0 and len(known) == 0


def test_epoch_0_with_an_id_makes_another_session() -> None:
    known = sessions()
    answer(known.begin(request({0: 5}), 0.0))
    assert known.begin(request({0: 9}, session_id=1, epoch=0), 0.0).session_id == 2
    assert len(known) == 1


def test_a_session_without_partitions_ends() -> None:
    known = sessions()
    answer(known.begin(request({0: 5}), 0.0))
    context = known.begin(request({}, session_id=1, epoch=1, forgotten=[("t", [0])]), 0.0)
    assert context.session_id == 0 and not context.error and len(known) == 0
    assert known.begin(request({}), 0.0).session_id == 0


def test_a_full_cache_evicts_what_was_long_unused_and_nothing_else() -> None:
    known = sessions(sessions_max=2)
    assert known.begin(request({0: 1}), 0.0).session_id == 1
    assert known.begin(request({0: 2}), 50.0).session_id == 2
    assert known.begin(request({0: 3}), 59.0).session_id == 0
    assert not known.begin(request({}, session_id=1, epoch=1), 59.5).error  # used again
    assert known.begin(request({0: 4}), 109.0).session_id == 0
    assert known.begin(request({0: 5}), 110.0).session_id == 3
    assert known.begin(request({}, session_id=2, epoch=1), 111.0).error == 70
    assert not known.begin(request({}, session_id=1, epoch=2), 111.0).error


def test_partitions_of_all_sessions_are_bounded() -> None:
    known = sessions(partitions_max=5)
    assert known.begin(request(dict.fromkeys(range(3), 0)), 0.0).session_id == 1
    assert known.begin(request(dict.fromkeys(range(3), 0)), 0.0).session_id == 0
    context = known.begin(request(dict.fromkeys(range(3, 9), 0), session_id=1, epoch=1), 0.0)
    assert context.session_id == 0 and len(read(context)) == 9 and len(known) == 0
    assert known.begin(request(dict.fromkeys(range(5), 0)), 0.0).session_id == 2


def test_one_partition_named_twice_is_one_partition() -> None:
    known = sessions()
    twice = FetchRequest(
        -1, 0, 1, 1, 0, 0, 0, [FetchTopic("t", [FetchPartition(0, -1, n, -1, -1, 9) for n in (1, 2)])], [], ""
    )
    answer(known.begin(twice, 0.0))
    context = known.begin(request({}, session_id=1, epoch=1, forgotten=[("t", [0])]), 0.0)
    assert not context.wanted and len(known) == 0


def test_a_session_by_ids_updates_forgets_and_turns_its_partitions() -> None:
    known, topic = sessions(), UUID(int=7)
    context = known.begin(request({0: 5, 1: 6}, topic=topic, by_id=True), 0.0)
    assert answer(context, p0=b"records") == [0, 1]
    again = UUID(int=7)  # every request brings an object of its own
    context = known.begin(request({0: 9, 2: 1}, session_id=1, epoch=1, topic=again, by_id=True), 1.0)
    assert list(read(context).items()) == [(1, 6), (0, 9), (2, 1)]
    forgotten: list[tuple[TopicRef, list[int]]] = [(UUID(int=7), [1, 2])]
    context = known.begin(request({}, session_id=1, epoch=2, forgotten=forgotten, by_id=True), 2.0)
    assert read(context) == {0: 9}


def test_a_session_changes_neither_from_names_to_ids_nor_back() -> None:
    known, topic = sessions(), UUID(int=7)
    known.begin(request({0: 5}), 0.0)
    known.begin(request({0: 5}, topic=topic, by_id=True), 0.0)
    for session_id, by_id in ((1, True), (2, False)):
        context = known.begin(request({}, session_id=session_id, epoch=1, by_id=by_id), 1.0)
        assert context.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    for session_id, by_id in ((1, False), (2, True)):
        context = known.begin(request({}, session_id=session_id, epoch=1, by_id=by_id), 1.0)
        assert context.error == ErrorCode.NONE and context.incremental
