"""CreateDelegationToken (API 38), versions 1-3 (KIP-48; owners by KIP-373)."""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class CreateDelegationTokenRequest(Message):
    owner_principal_type: Annotated[str | None, "3+"] = None
    owner_principal_name: Annotated[str | None, "3+"] = None
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreatableRenewers(Message):
    principal_type: str = ""
    principal_name: str = ""


class CreateDelegationTokenResponse(Message):
    error_code: Int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, "3+"] = ""
    token_requester_principal_name: Annotated[str, "3+"] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: Int32 = 0
