"""IncrementalAlterConfigs (API 44), versions 0-1.

Sets (0), deletes (1), appends to (2) or subtracts from (3) single configs (KIP-339).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class IncrementalAlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class AlterableConfig(Message):
    name: str = ""
    config_operation: Int8 = 0
    value: str | None = None


class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""
