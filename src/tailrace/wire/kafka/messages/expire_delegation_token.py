"""ExpireDelegationToken (API 40), versions 1-2 (KIP-48)."""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class ExpireDelegationTokenRequest(Message):
    hmac: bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(Message):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
