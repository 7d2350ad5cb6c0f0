"""DescribeUserScramCredentials: which mechanisms users have, and with how many iterations (KIP-554).

No names are all users. A name that is asked for twice is refused, as in Kafka.
"""

from __future__ import annotations

from collections import Counter

from tailrace.kafka.call import Call
from tailrace.kafka.scram import NUMBERS
from tailrace.model import ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

KEY = 50


def handle(call: Call, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
    users = call.access.users(Operation.DESCRIBE)
    asked = Counter(each.name for each in request.users or ()) or Counter(list(users))
    return DescribeUserScramCredentialsResponse(
        results=[_result(call, name, count) for name, count in asked.items()]
    )


def _result(call: Call, name: str, count: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name)
    found = call.access.users(Operation.DESCRIBE).get(name)
    if count > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = "a user is described once in a request"
    elif found is None:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = "there is no user of this name"
    else:
        result.credential_infos = [
            CredentialInfo(mechanism=NUMBERS[mechanism], iterations=verifier.iterations)
            for mechanism, verifier in sorted(found.verifiers.items())
        ]
    return result
