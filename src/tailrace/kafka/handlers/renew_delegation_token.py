"""RenewDelegationToken: there are no delegation tokens here (KIP-48), and clients are told so."""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

KEY = 39


def handle(
    call: Call,  # noqa: ARG001
    request: RenewDelegationTokenRequest,  # noqa: ARG001
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
