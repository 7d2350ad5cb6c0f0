"""AlterReplicaLogDirs: a node has one data directory, so a replica is where it is wanted or cannot get there.

Versions differ in nothing but their encoding. A directory that is not this node's is LOG_DIR_NOT_FOUND, a
partition that this node does not hold REPLICA_NOT_AVAILABLE.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import data_directory
from tailrace.model import ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

KEY = 34


def handle(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=_move(call, topic.name, index, directory.path)
                    )
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _move(call: Call, name: str, index: int, path: str) -> ErrorCode:
    try:
        cluster = call.access.cluster(Operation.ALTER)
        partitions = call.access.topic(name, Operation.ALTER).partitions
    except ANSWERABLE as error:
        return error_of(error)[0]
    if path != data_directory(cluster):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not 0 <= index < len(partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if partitions[index].is_held_here else ErrorCode.REPLICA_NOT_AVAILABLE
