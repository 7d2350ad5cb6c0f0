"""RenewDelegationToken (API 39), versions 1-2 (KIP-48)."""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class RenewDelegationTokenRequest(Message):
    hmac: bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Message):
    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
