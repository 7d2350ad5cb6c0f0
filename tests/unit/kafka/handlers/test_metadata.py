"""Metadata through its bytes: all, some, none, created on demand, and kept until something changes."""

from __future__ import annotations

import inspect

import pytest
from tests.unit.kafka.handlers.stage import CONNECTION, Stage, play, versions

from tailrace.broker import NewTopic
from tailrace.broker.gate import Gate
from tailrace.kafka.cache import ReplyCache
from tailrace.kafka.call import Call
from tailrace.kafka.handlers import metadata
from tailrace.model import ErrorCode
from tailrace.model.operation import Operation, Resource
from tailrace.model.session import Principal, Session
from tailrace.wire.kafka import ZERO_UUID, decode, encode
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

INT_MIN = -(2**31)


async def ask(
    stage: Stage, request: MetadataRequest, *, version: int = 11, replies: ReplyCache | None = None
) -> MetadataResponse:
    call = Call(stage.access, version=version, client_id="tests", connection=CONNECTION, replies=replies)
    said = metadata.answer(call, memoryview(encode(request, version)))
    body = said if isinstance(said, bytes) else await said
    return decode(MetadataResponse, version, body)


def named(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


@pytest.mark.parametrize("version", versions(3))
def test_every_version_names_nodes_and_topics(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", partitions=2)
        response = await ask(stage, named("orders"), version=version)
        (node,) = response.brokers
        assert (node.node_id, node.host, node.port) == (1, "192.0.2.1", 9092)
        assert node.rack == ("rack-1" if version >= 1 else None)
        assert response.controller_id == (1 if version >= 1 else -1)
        assert response.cluster_id == (stage.broker.cluster.cluster_id if version >= 2 else None)
        (found,) = response.topics
        assert (found.error_code, found.name, found.is_internal) == (0, "orders", False)
        assert found.topic_id == (topic.id if version >= 10 else ZERO_UUID)
        assert found.topic_authorized_operations == INT_MIN
        assert [partition.partition_index for partition in found.partitions] == [0, 1]
        for partition in found.partitions:
            assert (partition.error_code, partition.leader_id) == (0, 1)
            assert partition.replica_nodes == [1] and partition.isr_nodes == [1]
            assert partition.leader_epoch == (0 if version >= 7 else -1)

    play(scenario)


def test_null_means_all_and_empty_means_none() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("b")
        await stage.topic("a")
        everything = await ask(stage, MetadataRequest(topics=None))
        assert [topic.name for topic in everything.topics] == ["a", "b"]
        assert (await ask(stage, MetadataRequest(topics=[]))).topics == []
        oldest = await ask(stage, MetadataRequest(topics=[]), version=0)
        assert [topic.name for topic in oldest.topics] == ["a", "b"]

    play(scenario)


def test_internal_topics_are_marked() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.broker.topics.create(NewTopic(name="__inside", partitions=1, internal=True))
        assert [topic.is_internal for topic in (await ask(stage, named("__inside"))).topics] == [True]

    play(scenario)


def test_an_unknown_topic_is_an_error_of_its_own() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("known")
        response = await ask(stage, named("unknown", "known", "no/good", "", "x" * 250, ".."))
        codes = {topic.name: topic.error_code for topic in response.topics}
        illegal = ErrorCode.INVALID_TOPIC_EXCEPTION
        assert codes == {
            "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "known": 0,
            "no/good": illegal,
            "": illegal,
            "x" * 250: illegal,
            "..": illegal,
        }
        assert len(stage.broker.topics) == 1

    play(scenario)


def test_a_topic_is_created_when_it_is_asked_for() -> None:
    async def scenario(stage: Stage) -> None:
        response = await ask(stage, named("new", "no/good", "__private", create=True))
        found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in response.topics}
        assert found == {"new": (0, 3), "no/good": (17, 0), "__private": (3, 0)}
        assert stage.broker.topics.get("new") is not None

    play(scenario, values={"num.partitions": "3"})


def test_before_version_4_everybody_may_create() -> None:
    async def scenario(stage: Stage) -> None:
        assert (await ask(stage, named("new", create=False), version=3)).topics[0].error_code == 0

    play(scenario)


def test_creation_may_be_switched_off() -> None:
    async def scenario(stage: Stage) -> None:
        assert (await ask(stage, named("new", create=True))).topics[0].error_code == 3
        assert len(stage.broker.topics) == 0

    play(scenario, values={"auto.create.topics.enable": "false"})


def test_a_topic_named_twice_is_answered_once() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("a")
        assert len((await ask(stage, named("a", "a"))).topics) == 1

    play(scenario)


@pytest.mark.parametrize(("version", "name"), [(10, ""), (11, ""), (12, None)])
def test_a_topic_may_be_named_by_its_id(version: int, name: str | None) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("a")
        known = MetadataRequestTopic(topic_id=topic.id, name=None)
        unknown = MetadataRequestTopic(topic_id=ZERO_UUID, name=None)
        response = await ask(stage, MetadataRequest(topics=[known, unknown]), version=version)
        codes = [(found.name, found.error_code) for found in response.topics]
        assert codes == [("a", 0), (name, ErrorCode.UNKNOWN_TOPIC_ID)]

    play(scenario)


def test_a_leader_that_is_away_is_said_to_be() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("a")
        call = Call(stage.access, version=11, client_id=None, connection=CONNECTION)
        stage.broker.cluster.nodes = {2: stage.broker.cluster.nodes[1]}  # type: ignore[dict-item, index]
        response = decode(MetadataResponse, 11, metadata.answer(call, memoryview(encode(named("a"), 11))))  # type: ignore[arg-type]
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert partition.offline_replicas == [1]

    play(scenario)


def test_an_answer_is_kept_until_a_topic_changes() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("a")
        replies = ReplyCache()
        call = Call(stage.access, version=11, client_id=None, connection=CONNECTION, replies=replies)
        body = memoryview(encode(MetadataRequest(topics=None), 11))
        first = metadata.answer(call, body)
        assert metadata.answer(call, body) is first
        elsewhere = CONNECTION._replace(local_host="198.51.100.9")
        other = Call(stage.access, version=11, client_id=None, connection=elsewhere, replies=replies)
        assert metadata.answer(other, body) != first  # it names the address that this client reached
        await stage.topic("b")
        again = metadata.answer(call, body)
        assert not inspect.isawaitable(again) and again != first
        assert len((await ask(stage, MetadataRequest(topics=None), replies=replies)).topics) == 2

    play(scenario)


def test_no_session_is_told_what_was_kept_for_another() -> None:
    async def scenario(stage: Stage) -> None:
        for name in ("open", "secret"):
            await stage.topic(name)

        def rule(session: Session, operation: Operation, resource: Resource) -> bool:
            return session.principal.name == "alice" or resource.name != "secret"

        gate, replies = Gate(stage.broker, authorize=rule), ReplyCache()
        calls = [
            Call(
                gate.access(Session(principal=Principal("User", name), listener="kafka")),
                version=11,
                client_id=None,
                connection=CONNECTION,
                replies=replies,
            )
            for name in ("alice", "bob")
        ]
        body = memoryview(encode(MetadataRequest(topics=None), 11))
        kept = [metadata.answer(call, body) for call in calls]
        names = [[topic.name for topic in decode(MetadataResponse, 11, each).topics] for each in kept]  # type: ignore[arg-type]
        assert names == [["open", "secret"], ["open"]]
        assert [metadata.answer(call, body) for call in calls] == kept
        assert all(metadata.answer(call, body) is reply for call, reply in zip(calls, kept, strict=True))

    play(scenario)


def test_an_error_is_not_kept_past_the_creation_of_the_topic() -> None:
    async def scenario(stage: Stage) -> None:
        replies = ReplyCache()
        assert (await ask(stage, named("a"), replies=replies)).topics[0].error_code == 3
        await stage.topic("a")
        assert (await ask(stage, named("a"), replies=replies)).topics[0].error_code == 0

    play(scenario)


@pytest.mark.parametrize("version", [8, 10, 11])
def test_whoever_asks_is_told_that_everything_is_allowed(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("known")
        request = named("known", "unknown")
        request.include_topic_authorized_operations = True
        request.include_cluster_authorized_operations = version < 11
        response = await ask(stage, request, version=version)
        known, unknown = response.topics
        assert known.topic_authorized_operations == sum(1 << each for each in (3, 4, 5, 6, 7, 8, 10, 11))
        assert unknown.topic_authorized_operations == INT_MIN
        cluster = sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))
        assert response.cluster_authorized_operations == (cluster if version < 11 else INT_MIN)

    play(scenario)


def test_one_request_creates_a_bounded_number_of_topics_and_the_next_goes_on() -> None:
    async def scenario(stage: Stage) -> None:
        request = named(*(f"t{number}" for number in range(150)), create=True)
        codes = [topic.error_code for topic in (await ask(stage, request)).topics]
        assert codes == [0] * 100 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 50
        codes = [topic.error_code for topic in (await ask(stage, request)).topics]
        assert codes == [0] * 150

    play(scenario, values={"num.partitions": "1"})


def test_a_topic_that_there_is_no_room_for_is_not_created() -> None:
    async def scenario(stage: Stage) -> None:
        response = await ask(stage, named("a", "b", create=True))
        assert [topic.error_code for topic in response.topics] == [0, ErrorCode.POLICY_VIOLATION]

    play(scenario, values={"num.partitions": "2", "max.partitions": "3"})
