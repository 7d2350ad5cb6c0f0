"""AlterClientQuotas (API 49), versions 0 to 1.

Sets and removes quotas of users, client ids and addresses (KIP-546). Version 1 is flexible.
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Message


class AlterClientQuotasRequest(Message):
    entries: list[EntryData] = []
    validate_only: bool = False


class EntryData(Message):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class EntityData(Message):
    entity_type: str = ""
    entity_name: str | None = None


class OpData(Message):
    key: str = ""
    value: float = 0.0
    remove: bool = False


class AlterClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    entries: list[AlteredEntryData] = []


class AlteredEntryData(Message):
    error_code: Int16 = 0
    error_message: str | None = None
    entity: list[AlteredEntityData] = []


class AlteredEntityData(Message):
    entity_type: str = ""
    entity_name: str | None = None
