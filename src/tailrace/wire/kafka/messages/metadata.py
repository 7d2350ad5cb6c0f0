"""Metadata (API 3), versions 0-12.

The brokers of the cluster, its topics, and who leads which partition. No topics means all of them in version
0; later null means all, and an empty list none. Topic ids come with version 10; the name of an id that is
not known is null from version 12 on.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from tailrace.wire.kafka.schema import ZERO_UUID, Int16, Int32, Message


class MetadataRequest(Message):
    topics: Annotated[list[MetadataRequestTopic] | None, "null 1+"] = None
    allow_auto_topic_creation: Annotated[bool, "4+"] = True
    include_cluster_authorized_operations: Annotated[bool, "8-10"] = False
    include_topic_authorized_operations: Annotated[bool, "8+"] = False


class MetadataRequestTopic(Message):
    topic_id: Annotated[UUID, "10+"] = ZERO_UUID
    name: Annotated[str | None, "null 10+"] = None


class MetadataResponse(Message):
    throttle_time_ms: Annotated[Int32, "3+"] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[str | None, "2+"] = None
    controller_id: Annotated[Int32, "1+"] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, "8-10"] = -(2**31)


class MetadataResponseBroker(Message):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, "1+"] = None


class MetadataResponseTopic(Message):
    error_code: Int16 = 0
    name: Annotated[str | None, "null 12+"] = None
    topic_id: Annotated[UUID, "10+"] = ZERO_UUID
    is_internal: Annotated[bool, "1+"] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, "8+"] = -(2**31)


class MetadataResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, "7+"] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], "5+"] = []
