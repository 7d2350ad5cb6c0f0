"""DescribeAcls (API 29), versions 1 to 3.

Access control entries that match a filter (KIP-140); patterns since version 1 (KIP-290).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class DescribeAclsRequest(Message):
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


class DescribeAclsResource(Message):
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class AclDescription(Message):
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
