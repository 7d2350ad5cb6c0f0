"""AlterConfigs (API 33), versions 0-2.

Replaces the whole set of overrides of a resource.
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class AlterableConfig(Message):
    name: str = ""
    value: str | None = None


class AlterConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class AlterConfigsResourceResponse(Message):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""
