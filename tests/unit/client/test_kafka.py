"""The client against a scripted broker: finding things, trying again, and saying what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests import unhurried
from tests.unit.client.conftest import FIND_COORDINATOR, METADATA, NODE, FakeBroker

from tailrace.client.error import CannotConnect, ClientClosed, TimedOut, UnknownTopic
from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import LATEST
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.records import build_batch
from tailrace.wire.kafka import FETCH, PRODUCE, FetchResult, ProduceResult, write_fetch_response
from tailrace.wire.kafka.messages.find_coordinator import FindCoordinatorResponse
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tailrace.wire.kafka.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

LIST_OFFSETS, OFFSET_COMMIT = 2, 8
PARTITION = TopicPartition("t", 0)


def with_client(test: Callable[[FakeBroker, KafkaClient], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client(**settings) as client:
            await test(fake, client)

    unhurried.run(run())


def codes(*given: int) -> Callable[[], int]:
    """Error codes one after the other, then 0 for ever."""
    left = list(given)
    return lambda: left.pop(0) if left else 0


# ---- the cluster


def test_all_topics_are_listed() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        fake.topics = {"a": 2, "b": 1}
        found = await client.metadata()
        assert {name: len(info.partitions) for name, info in found.items()} == {"a": 2, "b": 1}
        assert client.cluster.cluster_id == "fake"

    with_client(test)


def test_a_topic_that_does_not_exist_is_an_error_at_once() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        with pytest.raises(UnknownTopic, match=r"topic nope does not exist\. Try: tailrace topic list"):
            await client.topic("nope")
        assert len(fake.asked_for(METADATA)) == 2

    with_client(test)


def test_a_topic_that_is_being_created_is_waited_for() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        errors = codes(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)

        def creating(version: int, request: MetadataRequest) -> MetadataResponse:
            reply = fake.metadata(version, request)
            if code := errors():
                reply.topics = [MetadataResponseTopic(error_code=code, name="t")]
            return reply

        fake.handlers[METADATA] = creating
        assert len((await client.topic("t", create=True)).partitions) == 1
        assert [each.allow_auto_topic_creation for each in fake.asked_for(METADATA)[1:]] == [True] * 3

    with_client(test)


def test_a_topic_is_asked_for_once_however_many_want_it() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        await asyncio.gather(*(client.topic("t") for _ in range(10)))
        await client.topic("t")
        assert len(fake.asked_for(METADATA)) == 2

    with_client(test)


def test_a_partition_that_does_not_exist_is_an_error_at_once() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        with pytest.raises(UnknownTopic, match="topic t has no partition 5, only 0 to 0"):
            await client.leader(TopicPartition("t", 5))

    with_client(test)


def test_a_reply_without_the_topic_that_was_asked_for_breaks_the_protocol() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        fake.handlers[METADATA] = lambda version, request: MetadataResponse()
        with pytest.raises(ProtocolError, match="did not mention it"):
            await client.topic("t")

    with_client(test)


def test_the_coordinator_is_found_again_when_it_moved() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        errors = codes(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        fake.handlers[FIND_COORDINATOR] = lambda version, request: FindCoordinatorResponse(
            node_id=NODE, error_code=errors()
        )
        moved = codes(ErrorCode.NOT_COORDINATOR)
        fake.handlers[OFFSET_COMMIT] = lambda version, request: commit_reply(moved())
        await client.commit("g", {PARTITION: 5})
        assert len(fake.asked_for(FIND_COORDINATOR)) == 3
        assert len(fake.asked_for(OFFSET_COMMIT)) == 2

    with_client(test)


def commit_reply(code: int) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


# ---- connections


def test_a_lost_connection_is_opened_again() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        before = fake.connections
        fake.drop_connections()
        await client.metadata()
        assert fake.connections == before + 1

    with_client(test)


def test_the_next_bootstrap_server_is_tried() -> None:
    async def run() -> None:
        async with FakeBroker() as gone:
            dead = gone.address
        async with FakeBroker() as fake, KafkaClient(f"{dead},{fake.address}") as client:
            assert await client.metadata()

    unhurried.run(run())


def test_no_bootstrap_server_at_all_names_them_all() -> None:
    async def run() -> None:
        async with FakeBroker() as one, FakeBroker() as other:
            addresses = [one.address, other.address]
        with pytest.raises(CannotConnect, match="connection refused") as caught:
            await KafkaClient(",".join(addresses)).connect()
        assert all(each in str(caught.value) for each in addresses)

    unhurried.run(run())


def test_a_closed_client_says_so() -> None:
    async def run() -> None:
        async with FakeBroker() as fake:
            async with fake.client() as client:
                pass
            with pytest.raises(ClientClosed):
                await client.metadata()

    unhurried.run(run())


# ---- records and offsets


@pytest.mark.parametrize("code", [3, 5, 6, 7, 19, 56, 74])
def test_producing_is_tried_again_after_an_error_that_may_go_away(code: int) -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        errors = codes(code)

        def decide(topic: str, partition: int, batch: bytes) -> ProduceResult:
            error = errors()
            return ProduceResult(partition, error_code=error) if error else fake.keep(topic, partition, batch)

        fake.handlers[PRODUCE] = lambda version, request: fake.answer_produce(version, request, decide)
        done = await client.produce("t", 0, build_batch([(0, b"k", b"v", ())]))
        assert done.base_offset == 0
        assert fake.values() == [b"v"]

    with_client(test)


def test_stale_leadership_is_looked_up_again() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        await client.leader(PARTITION)
        asked = len(fake.asked_for(METADATA))
        errors = codes(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        fake.handlers[LIST_OFFSETS] = lambda version, request: offsets_reply(errors(), 7)
        found = await client.list_offsets({PARTITION: LATEST})
        assert found[PARTITION].offset == 7
        assert len(fake.asked_for(METADATA)) == asked + 1

    with_client(test)


def offsets_reply(code: int, offset: int) -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])


def test_an_error_that_stays_is_raised_at_once_with_its_name() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        fake.handlers[LIST_OFFSETS] = lambda version, request: offsets_reply(29, -1)
        with pytest.raises(BrokerError, match="offsets of t-0: topic authorization failed") as caught:
            await client.list_offsets({PARTITION: LATEST})
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(fake.asked_for(LIST_OFFSETS)) == 1

    with_client(test)


def test_a_code_from_the_future_is_told_by_its_number() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        fake.handlers[LIST_OFFSETS] = lambda version, request: offsets_reply(999, -1)
        with pytest.raises(BrokerError, match="error 999"):
            await client.list_offsets({PARTITION: LATEST})

    with_client(test)


def test_trying_again_ends_at_the_deadline_and_says_why() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        fake.handlers[LIST_OFFSETS] = lambda version, request: offsets_reply(6, -1)
        with pytest.raises(TimedOut, match=r"within 0\.3 s: .*not leader or follower"):
            await client.list_offsets({PARTITION: LATEST})
        assert len(fake.asked_for(LIST_OFFSETS)) > 1

    with_client(test, request_timeout_s=0.3)


def test_a_consumer_asks_as_a_consumer() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        fake.handlers[LIST_OFFSETS] = lambda version, request: offsets_reply(0, 1)
        await client.list_offsets({PARTITION: LATEST}, read_committed=True)
        request: ListOffsetsRequest = fake.asked_for(LIST_OFFSETS)[0]
        assert (request.replica_id, request.isolation_level) == (-1, 1)

    with_client(test)


def test_fetched_records_are_what_the_broker_sent() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        batch = bytes(build_batch([(0, None, b"v", ())]))

        def fetch(version: int, request: object) -> bytes:
            result: FetchResult[Any] = FetchResult(0, high_watermark=1, records=Piece(batch))
            return joined(write_fetch_response(version, topics=[("t", [result])]))

        fake.handlers[FETCH] = fetch
        found = await client.fetch({PARTITION: 0})
        assert bytes(found[PARTITION].records) == batch
        assert found[PARTITION].high_watermark == 1
        asked = fake.requested()[0].topics[0].partitions[0]
        assert (asked.fetch_offset, asked.partition_max_bytes) == (0, 1024 * 1024)

    with_client(test)


def test_a_fetch_reply_without_a_partition_breaks_the_protocol() -> None:
    async def test(fake: FakeBroker, client: KafkaClient) -> None:
        fake.handlers[FETCH] = lambda version, request: joined(write_fetch_response(version, topics=[]))
        with pytest.raises(ProtocolError, match="says nothing about t-0"):
            await client.fetch({PARTITION: 0})

    with_client(test)


class Piece:
    """Record bytes as a broker hands them over."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)


def joined(pieces: list[Any]) -> bytes:
    return b"".join(each.data if isinstance(each, Piece) else each for each in pieces)
