"""CreateTopics (API 19), versions 2-7.

New topics, by counts or by an explicit assignment. From version 4, -1 stands for the default counts.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from tailrace.wire.kafka.schema import ZERO_UUID, Int8, Int16, Int32, Message


class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60_000
    validate_only: bool = False


class CreatableTopic(Message):
    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreatableReplicaAssignment(Message):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Message):
    name: str = ""
    value: str | None = None


class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []


class CreatableTopicResult(Message):
    name: str = ""
    topic_id: Annotated[UUID, "7+"] = ZERO_UUID
    error_code: Int16 = 0
    error_message: str | None = None
    topic_config_error_code: Annotated[Int16, "5+ tag 0"] = 0
    num_partitions: Annotated[Int32, "5+"] = -1
    replication_factor: Annotated[Int16, "5+"] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, "5+"] = None


class CreatableTopicConfigs(Message):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
