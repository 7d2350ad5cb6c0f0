"""Every API against a rule that refuses one operation on one kind of resource: the one that Kafka checks."""

from __future__ import annotations

import pytest

from tailrace.broker.gate import Gate
from tailrace.kafka.counting import find_error
from tailrace.kafka.dispatch import served_apis
from tailrace.kafka.handlers import metadata
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.model.session import Session
from tailrace.wire.kafka import APIS, Message, decode, encode, response_type
from tailrace.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tailrace.wire.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData
from tailrace.wire.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from tailrace.wire.kafka.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from tailrace.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tailrace.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from tailrace.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tailrace.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tailrace.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from tailrace.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tailrace.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.wire.kafka.messages.describe_acls import DescribeAclsRequest
from tailrace.wire.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
from tailrace.wire.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tailrace.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tailrace.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from tailrace.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tailrace.wire.kafka.messages.describe_producers import DescribeProducersRequest
from tailrace.wire.kafka.messages.describe_producers import TopicRequest as ProducersTopic
from tailrace.wire.kafka.messages.describe_quorum import DescribeQuorumRequest
from tailrace.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tailrace.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from tailrace.wire.kafka.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tailrace.wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tailrace.wire.kafka.messages.end_txn import EndTxnRequest
from tailrace.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from tailrace.wire.kafka.messages.heartbeat import HeartbeatRequest
from tailrace.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from tailrace.wire.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from tailrace.wire.kafka.messages.join_group import JoinGroupRequest
from tailrace.wire.kafka.messages.leave_group import LeaveGroupRequest
from tailrace.wire.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tailrace.wire.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tailrace.wire.kafka.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tailrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tailrace.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tailrace.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tailrace.wire.kafka.messages.sync_group import SyncGroupRequest
from tailrace.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from .stage import SESSION, Stage, play

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
TRANSACTION = ResourceKind.TRANSACTIONAL_ID
Op = Operation
NODE, TOPIC_CONFIG, GROUP_CONFIG = 4, 2, 32

COMMIT = OffsetCommitRequest(
    group_id="g",
    topics=[
        OffsetCommitRequestTopic(
            name="orders", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        )
    ],
)
FORGET = OffsetDeleteRequest(
    group_id="g",
    topics=[
        OffsetDeleteRequestTopic(name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    ],
)
POSITIONS = OffsetFetchRequest(
    groups=[
        OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
        )
    ]
)
EPOCHS = OffsetForLeaderEpochRequest(
    topics=[OffsetForLeaderTopic(topic="orders", partitions=[OffsetForLeaderPartition(partition=0)])]
)
OFFSETS = ListOffsetsRequest(
    topics=[ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(timestamp=-1)])]
)
TRIM = DeleteRecordsRequest(
    topics=[DeleteRecordsTopic(name="orders", partitions=[DeleteRecordsPartition(offset=0)])]
)
MOVE = AlterReplicaLogDirsRequest(
    dirs=[AlterReplicaLogDir(path="memory", topics=[AlterReplicaLogDirTopic(name="orders", partitions=[0])])]
)
ELECT = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="orders", partitions=[0])])

ADD = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="x",
    v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
)
COMMIT_IN_TRANSACTION = TxnOffsetCommitRequest(
    transactional_id="x",
    group_id="g",
    topics=[
        TxnOffsetCommitRequestTopic(
            name="orders", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
        )
    ],
)
MARK = WriteTxnMarkersRequest(
    markers=[WritableTxnMarker(topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])])]
)
PRODUCERS = DescribeProducersRequest(topics=[ProducersTopic(name="orders", partition_indexes=[0])])
BEGIN = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)


def described(kind: int, name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource])


RULES: list[tuple[Message, Operation, ResourceKind]] = [
    (DescribeClientQuotasRequest(), Op.DESCRIBE_CONFIGS, CLUSTER),
    (AlterClientQuotasRequest(entries=[EntryData()]), Op.ALTER_CONFIGS, CLUSTER),
    (DescribeUserScramCredentialsRequest(), Op.DESCRIBE, CLUSTER),
    (
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="alice", mechanism=1)]),
        Op.ALTER,
        CLUSTER,
    ),
    (OFFSETS, Op.DESCRIBE, TOPIC),
    (EPOCHS, Op.DESCRIBE, TOPIC),
    (COMMIT, Op.READ, TOPIC),
    (COMMIT, Op.READ, GROUP),
    (POSITIONS, Op.DESCRIBE, TOPIC),
    (POSITIONS, Op.DESCRIBE, GROUP),
    (FORGET, Op.READ, TOPIC),
    (FORGET, Op.DELETE, GROUP),
    (FindCoordinatorRequest(coordinator_keys=["g"]), Op.DESCRIBE, GROUP),
    (JoinGroupRequest(group_id="g"), Op.READ, GROUP),
    (SyncGroupRequest(group_id="g", protocol_type="", protocol_name=""), Op.READ, GROUP),
    (HeartbeatRequest(group_id="g"), Op.READ, GROUP),
    (LeaveGroupRequest(group_id="g"), Op.READ, GROUP),
    (DescribeGroupsRequest(groups=["g"]), Op.DESCRIBE, GROUP),
    (DeleteGroupsRequest(groups_names=["g"]), Op.DELETE, GROUP),
    (DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]), Op.DELETE, TOPIC),
    (TRIM, Op.DELETE, TOPIC),
    (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=2)]), Op.ALTER, TOPIC),
    (described(TOPIC_CONFIG, "orders"), Op.DESCRIBE_CONFIGS, TOPIC),
    (described(NODE, "1"), Op.DESCRIBE_CONFIGS, CLUSTER),
    (
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=TOPIC_CONFIG, resource_name="orders")]
        ),
        Op.ALTER_CONFIGS,
        TOPIC,
    ),
    (
        AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=NODE, resource_name="1")]),
        Op.ALTER_CONFIGS,
        CLUSTER,
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=[IncrementalResource(resource_type=TOPIC_CONFIG, resource_name="orders")]
        ),
        Op.ALTER_CONFIGS,
        TOPIC,
    ),
    (described(GROUP_CONFIG, "billing"), Op.DESCRIBE_CONFIGS, GROUP),
    (
        IncrementalAlterConfigsRequest(
            resources=[IncrementalResource(resource_type=GROUP_CONFIG, resource_name="billing")]
        ),
        Op.ALTER_CONFIGS,
        GROUP,
    ),
    (InitProducerIdRequest(transactional_id=None), Op.IDEMPOTENT_WRITE, CLUSTER),
    (BEGIN, Op.WRITE, TRANSACTION),
    (ADD, Op.WRITE, TRANSACTION),
    (ADD, Op.WRITE, TOPIC),
    (AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), Op.WRITE, TRANSACTION),
    (AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), Op.READ, GROUP),
    (EndTxnRequest(transactional_id="x"), Op.WRITE, TRANSACTION),
    (COMMIT_IN_TRANSACTION, Op.WRITE, TRANSACTION),
    (COMMIT_IN_TRANSACTION, Op.READ, GROUP),
    (COMMIT_IN_TRANSACTION, Op.READ, TOPIC),
    (MARK, Op.CLUSTER_ACTION, CLUSTER),
    (PRODUCERS, Op.READ, TOPIC),
    (DescribeTransactionsRequest(transactional_ids=["x"]), Op.DESCRIBE, TRANSACTION),
    (ListPartitionReassignmentsRequest(), Op.DESCRIBE, CLUSTER),
    (DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), Op.DESCRIBE, CLUSTER),
    (CreateAclsRequest(creations=[AclCreation()]), Op.ALTER, CLUSTER),
    (DeleteAclsRequest(filters=[DeleteAclsFilter()]), Op.ALTER, CLUSTER),
    (ELECT, Op.ALTER, CLUSTER),
    (AlterPartitionReassignmentsRequest(), Op.ALTER, CLUSTER),
    (DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")]), Op.DESCRIBE, TOPIC),
    (ListConfigResourcesRequest(), Op.DESCRIBE_CONFIGS, CLUSTER),
    (DescribeQuorumRequest(), Op.DESCRIBE, CLUSTER),
    (MOVE, Op.ALTER, CLUSTER),
    (MOVE, Op.ALTER, TOPIC),
]

CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
ELSEWHERE = {
    "Produce",  # tests/unit/kafka/test_session.py
    "Fetch",  # tests/unit/kafka/test_session.py
    "Metadata",  # below, through its bytes
    "CreateTopics",  # below: one of two rights is enough
    "ListGroups",  # below: groups are left out, and none is refused
    "ListTransactions",  # below: transactional ids are left out, and none is refused
    "DescribeLogDirs",  # below: no directory is told
    "ApiVersions",  # open to every client
    "SaslHandshake",  # likewise
    "SaslAuthenticate",  # likewise
    "CreateDelegationToken",  # there are none
    "RenewDelegationToken",  # likewise
    "ExpireDelegationToken",  # likewise
    "DescribeDelegationToken",  # likewise
    "DescribeCluster",  # the nodes are told to every client, as in Metadata
}


def refuse(stage: Stage, *rights: tuple[Operation, ResourceKind]) -> None:
    """From now on the stage's client may do everything but this."""

    def rule(session: Session, operation: Operation, resource: Resource) -> bool:
        assert session == SESSION
        return (operation, resource.kind) not in rights

    stage.access = Gate(stage.broker, authorize=rule).access(SESSION)


async def code_of(stage: Stage, request: Message) -> int:
    """What a client is told, in the answer or by the handler's refusal as dispatch writes it."""
    name = type(request).__module__.rpartition(".")[2]
    key = next(api.key for api in APIS.values() if api.name.lower() == name.replace("_", ""))
    answer = response_type(key)
    try:
        return find_error(await stage.ask(request, answer))
    except BrokerError as error:
        assert hasattr(answer(), "error_code"), "dispatch cannot write this refusal"
        return error.code


@pytest.mark.parametrize(
    ("request_", "operation", "kind"),
    RULES,
    ids=[f"{type(request).__name__}-{op.name}-{kind.name}" for request, op, kind in RULES],
)
def test_a_request_without_its_right_is_refused(
    request_: Message, operation: Operation, kind: ResourceKind
) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        assert await code_of(stage, COMMIT) == 0  # so that there is a group
        refuse(stage, (operation, kind))
        assert await code_of(stage, request_) == CODES[kind]
        assert stage.broker.topics.get("orders") is topic and len(topic.partitions) == 1

    play(scenario)


def test_every_api_that_is_served_is_covered() -> None:
    covered = {type(request).__name__.removesuffix("Request") for request, _, _ in RULES}
    assert {api.name for api in served_apis()} == covered | ELSEWHERE


def test_a_topic_by_id_is_refused_like_one_by_name() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        refuse(stage, (Op.DELETE, TOPIC))
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.id)])
        assert await code_of(stage, request) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    play(scenario)


@pytest.mark.parametrize("held", [TOPIC, CLUSTER])
def test_a_topic_is_created_by_a_right_to_it_or_to_the_cluster(held: ResourceKind) -> None:
    async def scenario(stage: Stage) -> None:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
        )
        refuse(stage, (Op.CREATE, TOPIC), (Op.CREATE, CLUSTER))
        assert await code_of(stage, request) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refuse(stage, *((Op.CREATE, kind) for kind in (TOPIC, CLUSTER) if kind is not held))
        assert await code_of(stage, request) == 0

    play(scenario)


def test_the_settings_of_a_new_topic_are_told_to_who_may_know_them() -> None:
    async def scenario(stage: Stage) -> None:
        refuse(stage, (Op.DESCRIBE_CONFIGS, TOPIC))
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
        )
        (result,) = (await stage.ask(request, CreateTopicsResponse)).topics
        assert (result.error_code, result.topic_config_error_code) == (0, 29)
        assert (result.num_partitions, result.configs) == (-1, [])

    play(scenario)


def test_lists_leave_out_what_the_client_may_not_see() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        assert await code_of(stage, COMMIT) == 0
        assert [
            each.group_id for each in (await stage.ask(ListGroupsRequest(), ListGroupsResponse)).groups
        ] == ["g"]
        refuse(stage, (Op.DESCRIBE, GROUP), (Op.DESCRIBE, CLUSTER))
        assert (await stage.ask(ListGroupsRequest(), ListGroupsResponse)).groups == []
        refuse(stage, (Op.DESCRIBE, GROUP))
        assert len((await stage.ask(ListGroupsRequest(), ListGroupsResponse)).groups) == 1
        assert await code_of(stage, BEGIN) == 0
        listed = await stage.ask(ListTransactionsRequest(), ListTransactionsResponse)
        assert [each.transactional_id for each in listed.transaction_states] == ["x"]
        refuse(stage, (Op.DESCRIBE, TRANSACTION))
        listed = await stage.ask(ListTransactionsRequest(), ListTransactionsResponse)
        assert (listed.error_code, listed.transaction_states) == (0, [])
        request = DescribeLogDirsRequest(topics=None)
        refuse(stage, (Op.DESCRIBE, TOPIC))
        (directory,) = (await stage.ask(request, DescribeLogDirsResponse)).results
        assert directory.topics == []
        refuse(stage, (Op.DESCRIBE, CLUSTER))
        response = await stage.ask(request, DescribeLogDirsResponse)
        assert (response.error_code, response.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
        assert (await stage.ask(request, DescribeLogDirsResponse, version=2)).results == []

    play(scenario)


def test_topics_that_the_client_may_not_see_are_in_no_list_of_topics() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        described = await stage.ask(DescribeTopicPartitionsRequest(), DescribeTopicPartitionsResponse)
        assert [each.name for each in described.topics] == ["orders"]
        refuse(stage, (Op.DESCRIBE, TOPIC))
        described = await stage.ask(DescribeTopicPartitionsRequest(), DescribeTopicPartitionsResponse)
        assert described.topics == []
        listed = await stage.ask(ListConfigResourcesRequest([TOPIC_CONFIG]), ListConfigResourcesResponse)
        assert listed.config_resources == []

    play(scenario)


def test_groups_that_the_client_may_not_see_are_in_no_list_of_settings() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.access.alter_group("billing", lambda _: {"consumer.session.timeout.ms": "50000"})
        refuse(stage, (Op.DESCRIBE, GROUP))
        listed = await stage.ask(ListConfigResourcesRequest([GROUP_CONFIG]), ListConfigResourcesResponse)
        assert listed.config_resources == []

    play(scenario)


def test_positions_in_topics_that_the_client_may_not_see_are_left_out_of_all() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        assert (await code_of(stage, COMMIT)) == 0
        everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (topic,) = (await stage.ask(everything, OffsetFetchResponse)).groups[0].topics
        assert topic.name == "orders"
        refuse(stage, (Op.DESCRIBE, TOPIC))
        (group,) = (await stage.ask(everything, OffsetFetchResponse)).groups
        assert (group.error_code, group.topics) == (0, [])

    play(scenario)


def ask_metadata(stage: Stage, request: MetadataRequest) -> MetadataResponse:
    body = metadata.answer(stage.call(11), memoryview(encode(request, 11)))
    assert isinstance(body, bytes)
    return decode(MetadataResponse, 11, body)


def test_metadata_tells_of_topics_that_the_client_may_see_and_of_every_node() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        refuse(stage, (Op.DESCRIBE, TOPIC), (Op.DESCRIBE, CLUSTER))
        everything = ask_metadata(stage, MetadataRequest(topics=None))
        assert (len(everything.brokers), everything.topics) == (1, [])
        named = [
            MetadataRequestTopic(name="orders"),
            MetadataRequestTopic(name="nothing"),
            MetadataRequestTopic(name=None, topic_id=topic.id),
        ]
        found = ask_metadata(stage, MetadataRequest(topics=named, allow_auto_topic_creation=True)).topics
        refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        assert [each.error_code for each in found] == [*refused, ErrorCode.UNKNOWN_TOPIC_ID]
        assert stage.broker.topics.get("nothing") is None

    play(scenario)


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


def test_the_operations_that_are_told_are_those_that_are_allowed() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        rights = [(each, kind) for each in Op for kind in (TOPIC, CLUSTER) if each is not Op.DESCRIBE]
        refuse(stage, *rights)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="orders")], include_topic_authorized_operations=True
        )
        assert ask_metadata(stage, request).topics[0].topic_authorized_operations == bits(Op.DESCRIBE)
        cluster = await stage.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=True), DescribeClusterResponse
        )
        assert cluster.cluster_authorized_operations == bits(Op.DESCRIBE)

    play(scenario)
