"""DescribeDelegationToken (API 41), versions 1-3 (KIP-48; owners by KIP-373)."""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class DescribeDelegationTokenRequest(Message):
    owners: list[DescribeDelegationTokenOwner] | None = None


class DescribeDelegationTokenOwner(Message):
    principal_type: str = ""
    principal_name: str = ""


class DescribeDelegationTokenResponse(Message):
    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0


class DescribedDelegationToken(Message):
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, "3+"] = ""
    token_requester_principal_name: Annotated[str, "3+"] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribedDelegationTokenRenewer(Message):
    principal_type: str = ""
    principal_name: str = ""
