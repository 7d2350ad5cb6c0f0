"""CreatePartitions: topics grow to a number of partitions, each with its own answer.

Versions differ in nothing but their encoding. A number that is not greater than what there is, is
INVALID_PARTITIONS. An assignment names the nodes of the new partitions only, in their order, with as many
replicas as the old ones have.
"""

from __future__ import annotations

from tailrace.broker.topic import Topic
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import invalid_request, repeated
from tailrace.model import BrokerError, BrokerId, ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

KEY = 37


async def handle(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    twice = repeated(topic.name for topic in request.topics)
    results = []
    for wanted in request.topics:
        result = CreatePartitionsTopicResult(name=wanted.name)
        results.append(result)
        try:
            if wanted.name in twice:
                raise invalid_request(f"topic {wanted.name!r} is named more than once")
            topic = call.access.topic(wanted.name, Operation.ALTER)
            await call.access.add_partitions(
                topic.name,
                wanted.count,
                assignments=_assignments(topic, wanted),
                validate_only=request.validate_only,
            )
        except ANSWERABLE as error:
            result.error_code, result.error_message = error_of(error)
    return CreatePartitionsResponse(results=results)


def _assignments(topic: Topic, wanted: CreatePartitionsTopic) -> dict[int, list[BrokerId]] | None:
    first = len(topic.partitions)
    if wanted.assignments is None or wanted.count <= first:  # a number that is too small is told first
        return None
    if len(wanted.assignments) != wanted.count - first:
        raise _refused(f"{wanted.count - first} partitions are new, {len(wanted.assignments)} are assigned")
    if any(len(each.broker_ids) != topic.replication_factor for each in wanted.assignments):
        raise _refused(f"every partition of {topic.name} has {topic.replication_factor} replica(s)")
    return {
        first + place: [BrokerId(node) for node in each.broker_ids]
        for place, each in enumerate(wanted.assignments)
    }


def _refused(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)
