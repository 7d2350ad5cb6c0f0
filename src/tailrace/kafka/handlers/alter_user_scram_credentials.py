"""AlterUserScramCredentials: gives users SCRAM credentials, and takes them away (KIP-554).

A client sends a salted password, from which whoever sees it can log in: only clients of this machine may. The
iterations are 4,096 to 16,384. A user that is named twice gets an error and is not changed, as in Kafka.
Deleting the last credential of a user deletes the user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.scram import mechanism_of
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation
from tailrace.security.verifier import Verifier, hash_bytes, verifier_of
from tailrace.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from tailrace.security import Users

KEY = 51

Change = Callable[[], Awaitable[None]]


async def handle(call: Call, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    try:
        users = call.access.users(Operation.ALTER)
        if request.upsertions:
            _check_private(call)
    except ANSWERABLE as error:
        names = dict.fromkeys(
            [each.name for each in request.deletions] + [each.name for each in request.upsertions]
        )
        return AlterUserScramCredentialsResponse(results=[_result(name, error) for name in names])
    changes = [(each.name, "user.credential.delete", _deletion(users, each)) for each in request.deletions]
    changes += [(each.name, "user.credential", _upsertion(users, each)) for each in request.upsertions]
    times = Counter(name for name, _, _ in changes)
    done: dict[str, AlterUserScramCredentialsResult] = {}
    for name, what, change in changes:
        if name not in done:
            with call.access.changing(what, f"user {name!r}") as noted:
                done[name] = await _perform(name, change, times[name])
                noted.code = done[name].error_code
    return AlterUserScramCredentialsResponse(results=list(done.values()))


async def _perform(name: str, change: Change, times: int) -> AlterUserScramCredentialsResult:
    try:
        if times > 1:
            raise BrokerError("a user is changed once in a request", code=ErrorCode.DUPLICATE_RESOURCE)
        await change()
    except ANSWERABLE as error:
        return _result(name, error)
    return AlterUserScramCredentialsResult(user=name)


def _deletion(users: Users, deletion: ScramCredentialDeletion) -> Change:
    async def change() -> None:
        await users.remove_verifier(deletion.name, mechanism_of(deletion.mechanism))

    return change


def _upsertion(users: Users, upsertion: ScramCredentialUpsertion) -> Change:
    async def change() -> None:
        await users.put_verifier(upsertion.name, _verifier(upsertion))

    return change


def _verifier(upsertion: ScramCredentialUpsertion) -> Verifier:
    mechanism = mechanism_of(upsertion.mechanism)
    try:
        if len(upsertion.salted_password) != hash_bytes(mechanism):
            raise ValueError(f"a salted password of {mechanism} has {hash_bytes(mechanism)} bytes")
        return verifier_of(
            mechanism, upsertion.salted_password, salt=upsertion.salt, iterations=upsertion.iterations
        )
    except ValueError as error:
        raise BrokerError(str(error), code=ErrorCode.UNACCEPTABLE_CREDENTIAL) from None


def _check_private(call: Call) -> None:
    if not call.connection.has_address:
        return  # a Unix socket
    if not call.access.session.is_private:
        raise BrokerError(
            "credentials are not taken over a connection without encryption. Send them from the broker's "
            "machine, or use there: tailrace user create",
            code=ErrorCode.SECURITY_DISABLED,
        )


def _result(name: str, error: Exception) -> AlterUserScramCredentialsResult:
    code, text = error_of(error)
    return AlterUserScramCredentialsResult(user=name, error_code=code, error_message=text)
