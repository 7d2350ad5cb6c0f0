"""CreateAcls (API 30), versions 1 to 3.

New access control entries (KIP-140); patterns since version 1 (KIP-290).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class CreateAclsRequest(Message):
    creations: list[AclCreation] = []


class AclCreation(Message):
    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


class AclCreationResult(Message):
    error_code: Int16 = 0
    error_message: str | None = ""
