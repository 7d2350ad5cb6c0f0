"""Metadata: the nodes, the topics, and who leads which partition.

v0   an empty list of topics means all
v1+  null means all, an empty list none
v4+  the client says whether a topic that does not exist may be created
v7   leader epochs
v8   authorised operations, if asked for (v11: of topics only)
v10  topic ids
v12  the name of an id that no topic has is null

The answer is kept as bytes until a topic or a node changes, since clients ask again and again; it is kept for
its session, since another one may see other topics. A topic that is created here is answered with its
partitions at once. One request creates at most 100 topics; the others are unknown, and clients ask for them
again.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from tailrace.broker.partition import Partition
from tailrace.broker.topic import NewTopic, Topic
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import authorized_operations
from tailrace.model import ErrorCode
from tailrace.model.operation import CLUSTER, Operation, Resource, ResourceKind
from tailrace.wire.kafka import decode, encode
from tailrace.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

KEY = 3

_NOBODY = -1
_CREATED_MAX = 100


def answer(call: Call, body: memoryview) -> bytes | Coroutine[Any, Any, bytes]:
    """The body of the response: the kept one, a new one, or one that follows the creation of topics."""
    access = call.access
    # The addresses may depend on how this client reached us.
    places = tuple(call.advertised(node) for node in access.nodes.values())
    key = call.version, bytes(body), places, access.audience
    generation = access.version, access.controller_id, tuple(access.nodes)
    kept = call.replies.get(generation, key)
    if kept is not None:
        return kept
    request = decode(MetadataRequest, call.version, body)
    missing = _missing(call, request)
    if missing:
        return _create_and_answer(call, request, missing)
    reply = encode(_response(call, request, {}), call.version)
    call.replies.put(generation, key, reply, request_bytes=len(body))
    return reply


def _wants_all(call: Call, request: MetadataRequest) -> bool:
    return request.topics is None or (call.version == 0 and not request.topics)


def _missing(call: Call, request: MetadataRequest) -> list[str]:
    """Names that do not exist and may come to be by being asked for."""
    if _wants_all(call, request) or not request.allow_auto_topic_creation:
        return []
    names = dict.fromkeys(topic.name for topic in request.topics or () if topic.name is not None)
    return call.access.creatable_topics(names)[:_CREATED_MAX]


async def _create_and_answer(call: Call, request: MetadataRequest, missing: list[str]) -> bytes:
    errors: dict[str, ErrorCode] = {}
    for name in missing:
        try:
            await call.access.auto_create_topic(NewTopic(name=name))
        except ANSWERABLE as error:
            errors[name], _ = error_of(error)
    return encode(_response(call, request, errors), call.version)


def _response(call: Call, request: MetadataRequest, errors: dict[str, ErrorCode]) -> MetadataResponse:
    access = call.access
    if _wants_all(call, request):
        topics = [_topic(call, topic) for topic in access.topics(Operation.DESCRIBE)]
    else:
        asked = {(topic.name, topic.topic_id): topic for topic in request.topics or ()}
        topics = [_asked_topic(call, topic, errors) for topic in asked.values()]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if not topic.error_code:
                resource = Resource(ResourceKind.TOPIC, topic.name or "")
                topic.topic_authorized_operations = authorized_operations(access, resource)
    nodes = sorted(access.nodes.values(), key=lambda node: node.node_id)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=host, port=port, rack=node.rack)
            for node in nodes
            for host, port in (call.advertised(node),)
        ],
        cluster_id=access.cluster_id,
        controller_id=access.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(access, CLUSTER)
    return response


def _asked_topic(
    call: Call, asked: MetadataRequestTopic, errors: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    if asked.name is None:
        return _topic_by_id(call, asked.topic_id)
    try:
        return _topic(call, call.access.topic(asked.name, Operation.DESCRIBE))
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return MetadataResponseTopic(error_code=errors.get(asked.name, code), name=asked.name)


def _topic_by_id(call: Call, topic_id: UUID) -> MetadataResponseTopic:
    try:
        return _topic(call, call.access.topic_by_id(topic_id, Operation.DESCRIBE))
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return MetadataResponseTopic(error_code=code, topic_id=topic_id)


def _topic(call: Call, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[_partition(call, partition) for partition in topic.partitions],
    )


def _partition(call: Call, partition: Partition) -> MetadataResponsePartition:
    live = call.access.nodes
    has_leader = partition.leader != _NOBODY and partition.leader in live and not partition.withheld
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader if has_leader else _NOBODY,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[
            node
            for node in partition.replicas
            if node not in live or (partition.withheld and node == partition.leader)
        ],
    )
