"""DescribeClientQuotas (API 48), versions 0 to 1.

The quotas of users, client ids and addresses (KIP-546). Version 1 is flexible.
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class DescribeClientQuotasRequest(Message):
    components: list[ComponentData] = []
    strict: bool = False


class ComponentData(Message):
    entity_type: str = ""
    match_type: Int8 = 0  # 0: this name, 1: the default, 2: any
    match: str | None = None


class DescribeClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    entries: list[EntryData] | None = None


class EntryData(Message):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class EntityData(Message):
    entity_type: str = ""
    entity_name: str | None = None


class ValueData(Message):
    key: str = ""
    value: float = 0.0
