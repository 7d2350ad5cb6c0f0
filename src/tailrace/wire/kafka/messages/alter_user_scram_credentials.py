"""AlterUserScramCredentials (API 51), version 0.

Gives users SCRAM credentials, as salted passwords, and takes them away (KIP-554).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class AlterUserScramCredentialsRequest(Message):
    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class ScramCredentialDeletion(Message):
    name: str = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Message):
    name: str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []


class AlterUserScramCredentialsResult(Message):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = None
