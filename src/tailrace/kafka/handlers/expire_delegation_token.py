"""ExpireDelegationToken: there are no delegation tokens here (KIP-48), and clients are told so."""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

KEY = 40


def handle(
    call: Call,  # noqa: ARG001
    request: ExpireDelegationTokenRequest,  # noqa: ARG001
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
