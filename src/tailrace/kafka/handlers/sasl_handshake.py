"""SaslHandshake: the mechanism of the login that follows (KIP-43).

v1  its messages travel in SaslAuthenticate; before that as bare frames

A mechanism that the listener does not offer is refused, with those that it does.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

KEY = 17


def handle(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    login = call.login
    if login is None:  # the listener asks nobody who it is
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        login.choose(request.mechanism, bare=call.version == 0)
    except BrokerError as error:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=login.mechanisms())
    return SaslHandshakeResponse(mechanisms=login.mechanisms())
