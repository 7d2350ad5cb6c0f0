"""CreateDelegationToken: there are no delegation tokens here (KIP-48), and clients are told so."""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

KEY = 38


def handle(
    call: Call,  # noqa: ARG001
    request: CreateDelegationTokenRequest,  # noqa: ARG001
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
