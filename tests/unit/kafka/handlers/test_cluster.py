"""The cluster, its quorum, directories and elections, as clients are told, against a broker in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tailrace.wire.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tailrace.wire.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tailrace.wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from tailrace.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tailrace.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

from .stage import CONNECTION, Stage, play, versions, write


def test_the_node_is_told_under_the_address_that_the_client_reached() -> None:
    async def scenario(stage: Stage) -> None:
        response = await stage.ask(DescribeClusterRequest(), DescribeClusterResponse)
        assert (response.error_code, response.error_message) == (0, None)
        assert response.cluster_id == stage.broker.cluster.cluster_id != ""
        assert response.controller_id == 1
        (node,) = response.brokers
        assert (node.broker_id, node.host, node.port) == (1, CONNECTION.local_host, CONNECTION.local_port)
        assert node.rack == "rack-1"
        assert response.cluster_authorized_operations == -(2**31)

    play(scenario)


def test_operations_are_told_if_asked_for() -> None:
    async def scenario(stage: Stage) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await stage.ask(request, DescribeClusterResponse)
        assert response.cluster_authorized_operations == 0b1_1111_1010_0000

    play(scenario)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, 115), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_controllers_are_not_told_by_a_listener_of_brokers(endpoint_type: int, code: int) -> None:
    async def scenario(stage: Stage) -> None:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        response = await stage.ask(request, DescribeClusterResponse)
        assert (response.error_code, response.brokers) == (code, [])
        assert response.error_message

    play(scenario)


@pytest.mark.parametrize("version", versions(55))
def test_one_node_is_the_whole_quorum(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        asked = [
            DescribeQuorumRequestTopic("__cluster_metadata", [DescribeQuorumRequestPartition(0)]),
            DescribeQuorumRequestTopic("orders", [DescribeQuorumRequestPartition(0)]),
        ]
        response = await stage.ask(DescribeQuorumRequest(asked), DescribeQuorumResponse, version=version)
        metadata, other = (topic.partitions[0] for topic in response.topics)
        assert (response.error_code, metadata.error_code, metadata.leader_id) == (0, 0, 1)
        (voter,) = metadata.current_voters
        assert voter.replica_id == 1 and voter.log_end_offset == metadata.high_watermark > 0
        assert metadata.observers == []
        assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if version >= 2:
            (node,) = response.nodes
            (listener,) = node.listeners
            assert (listener.host, listener.port) == (CONNECTION.local_host, CONNECTION.local_port)
            assert listener.name.isupper()  # Java's client refuses any other name

    play(scenario)


@pytest.mark.parametrize("version", versions(34))
def test_a_replica_is_in_the_one_directory_or_cannot_get_there(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", partitions=2)
        asked = [
            AlterReplicaLogDir("/data/here", [AlterReplicaLogDirTopic("orders", [1, 2, -1])]),
            AlterReplicaLogDir("/data/there", [AlterReplicaLogDirTopic("orders", [0])]),
            AlterReplicaLogDir("/data/here", [AlterReplicaLogDirTopic("nobody", [0])]),
        ]
        request = AlterReplicaLogDirsRequest(asked)
        response = await stage.ask(request, AlterReplicaLogDirsResponse, version=version)
        assert [
            (topic.topic_name, each.partition_index, each.error_code)
            for topic in response.results
            for each in topic.partitions
        ] == [
            ("orders", 1, 0),
            ("orders", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", 0, ErrorCode.LOG_DIR_NOT_FOUND),
            ("nobody", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    play(scenario, values={"log.dirs": "/data/here"})


def test_the_size_of_the_disk_is_told_where_there_is_one(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        for version in (3, 4):
            request = DescribeLogDirsRequest(topics=[])
            (found,) = (await stage.ask(request, DescribeLogDirsResponse, version=version)).results
            if version < 4:
                assert (found.total_bytes, found.usable_bytes) == (-1, -1)
            else:
                assert 0 <= found.usable_bytes < found.total_bytes

    play(scenario, values={"log.dirs": str(tmp_path)})


@pytest.mark.parametrize("values", [{}, {"log.dirs": "/nowhere/at/all"}])
def test_without_a_disk_its_size_is_not_known(values: dict[str, str]) -> None:
    async def scenario(stage: Stage) -> None:
        (found,) = (await stage.ask(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)).results
        assert (found.total_bytes, found.usable_bytes) == (-1, -1)

    play(scenario, values=values)


@pytest.mark.parametrize("version", versions(35))
def test_null_topics_are_all_partitions_in_the_one_directory(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        full = await stage.topic("full", partitions=2)
        await stage.topic("empty")
        write(full.partitions[1], 100)
        request = DescribeLogDirsRequest(topics=None)
        (result,) = (await stage.ask(request, DescribeLogDirsResponse, version=version)).results
        assert (result.error_code, result.log_dir) == (0, "/data/here")
        sizes = {
            (topic.name, partition.partition_index): partition.partition_size
            for topic in result.topics
            for partition in topic.partitions
        }
        assert set(sizes) == {("full", 0), ("full", 1), ("empty", 0)}
        assert sizes["full", 1] > 500
        assert sizes["full", 0] == sizes["empty", 0] == 0
        assert not any(
            part.offset_lag or part.is_future_key for topic in result.topics for part in topic.partitions
        )

    play(scenario, values={"log.dirs": "/data/here"})


def test_only_what_was_asked_for_and_exists_is_told() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", partitions=3)
        await stage.topic("other")
        asked = [
            DescribableLogDirTopic(topic="orders", partitions=[2, 7, -1]),
            DescribableLogDirTopic(topic="nobody", partitions=[0]),
            DescribableLogDirTopic(topic="other", partitions=[]),
        ]
        (result,) = (await stage.ask(DescribeLogDirsRequest(topics=asked), DescribeLogDirsResponse)).results
        assert [
            (topic.name, [each.partition_index for each in topic.partitions]) for topic in result.topics
        ] == [("orders", [2])]

    play(scenario)


def test_partitions_of_other_nodes_are_left_out() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", partitions=4)
        here = [partition.index for partition in topic.partitions if partition.is_led_here]
        (result,) = (await stage.ask(DescribeLogDirsRequest(), DescribeLogDirsResponse)).results
        assert [each.partition_index for each in result.topics[0].partitions] == here
        assert len(here) == 2

    play(scenario, nodes=(1, 2))


def test_nothing_is_ever_being_reassigned() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        for topics in (None, [], [ListPartitionReassignmentsTopics(name="orders", partition_indexes=[0, 9])]):
            request = ListPartitionReassignmentsRequest(topics=topics)
            response = await stage.ask(request, ListPartitionReassignmentsResponse)
            assert (response.error_code, response.error_message, response.topics) == (0, None, [])

    play(scenario)


@pytest.mark.parametrize("version", versions(45))
def test_replicas_stay_where_they_are(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", partitions=2)
        wanted: dict[tuple[str, int], tuple[list[int] | None, int]] = {
            ("orders", 0): ([1], 0),
            ("orders", 1): ([2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ("orders", 2): ([1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", -1): ([1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("payments", 0): ([1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        }
        topics = [
            ReassignableTopic(
                name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
            )
            for (name, index), (replicas, _) in wanted.items()
        ]
        request = AlterPartitionReassignmentsRequest(topics=topics)
        response = await stage.ask(request, AlterPartitionReassignmentsResponse, version=version)
        answers = [(topic.name, each) for topic in response.responses for each in topic.partitions]
        assert response.error_code == 0
        assert {(name, each.partition_index): each.error_code for name, each in answers} == {
            place: code for place, (_, code) in wanted.items()
        }
        assert all((each.error_code == 0) == (each.error_message is None) for _, each in answers)

    play(scenario)


@pytest.mark.parametrize("replicas", [None, [], [1, 1], [1, 2], [2**31 - 1] * 1_000])
def test_no_reassignment_can_be_cancelled_or_begun(replicas: list[int] | None) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        topics = [ReassignableTopic(name="orders", partitions=[partition])]
        request = AlterPartitionReassignmentsRequest(topics=topics)
        response = await stage.ask(request, AlterPartitionReassignmentsResponse)
        (answer,) = response.responses[0].partitions
        expected = (
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            if replicas is None
            else ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
        assert answer.error_code == expected
        assert len(answer.error_message or "") < 2_000

    play(scenario)


@pytest.mark.parametrize("version", versions(43))
def test_no_election_is_needed(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", partitions=2)
        asked = [
            TopicPartitions(topic="orders", partitions=[1, 2, -1]),
            TopicPartitions(topic="nobody", partitions=[0]),
        ]
        request = ElectLeadersRequest(topic_partitions=asked)
        response = await stage.ask(request, ElectLeadersResponse, version=version)
        assert response.error_code == 0
        told = {
            (topic.topic, partition.partition_id): partition
            for topic in response.replica_election_results
            for partition in topic.partition_result
        }
        assert {place: result.error_code for place, result in told.items()} == {
            ("orders", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("orders", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("orders", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nobody", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert all(result.error_message for result in told.values())

    play(scenario)


@pytest.mark.parametrize("version", versions(43))
def test_an_election_of_all_changes_none(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        request = ElectLeadersRequest(topic_partitions=None)
        response = await stage.ask(request, ElectLeadersResponse, version=version)
        assert (response.error_code, response.replica_election_results) == (0, [])

    play(scenario)


@pytest.mark.parametrize(("election_type", "code"), [(0, 0), (1, 0), (2, 42), (-1, 42)])
def test_there_are_two_types_of_election(election_type: int, code: int) -> None:
    async def scenario(stage: Stage) -> None:
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=None)
        response = await stage.ask(request, ElectLeadersResponse)
        assert response.error_code == code

    play(scenario)


@pytest.mark.parametrize("version", versions(43))
def test_the_longest_name_there_can_be_is_answered_in_few_words(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        asked = [TopicPartitions(topic="x" * 32_767, partitions=[0])]
        request = ElectLeadersRequest(topic_partitions=asked)
        response = await stage.ask(request, ElectLeadersResponse, version=version)
        (result,) = response.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(result.error_message or "") < 2_000

    play(scenario)
