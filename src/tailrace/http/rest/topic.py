"""/api/v1/topics: topics come, are looked at, are changed and go.

A replication factor that the cluster has too few nodes for is lowered to what there is, and the answer says
so in `warnings`: a script that was written for three nodes works on a laptop. The Kafka listener refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

import msgspec

from tailrace.broker.configs import (
    ConfigChange,
    ConfigOperation,
    describe_topic,
    plan_topic_configs,
)
from tailrace.broker.gate import Access
from tailrace.broker.partition import Partition
from tailrace.broker.topic import DEFAULT, NewTopic, Topic, unknown_topic
from tailrace.http.error import Code, HttpError
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation as AclOperation

_ConfigText = str | int | float | bool
_NewName = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[A-Za-z0-9._-]{1,249}$"})]
"""Described here and checked by the broker, which says better what is wrong with a name."""
_Count = Annotated[int, msgspec.Meta(le=2**31 - 1, extra_json_schema={"minimum": 1})]
_NodeCount = Annotated[int, msgspec.Meta(le=2**15 - 1, extra_json_schema={"minimum": 1})]
"""The least is described here and checked by handlers and broker, whose answers have codes of their own."""


class TopicBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic that somebody wants; what is left out is as the node is set."""

    name: _NewName
    partitions: _Count | None = None
    replication_factor: _NodeCount | None = None
    configs: dict[str, _ConfigText] = {}


class TopicChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What shall be different: more partitions, other settings. null gives a setting back its default."""

    partitions: _Count | None = None
    configs: dict[str, _ConfigText | None] = {}


class PartitionView(msgspec.Struct, frozen=True):
    """A partition as it is now; offsets and size are null where this node does not hold it."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None
    last_stable_offset: int | None  # below the end while a transaction is open
    bytes: int | None


class TopicView(msgspec.Struct, frozen=True):
    """A topic."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int
    configs: dict[str, str]  # what differs from the node's settings
    warnings: list[str]
    internal: bool


class TopicDetail(TopicView, frozen=True):
    """A topic with its partitions."""

    partition_details: list[PartitionView]


class TopicList(msgspec.Struct, frozen=True):
    """All topics, by name."""

    topics: list[TopicView]


class ConfigView(msgspec.Struct, frozen=True):
    """A setting with what it means."""

    name: str
    value: str
    default: str  # what it would be if the topic did not say
    source: str  # topic, node or default
    type: str  # boolean, string, int, short, long, double or list
    read_only: bool
    doc: str


class ConfigList(msgspec.Struct, frozen=True):
    """Every setting of a topic."""

    configs: list[ConfigView]


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which topics are listed."""

    internal: bool = False  # with the broker's own


# ---- handlers


async def list_topics(call: Call[ListQuery, NoBody]) -> TopicList:
    found = call.access.topics(AclOperation.DESCRIBE)
    return TopicList(topics=[view(each) for each in found if call.query.internal or not each.internal])


async def create_topic(call: Call[NoQuery, TopicBody]) -> TopicView:
    wanted = call.body
    _check_least(wanted.partitions, "partitions", Code.INVALID_PARTITIONS)
    _check_least(wanted.replication_factor, "replication_factor", Code.INVALID_REPLICATION_FACTOR)
    factor, warnings = possible_factor(wanted.replication_factor, nodes=len(call.access.nodes))
    new = NewTopic(
        name=wanted.name,
        partitions=DEFAULT if wanted.partitions is None else wanted.partitions,
        replication_factor=factor,
        configs={name: config_text(value) for name, value in wanted.configs.items()},
    )
    topic = await call.service.in_time(call.access.create_topic(new))
    return view(topic, warnings)


async def get_topic(call: Call[NoQuery, NoBody]) -> TopicDetail:
    return _detail(topic_of(call.access, call.params["topic"], AclOperation.DESCRIBE))


async def change_topic(call: Call[NoQuery, TopicChange]) -> TopicDetail:
    name, change, access = call.params["topic"], call.body, call.access
    topic = topic_of(access, name, AclOperation.DESCRIBE)
    changes = [_config_change(each, value) for each, value in change.configs.items()]

    def plan(current: Mapping[str, str]) -> dict[str, str]:
        return plan_topic_configs(current, changes, defaults=access.topic_defaults)

    grows = change.partitions is not None and change.partitions != len(topic.partitions)
    if changes:  # both are checked before either is done
        await access.alter_topic(name, plan, validate_only=True)
    if grows and change.partitions is not None:
        await call.service.in_time(access.add_partitions(name, change.partitions))
    if changes:
        await call.service.in_time(access.alter_topic(name, plan))
    return _detail(topic_of(access, name, AclOperation.DESCRIBE))


async def delete_topic(call: Call[NoQuery, NoBody]) -> None:
    await call.service.in_time(call.access.delete_topic(call.params["topic"]))


async def list_configs(call: Call[NoQuery, NoBody]) -> ConfigList:
    topic = topic_of(call.access, call.params["topic"], AclOperation.DESCRIBE_CONFIGS)
    defaults = call.access.topic_defaults
    usual = {each.name: each.value for each in describe_topic({}, defaults)}
    return ConfigList(
        configs=[
            ConfigView(
                name=each.name,
                value=each.value,
                default=usual[each.name],
                source={1: "topic", 5: "default"}.get(each.source, "node"),
                type=each.type.name.lower(),
                read_only=each.read_only,
                doc=each.doc,
            )
            for each in describe_topic(topic.configs, defaults)
        ]
    )


# ---- for other handlers too


def topic_of(access: Access, name: str, operation: AclOperation) -> Topic:
    """The topic, to do this to it; TOPIC_NOT_FOUND also for a name that no topic can have."""
    try:
        return access.topic(name, operation)
    except BrokerError as error:
        if error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise
        raise unknown_topic(name) from error


def view(topic: Topic, warnings: list[str] | None = None) -> TopicView:
    return TopicView(
        name=topic.name,
        topic_id=topic.id,
        partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=dict(topic.configs),
        warnings=[*(warnings or ()), *filter(None, (topic.quarantine,))],
        internal=topic.internal,
    )


def possible_factor(wanted: int | None, *, nodes: int) -> tuple[int, list[str]]:
    """The replication factor that can be had, and what to say if it is not the wanted one."""
    if wanted is None:
        return DEFAULT, []
    if wanted <= nodes:
        return wanted, []
    have = "1 node" if nodes == 1 else f"{nodes} nodes"
    return nodes, [
        f"replication_factor {wanted} needs as many nodes; this cluster has {have}: {nodes} is stored"
    ]


def config_text(value: str | int | float | bool) -> str:
    """A setting as JSON has it, as the text that settings are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _check_least(wanted: int | None, what: str, code: Code) -> None:
    """One is the least; the broker takes -1 for what is not said, which is null here."""
    if wanted is not None and wanted < 1:
        raise HttpError(code, f"{what}: {wanted} is less than 1")


def _config_change(name: str, value: _ConfigText | None) -> ConfigChange:
    if value is None:
        return ConfigChange(name=name, operation=ConfigOperation.DELETE, value=None)
    return ConfigChange(name=name, operation=ConfigOperation.SET, value=config_text(value))


def _detail(topic: Topic) -> TopicDetail:
    details = [partition_view(each) for each in topic.partitions]
    return TopicDetail(**msgspec.structs.asdict(view(topic)), partition_details=details)


def partition_view(partition: Partition) -> PartitionView:
    try:
        start, end, size = partition.start_offset, partition.high_watermark, partition.size_bytes
        stable = partition.last_stable_offset
    except BrokerError:  # led elsewhere, or its log is missing
        start = end = stable = size = None  # type: ignore[assignment]
    return PartitionView(
        partition=partition.index,
        leader=partition.leader,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        start_offset=start,
        end_offset=end,
        last_stable_offset=stable,
        bytes=size,
    )


_TOPICS = "/api/v1/topics"
_TOPIC = "/api/v1/topics/{topic}"

OPERATIONS = (
    Operation(
        method="GET",
        path=_TOPICS,
        name="listTopics",
        tag="topics",
        summary="All topics",
        handler=list_topics,
        query=ListQuery,
        answer=TopicList,
    ),
    Operation(
        method="POST",
        path=_TOPICS,
        name="createTopic",
        tag="topics",
        summary="Make a topic",
        doc="A replication factor over the number of nodes is lowered to it, and `warnings` says so.",
        handler=create_topic,
        body=TopicBody,
        answer=TopicView,
        status=201,
        fails=(
            Code.TOPIC_ALREADY_EXISTS,
            Code.INVALID_PARTITIONS,
            Code.INVALID_REPLICATION_FACTOR,
            Code.INVALID_CONFIG,
            Code.BROKER_NOT_AVAILABLE,
        ),
    ),
    Operation(
        method="GET",
        path=_TOPIC,
        name="getTopic",
        tag="topics",
        summary="A topic with its partitions",
        handler=get_topic,
        answer=TopicDetail,
        fails=(Code.TOPIC_NOT_FOUND,),
    ),
    Operation(
        method="PATCH",
        path=_TOPIC,
        name="changeTopic",
        tag="topics",
        summary="Give a topic more partitions or other settings",
        doc="A setting that is null gets its default back. Partitions can only be added.",
        handler=change_topic,
        body=TopicChange,
        answer=TopicDetail,
        fails=(
            Code.TOPIC_NOT_FOUND,
            Code.INVALID_PARTITIONS,
            Code.INVALID_CONFIG,
            Code.BROKER_NOT_AVAILABLE,
        ),
    ),
    Operation(
        method="DELETE",
        path=_TOPIC,
        name="deleteTopic",
        tag="topics",
        summary="Delete a topic with its records, committed offsets and subscriptions",
        handler=delete_topic,
        answer=None,
        status=204,
        fails=(Code.TOPIC_NOT_FOUND, Code.BROKER_NOT_AVAILABLE),
    ),
    Operation(
        method="GET",
        path=f"{_TOPIC}/configs",
        name="listTopicConfigs",
        tag="topics",
        summary="Every setting of a topic, and what it means",
        handler=list_configs,
        answer=ConfigList,
        fails=(Code.TOPIC_NOT_FOUND,),
    ),
)
