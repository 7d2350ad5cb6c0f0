"""CreateTopics: new topics, each with its own answer.

v4  -1 partitions and -1 replicas are the node's defaults (KIP-464); we take them from v2 on
v5  the answer tells the numbers and settings of the new topic (KIP-525), if the client may know them
v7  and its id

More replicas than nodes are INVALID_REPLICATION_FACTOR, an assignment that is not possible is
INVALID_REPLICA_ASSIGNMENT. A name that comes twice in a request is INVALID_REQUEST in both places. The
timeout is not needed: the answer comes when the topic is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.configs import describe_topic
from tailrace.broker.topic import NewTopic, Topic
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import invalid_request, repeated
from tailrace.model import BrokerError, BrokerId, ErrorCode
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

KEY = 19


async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    twice = repeated(topic.name for topic in request.topics)
    results = []
    for wanted in request.topics:
        result = CreatableTopicResult(name=wanted.name, configs=[])
        results.append(result)
        try:
            if wanted.name in twice:
                raise invalid_request(f"topic {wanted.name[:249]!r} is named more than once")
            topic = await call.access.create_topic(_new_topic(wanted), validate_only=request.validate_only)
        except ANSWERABLE as error:
            result.error_code, result.error_message = error_of(error)
            continue
        _fill(result, topic, call)
        if not request.validate_only:
            result.topic_id = topic.id
    return CreateTopicsResponse(topics=results)


def _new_topic(wanted: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=wanted.name,
        partitions=wanted.num_partitions,
        replication_factor=wanted.replication_factor,
        configs=_configs(wanted),
        assignments=_assignments(wanted.assignments) if wanted.assignments else None,
    )


def _configs(wanted: CreatableTopic) -> dict[str, str]:
    configs = {}
    for config in wanted.configs:
        if config.value is None:
            raise BrokerError(f"{config.name[:100]!r} has no value", code=ErrorCode.INVALID_CONFIG)
        configs[config.name] = config.value
    return configs


def _assignments(wanted: Sequence[CreatableReplicaAssignment]) -> dict[int, list[BrokerId]]:
    assignments = {each.partition_index: [BrokerId(node) for node in each.broker_ids] for each in wanted}
    if len(assignments) < len(wanted):
        raise BrokerError("a partition is assigned more than once", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    return assignments


def _fill(result: CreatableTopicResult, topic: Topic, call: Call) -> None:
    if not call.access.allows(Operation.DESCRIBE_CONFIGS, Resource(ResourceKind.TOPIC, topic.name)):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return
    result.num_partitions = len(topic.partitions)
    result.replication_factor = topic.replication_factor
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=None if entry.sensitive else entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(topic.configs, call.access.topic_defaults)
    ]
