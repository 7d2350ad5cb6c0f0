"""ListConfigResources (API 74), versions 0-1.

What has settings: client metrics (type 16) in version 0, from version 1 on also topics (2), brokers (4),
their loggers (8) and groups (32) (KIP-1142).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class ListConfigResourcesRequest(Message):
    resource_types: Annotated[list[Int8], "1+"] = []


class ListConfigResourcesResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


class ConfigResource(Message):
    resource_name: str = ""
    resource_type: Annotated[Int8, "1+"] = 16
