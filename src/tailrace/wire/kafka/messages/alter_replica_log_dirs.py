"""AlterReplicaLogDirs (API 34), versions 1-2.

Moves replicas between the log directories of a broker (KIP-113).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Message


class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDir(Message):
    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirTopic(Message):
    name: str = ""
    partitions: list[Int32] = []


class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
