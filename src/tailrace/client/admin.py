"""Administration: topics, their settings and their sizes, consumer groups and their lag.

Every function asks one question or makes one change, and raises what the broker answered: whoever changes
several things at once calls several times, and knows which one failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.client.error import check
from tailrace.client.kafka import KafkaClient
from tailrace.client.keys import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_GROUPS,
)
from tailrace.client.metadata import topic_error
from tailrace.client.offsets import EARLIEST, LATEST, Committed
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.wire.kafka import Message
from tailrace.wire.kafka.assignor import read_assignment
from tailrace.wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tailrace.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from tailrace.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from tailrace.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tailrace.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from tailrace.wire.kafka.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tailrace.wire.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tailrace.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tailrace.wire.kafka.messages.list_groups import ListGroupsRequest

ALL_RECORDS = -1
"""As the offset to delete up to: everything there is."""

_TOPIC = 2  # as resource type
_SET, _DELETE = 0, 1  # as config operations
_BROKER_DEFAULT = -1
_NOT_DELETED = {ErrorCode.POLICY_VIOLATION: "records of a compacted topic go by key, not by offset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A topic as the broker made it, or would make it."""

    name: str
    partitions: int
    replication_factor: int
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroupInfo:
    """A group in a listing."""

    group: str
    state: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """One member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group and its members."""

    group: str
    state: str
    protocol_type: str
    strategy: str
    coordinator: int
    members: Sequence[MemberInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How far a partition reaches."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """A directory in which a node keeps partitions, with the bytes that each takes there."""

    node: int
    path: str
    sizes: Mapping[TopicPartition, int]


# ---- topics


async def create_topic(
    client: KafkaClient,
    name: str,
    *,
    partitions: int = _BROKER_DEFAULT,
    replication_factor: int = _BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Created:
    """Create a topic; -1 leaves a number to the broker."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_timeout_ms(client), validate_only=validate_only)

    async def attempt() -> CreatableTopicResult:
        reply = await _to_controller(client, CREATE_TOPICS, request)
        result: CreatableTopicResult = _only(reply.topics, "CreateTopics")
        check(result.error_code, f"topic {name}", result.error_message)
        return result

    result = await client.retrying(f"creating topic {name}", attempt)
    return Created(
        name=result.name,
        partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        topic_id=str(result.topic_id),
    )


async def delete_topic(client: KafkaClient, name: str) -> None:
    """Delete a topic and everything in it."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=_timeout_ms(client)
    )

    async def attempt() -> None:
        result = _only((await _to_controller(client, DELETE_TOPICS, request)).responses, "DeleteTopics")
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_error(result.error_code, name)
        check(result.error_code, f"topic {name}", result.error_message)

    await client.retrying(f"deleting topic {name}", attempt)
    client.cluster.topics.pop(name, None)


async def add_partitions(client: KafkaClient, name: str, total: int, *, validate_only: bool = False) -> None:
    """Give a topic more partitions, up to a total."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=total)],
        timeout_ms=_timeout_ms(client),
        validate_only=validate_only,
    )

    async def attempt() -> None:
        result = _only((await _to_controller(client, CREATE_PARTITIONS, request)).results, "CreatePartitions")
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_error(result.error_code, name)
        check(result.error_code, f"topic {name}", result.error_message)

    await client.retrying(f"adding partitions to {name}", attempt)
    client.cluster.topics.pop(name, None)


async def topic_configs(client: KafkaClient, name: str) -> list[DescribeConfigsResourceResult]:
    """Every setting of a topic: value, source, and whether it can be changed."""
    resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=name)
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)

    async def attempt() -> list[DescribeConfigsResourceResult]:
        result = _only((await client.request(DESCRIBE_CONFIGS, request)).results, "DescribeConfigs")
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_error(result.error_code, name)
        check(result.error_code, f"topic {name}", result.error_message)
        configs: list[DescribeConfigsResourceResult] = result.configs
        return configs

    return await client.retrying(f"reading the settings of {name}", attempt)


async def alter_configs(
    client: KafkaClient,
    name: str,
    *,
    changes: Mapping[str, str],
    resets: Iterable[str] = (),
    validate_only: bool = False,
) -> None:
    """Set some settings of a topic and give others their default back; the rest stays (KIP-339)."""
    changed = [
        AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in changes.items()
    ]
    changed += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in resets]
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=changed)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)

    async def attempt() -> None:
        reply = await _to_controller(client, INCREMENTAL_ALTER_CONFIGS, request)
        result = _only(reply.responses, "IncrementalAlterConfigs")
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_error(result.error_code, name)
        check(result.error_code, f"topic {name}", result.error_message)

    await client.retrying(f"changing the settings of {name}", attempt)


async def delete_records(
    client: KafkaClient, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records before an offset (or ALL_RECORDS) of each partition; where each starts now."""
    by_leader: dict[int, dict[str, list[DeleteRecordsPartition]]] = {}
    for target, offset in before.items():
        leader = (await client.leader(target)).leader
        partition = DeleteRecordsPartition(partition_index=target.partition, offset=offset)
        by_leader.setdefault(leader, {}).setdefault(target.topic, []).append(partition)
    starts: dict[TopicPartition, int] = {}
    for leader, topics in by_leader.items():
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=parts) for name, parts in topics.items()],
            timeout_ms=_timeout_ms(client),
        )
        reply = await client.request(DELETE_RECORDS, request, node=leader)
        for topic in reply.topics:
            for each in topic.partitions:
                target = TopicPartition(topic.name, each.partition_index)
                check(each.error_code, f"deleting records of {target}", _NOT_DELETED.get(each.error_code))
                starts[target] = each.low_watermark
    return starts


async def extents(
    client: KafkaClient, partitions: Sequence[TopicPartition], *, read_committed: bool = False
) -> dict[TopicPartition, Extent]:
    """First and next offset of each partition; the last stable offset for next with `read_committed`."""
    starts, ends = await asyncio.gather(
        client.list_offsets(dict.fromkeys(partitions, EARLIEST)),
        client.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=read_committed),
    )
    return {each: Extent(start=starts[each].offset, end=ends[each].offset) for each in partitions}


async def log_directories(
    client: KafkaClient, topics: Mapping[str, Sequence[int]] | None = None
) -> list[LogDirectory]:
    """Where each node keeps its partitions, and their sizes; those of all topics if none are named."""
    request = DescribeLogDirsRequest(topics=None)
    if topics is not None:
        request.topics = [
            DescribableLogDirTopic(topic=name, partitions=list(indexes)) for name, indexes in topics.items()
        ]
    found: list[LogDirectory] = []
    for node in list(client.cluster.nodes):
        reply = await client.request(DESCRIBE_LOG_DIRS, request, node=node)
        for directory in reply.results:
            check(directory.error_code, f"log directory {directory.log_dir} of node {node}")
            sizes = {
                TopicPartition(topic.name, each.partition_index): each.partition_size
                for topic in directory.topics
                for each in topic.partitions
            }
            found.append(LogDirectory(node=node, path=directory.log_dir, sizes=sizes))
    return found


# ---- groups


async def list_groups(client: KafkaClient) -> list[ListedGroupInfo]:
    """Every group of every coordinator, by name."""
    found: list[ListedGroupInfo] = []

    async def ask(node: int) -> Any:
        reply = await client.request(LIST_GROUPS, ListGroupsRequest(), node=node)
        check(reply.error_code, "listing groups")
        return reply

    for node in list(client.cluster.nodes):
        reply = await client.retrying("listing groups", _bound(ask, node))
        found += [
            ListedGroupInfo(
                group=each.group_id,
                state=each.group_state,
                protocol_type=each.protocol_type,
                coordinator=node,
            )
            for each in reply.groups
        ]
    return sorted(found, key=lambda each: each.group)


async def describe_group(client: KafkaClient, group: str) -> GroupInfo:
    """A group and its members. One that does not exist is an error, as it has neither members nor offsets."""

    async def attempt() -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group])
        reply = await client.request(DESCRIBE_GROUPS, request, coordinator=group)
        described: DescribedGroup = _only(reply.groups, "DescribeGroups")
        check(described.error_code, f"group {group}")
        return described

    described = await client.retrying(f"describing group {group}", attempt)
    if described.group_state == "Dead" and not await client.committed(group):
        raise group_not_found(group)
    return GroupInfo(
        group=group,
        state=described.group_state,
        protocol_type=described.protocol_type,
        strategy=described.protocol_data,
        coordinator=await client.find_coordinator(group),
        members=[
            MemberInfo(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                host=each.client_host.removeprefix("/"),
                partitions=_assigned(each.member_assignment),
            )
            for each in described.members
        ],
    )


async def delete_group(client: KafkaClient, group: str) -> None:
    """Delete an empty group and its offsets."""

    async def attempt() -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        reply = await client.request(DELETE_GROUPS, request, coordinator=group)
        code = _only(reply.results, "DeleteGroups").error_code
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise group_not_found(group)
        check(code, f"group {group}")

    await client.retrying(f"deleting group {group}", attempt)


async def group_offsets(
    client: KafkaClient, group: str
) -> dict[TopicPartition, tuple[Committed, Extent | None]]:
    """What a group has committed, beside how far each partition reaches; None where it is gone."""
    committed = await client.committed(group)
    known = await client.metadata({target.topic for target in committed})
    there = [
        target
        for target in committed
        if not known[target.topic].error and target.partition in known[target.topic].partitions
    ]
    reach = await extents(client, there)
    return {target: (each, reach.get(target)) for target, each in sorted(committed.items())}


def group_not_found(group: str) -> BrokerError:
    """A group that nobody knows, in words."""
    return BrokerError(
        f"group {group} does not exist. Try: tailrace group list", code=ErrorCode.GROUP_ID_NOT_FOUND
    )


# ---- requests


async def _to_controller(client: KafkaClient, key: int, request: Message) -> Any:
    """Changes go to the controller, which may have moved since we last heard of it."""
    if client.cluster.controller_id not in client.cluster.nodes:
        await client.metadata([])
    node = client.cluster.controller_id
    return await client.request(key, request, node=node if node in client.cluster.nodes else None)


def _timeout_ms(client: KafkaClient) -> int:
    return int(client.request_timeout_s * 1000)


def _only(results: Sequence[Any], api: str) -> Any:
    if len(results) != 1:
        raise ProtocolError(f"the reply to {api} has {len(results)} results for one question")
    return results[0]


def _bound(ask: Callable[[int], Awaitable[Any]], node: int) -> Callable[[], Awaitable[Any]]:
    async def attempt() -> Any:
        return await ask(node)

    return attempt


def _assigned(data: bytes) -> list[TopicPartition]:
    try:
        return sorted(read_assignment(data))
    except ProtocolError:
        return []  # a protocol of somebody else's, Kafka Connect's for one
