"""DescribeDelegationToken: there are no delegation tokens here (KIP-48), and clients are told so."""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

KEY = 41


def handle(
    call: Call,  # noqa: ARG001
    request: DescribeDelegationTokenRequest,  # noqa: ARG001
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
