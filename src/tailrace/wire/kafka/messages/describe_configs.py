"""DescribeConfigs (API 32), versions 1-4.

The configs of topics (resource type 2) and brokers (4), with their sources; null keys ask for all of them.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: Annotated[bool, "3+"] = False


class DescribeConfigsResource(Message):
    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = None


class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


class DescribeConfigsResult(Message):
    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResourceResult(Message):
    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, "3+"] = 0
    documentation: Annotated[str | None, "3+"] = None


class DescribeConfigsSynonym(Message):
    name: str = ""
    value: str | None = None
    source: Int8 = 0
