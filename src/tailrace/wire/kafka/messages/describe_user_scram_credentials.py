"""DescribeUserScramCredentials (API 50), version 0.

Which SCRAM mechanisms users have, and with how many iterations (KIP-554).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None = None


class UserName(Message):
    name: str = ""


class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    results: list[DescribeUserScramCredentialsResult] = []


class DescribeUserScramCredentialsResult(Message):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = None
    credential_infos: list[CredentialInfo] = []


class CredentialInfo(Message):
    mechanism: Int8 = 0
    iterations: Int32 = 0
