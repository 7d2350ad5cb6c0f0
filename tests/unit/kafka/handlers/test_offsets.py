"""ListOffsets, OffsetForLeaderEpoch, InitProducerId, FindCoordinator: every version, good and bad input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.poison import bomb, undecodable
from tests.unit.kafka.handlers.stage import Stage, play, versions

from tailrace.model import ErrorCode, TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.records import build_batch, read_batch
from tailrace.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

EARLIEST, LATEST, GREATEST = -2, -1, -3


async def times(stage: Stage) -> int:
    """A topic `t` whose records have the times 100, 300 | 200, 400, counted from now; returns now."""
    topic = await stage.topic("t", partitions=2)
    now = stage.broker.clock.now_ms()
    for stamps in ((100, 300), (200, 400)):
        batch = build_batch([(now + stamp, None, b"v", ()) for stamp in stamps])
        topic.partitions[0].append(read_batch(batch))
    return now


async def offset_at(
    stage: Stage, timestamp: int, *, version: int = 6, partition: int = 0, epoch: int = -1, isolation: int = 0
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
    )
    response = await stage.ask(request, ListOffsetsResponse, version=version)
    (found,) = response.topics[0].partitions
    assert response.topics[0].name == "t" and found.partition_index == partition
    return found


@pytest.mark.parametrize("version", versions(2))
def test_start_end_and_time(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        now = await times(stage)
        epoch = 0 if version >= 4 else -1
        for timestamp, offset, stamp in (
            (EARLIEST, 0, -1),
            (LATEST, 4, -1),
            (now, 0, now + 100),
            (now + 100, 0, now + 100),
            (now + 101, 1, now + 300),  # the first in the log, not the earliest in time
            (now + 301, 3, now + 400),
        ):
            found = await offset_at(stage, timestamp, version=version)
            assert (found.error_code, found.offset, found.timestamp) == (0, offset, stamp)
            assert found.leader_epoch == epoch

    play(scenario)


def test_a_time_after_everything_is_no_error() -> None:
    async def scenario(stage: Stage) -> None:
        now = await times(stage)
        found = await offset_at(stage, now + 401)
        assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, -1, -1, -1)

    play(scenario)


def test_an_empty_partition_begins_and_ends_at_0() -> None:
    async def scenario(stage: Stage) -> None:
        await times(stage)
        for timestamp, offset in ((EARLIEST, 0), (LATEST, 0), (0, -1)):
            assert (await offset_at(stage, timestamp, partition=1)).offset == offset
        assert (await offset_at(stage, LATEST, isolation=1)).offset == 4

    play(scenario)


def test_read_committed_finds_nothing_above_the_last_stable_offset() -> None:
    async def scenario(stage: Stage) -> None:
        now = await times(stage)
        topic = stage.broker.topics.get("t")
        assert topic is not None
        partition = topic.partitions[0]
        batch = build_batch(
            [(now + 500, b"k", b"v", ())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        partition.append(read_batch(batch), verified=True)
        for timestamp, committed, uncommitted in (
            (LATEST, 4, 5),
            (now + 450, -1, 4),
            (now + 301, 3, 3),
            (GREATEST, 3, 4),
        ):
            assert (await offset_at(stage, timestamp, version=7, isolation=1)).offset == committed
            assert (await offset_at(stage, timestamp, version=7, isolation=0)).offset == uncommitted
        partition.append_marker(7, 0, commit=True, coordinator_epoch=0)
        assert (await offset_at(stage, LATEST, isolation=1)).offset == 6
        assert (await offset_at(stage, now + 450, isolation=1)).offset == 4

    play(scenario)


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST, 5])
def test_errors_stand_with_their_partition(timestamp: int) -> None:
    async def scenario(stage: Stage) -> None:
        await times(stage)
        for partition, epoch, code in ((9, -1, 3), (-1, -1, 3), (0, 7, 75), (0, -2, 74)):
            found = await offset_at(stage, timestamp, partition=partition, epoch=epoch)
            assert (found.error_code, found.offset, found.timestamp) == (code, -1, -1)

    play(scenario)


@pytest.mark.parametrize("timestamp", [EARLIEST, LATEST, 5])
def test_an_illegal_name_is_an_unknown_topic(timestamp: int) -> None:
    async def scenario(stage: Stage) -> None:
        asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
        topic = ListOffsetsTopic(name="no/slash", partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
        response = await stage.ask(request, ListOffsetsResponse, version=6)
        (found,) = response.topics[0].partitions
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 9), (-(2**63), 9), (-(2**63), 1)]
)
def test_times_without_a_meaning_in_a_version_are_refused(timestamp: int, version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await times(stage)
        answer = await offset_at(stage, timestamp, version=version)
        assert (answer.error_code, answer.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)

    play(scenario)


@pytest.mark.parametrize(("timestamp", "version", "offset"), [(-4, 8, 0), (-4, 9, 0), (-5, 9, -1)])
def test_nothing_is_in_tiered_storage(timestamp: int, version: int, offset: int) -> None:
    async def scenario(stage: Stage) -> None:
        await times(stage)
        answer = await offset_at(stage, timestamp, version=version)
        assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, -1)

    play(scenario)


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize(
    ("batches", "offset", "timestamp"),
    [
        ([], -1, -1),
        ([[-1, -1]], -1, -1),
        ([[5]], 0, 5),
        ([[1, 2], [3, 4]], 3, 4),
        ([[1, 9], [9, 2], [3, 4]], 1, 9),
        ([[10**13, 1], [10**6]], 0, 10**13),
        ([[7, 3], [0, 0]], 0, 7),
        ([[-1], [0]], 1, 0),
        ([[n * 37 % 101] for n in range(101)], 30, 100),
    ],
)
def test_the_first_record_with_the_greatest_time(
    batches: list[list[int]], offset: int, timestamp: int, version: int
) -> None:
    async def scenario(stage: Stage) -> None:
        partition = (await stage.topic("t")).partitions[0]
        now = stage.broker.clock.now_ms()  # the memory engine forgets what is old
        for stamps in batches:
            records = [(now + stamp if stamp >= 0 else stamp, b"k", b"v", ()) for stamp in stamps]
            partition.append(read_batch(build_batch(records)))
        answer = await offset_at(stage, -3, version=version)
        found = answer.timestamp - now if answer.timestamp >= 0 else answer.timestamp
        assert (answer.error_code, answer.offset, found) == (0, offset, timestamp)

    play(scenario)


@pytest.mark.parametrize("make", [undecodable, bomb])
def test_a_time_that_may_lie_in_what_cannot_be_decoded_is_an_error_of_its_partition(
    make: Callable[..., bytearray],
) -> None:
    async def scenario(stage: Stage) -> None:
        now = await times(stage)
        partition = stage.broker.gate.access(INTERNAL).readable(TopicPartition("t", 0))
        partition.append(read_batch(make(3, time_ms=now + 500)))
        found = await offset_at(stage, now + 401)
        assert (found.error_code, found.offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
        assert (await offset_at(stage, now + 301)).offset == 3
        assert (await offset_at(stage, LATEST)).offset == 7

    play(scenario)


async def end_of(
    stage: Stage, epoch: int, *, version: int = 4, partition: int = 0, known: int = -1
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=known, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
    response = await stage.ask(request, OffsetForLeaderEpochResponse, version=version)
    assert response.topics[0].topic == "t"
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", versions(23))
def test_the_current_epoch_ends_at_the_end(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await times(stage)
        found = await end_of(stage, 0, version=version, known=0)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 4)

    play(scenario)


@pytest.mark.parametrize("epoch", [5, -1])
def test_an_unknown_epoch_has_no_end(epoch: int) -> None:
    async def scenario(stage: Stage) -> None:
        await times(stage)
        found = await end_of(stage, epoch)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, -1, -1)

    play(scenario)


@pytest.mark.parametrize(("partition", "known", "code"), [(9, -1, 3), (0, 3, 75), (0, -2, 74)])
def test_an_epoch_of_nowhere_is_an_error(partition: int, known: int, code: int) -> None:
    async def scenario(stage: Stage) -> None:
        await times(stage)
        found = await end_of(stage, 0, partition=partition, known=known)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (code, -1, -1)

    play(scenario)


@pytest.mark.parametrize("version", versions(22))
def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        ids = set()
        for _ in range(5):
            answer = await stage.ask(InitProducerIdRequest(), InitProducerIdResponse, version=version)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            ids.add(answer.producer_id)
        assert len(ids) == 5 and min(ids) >= 0

    play(scenario)


def test_a_producer_id_without_its_epoch_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(Exception, match="together") as caught:
            await stage.ask(InitProducerIdRequest(producer_id=4), InitProducerIdResponse)
        assert getattr(caught.value, "code", None) == ErrorCode.INVALID_REQUEST

    play(scenario)


async def find(stage: Stage, key: str, *, key_type: int = 0, version: int) -> Coordinator:
    """What one key is answered, as the version asks for it."""
    request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    answer = await stage.ask(request, FindCoordinatorResponse, version=version)
    if version >= 4:
        (found,) = answer.coordinators
        return found
    return Coordinator(key, answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message)


@pytest.mark.parametrize("version", versions(10))
def test_a_group_finds_its_coordinator(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        assert await find(stage, "g", version=version) == Coordinator("g", 1, "192.0.2.1", 9092)

    play(scenario)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_transactional_id_finds_its_coordinator(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        found = await find(stage, "payments", key_type=1, version=version)
        assert found == Coordinator("payments", 1, "192.0.2.1", 9092)
        topic = stage.broker.topics.get("__transaction_state")
        assert topic is not None and topic.internal
        assert topic.configs["cleanup.policy"] == "compact" and topic.configs["flush.messages"] == "1"

    play(scenario)


@pytest.mark.parametrize("version", [3, 6])
@pytest.mark.parametrize(
    ("key", "key_type", "code"),
    [
        ("", 0, ErrorCode.INVALID_GROUP_ID),
        ("", 1, ErrorCode.INVALID_REQUEST),
        ("g", 2, ErrorCode.INVALID_REQUEST),
        ("g", -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_who_has_no_coordinator_is_told_why(key: str, key_type: int, code: ErrorCode, version: int) -> None:
    async def scenario(stage: Stage) -> None:
        answer = await find(stage, key, key_type=key_type, version=version)
        assert (answer.error_code, answer.node_id, answer.host) == (code, -1, "")
        assert answer.error_message

    play(scenario)


def test_several_keys_answer_for_themselves() -> None:
    async def scenario(stage: Stage) -> None:
        request = FindCoordinatorRequest(coordinator_keys=["b", "", "a", "b"])
        answer = await stage.ask(request, FindCoordinatorResponse)
        assert [(each.key, each.error_code) for each in answer.coordinators] == [
            ("b", 0),
            ("", ErrorCode.INVALID_GROUP_ID),
            ("a", 0),
            ("b", 0),
        ]
        assert (await stage.ask(FindCoordinatorRequest(), FindCoordinatorResponse)).coordinators == []

    play(scenario)
