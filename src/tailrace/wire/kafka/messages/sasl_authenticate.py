"""SaslAuthenticate (API 36), versions 0-2.

One message of a login, as bytes of its mechanism (KIP-152); from version 1 the last answer says for how long
the login holds (KIP-368).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int64, Message


class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Message):
    error_code: Int16 = 0
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, "1+"] = 0
