"""DescribeQuorum (API 55), versions 0-2.

Who keeps the metadata of the cluster (KIP-595), asked for as the partition of a topic. Version 1 brings times
(KIP-836), version 2 messages and the nodes.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from tailrace.wire.kafka.schema import ZERO_UUID, Int16, Int32, Int64, Message, UInt16


class DescribeQuorumRequest(Message):
    topics: list[DescribeQuorumRequestTopic] = []


class DescribeQuorumRequestTopic(Message):
    topic_name: str = ""
    partitions: list[DescribeQuorumRequestPartition] = []


class DescribeQuorumRequestPartition(Message):
    partition_index: Int32 = 0


class DescribeQuorumResponse(Message):
    error_code: Int16 = 0
    error_message: Annotated[str | None, "2+"] = None
    topics: list[DescribeQuorumTopic] = []
    nodes: Annotated[list[DescribeQuorumNode], "2+"] = []


class DescribeQuorumTopic(Message):
    topic_name: str = ""
    partitions: list[DescribeQuorumPartition] = []


class DescribeQuorumPartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, "2+"] = None
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = []
    observers: list[ReplicaState] = []


class ReplicaState(Message):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[UUID, "2+"] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, "1+"] = -1
    last_caught_up_timestamp: Annotated[Int64, "1+"] = -1


class DescribeQuorumNode(Message):
    node_id: Int32 = 0
    listeners: list[DescribeQuorumListener] = []


class DescribeQuorumListener(Message):
    name: str = ""
    host: str = ""
    port: UInt16 = 0
