"""SaslAuthenticate: one message of a login (KIP-152).

v1  the last answer says for how long the login holds; a client logs in again before that (KIP-368)
v2  flexible

The answer to a login that failed comes after a while, and the connection ends behind it (KIP-306).
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

KEY = 36


async def handle(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    login = call.login
    if login is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="this listener has no logins"
        )
    data, lifetime_ms = await login.take(request.auth_bytes)
    return SaslAuthenticateResponse(auth_bytes=data, session_lifetime_ms=lifetime_ms)
