"""Users in the store of the metadata: `users/<name>`, and `security/fake_salts` beside them.

    users/alice           {"enabled": true, "verifiers": {"SCRAM-SHA-256": {"iterations": 16384,
                          "salt": <base64>, "server_key": <base64>, "stored_key": <base64>}, ...}}
    security/fake_salts   {"key": <base64>}: makes the salts of users that do not exist

Only verifiers are stored, never a password. Errors name keys and never repeat a value. A directory in which
no broker was started yet gets the id of its cluster with its first user.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from tailrace.cluster import record
from tailrace.cluster.metadata import first_start
from tailrace.cluster.store import ABSENT, Entry, Store
from tailrace.cluster.tokens import tokens_of
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.security import StoredUsers, User, Verifier

USERS: Final = record.USERS
FAKE_SALTS: Final = "security/fake_salts"
_ATTEMPTS_MAX: Final = 10


class MetadataUsers:
    """The users in a store, which belongs to whoever opened it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<MetadataUsers in {self._store}>"

    async def load(self) -> StoredUsers:
        users = (await self._store.read(USERS)).entries
        keys = (await self._store.read(FAKE_SALTS)).entries
        try:
            return StoredUsers(
                users={key.removeprefix(USERS): read_user(key, entry.value) for key, entry in users.items()},
                fake_key=_read_key(keys[FAKE_SALTS]) if FAKE_SALTS in keys else b"",
            )
        except ValueError as error:
            raise StorageError(
                "read users in",
                str(self._store),
                str(error),
                hint="Delete the user while no broker runs, with --data-dir, and create it again",
            ) from None

    async def save(self, user: User, *, fake_key: bytes) -> None:
        key = USERS + user.name
        for _ in range(_ATTEMPTS_MAX):
            entries = (await self._store.read()).entries
            puts = {key: write_user(user)}
            if FAKE_SALTS not in entries:
                puts[FAKE_SALTS] = _text({"key": _base64(fake_key)})
            if record.CLUSTER not in entries:
                puts |= first_start()
            checks = {each: entries[each].version if each in entries else ABSENT for each in puts}
            if await self._store.commit(checks=checks, puts=puts) is not None:
                return
        raise BrokerError(
            f"user {user.name!r} was changed by others {_ATTEMPTS_MAX} times in a row. Try again",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    async def remove(self, name: str) -> None:
        """Its API tokens go with it: a later user of this name must not get them."""
        owned = tokens_of(name, (await self._store.read(record.TOKENS)).entries)
        await self._store.commit(checks={}, puts={}, deletes=[USERS + name, *owned])

    async def changes(self) -> Mapping[str, User | None]:
        return {}  # the directory has one broker


def write_user(user: User) -> str:
    return _text(
        {
            "enabled": user.enabled,
            "verifiers": {name: _verifier_fields(each) for name, each in sorted(user.verifiers.items())},
        }
    )


def read_user(key: str, text: str) -> User:
    """ValueError names the key, and repeats nothing of the value."""
    try:
        value = json.loads(text)
        enabled, verifiers = value["enabled"], value["verifiers"]
        if type(enabled) is not bool or not isinstance(verifiers, dict) or not verifiers:
            raise TypeError
        made = {name: _read_verifier(name, fields) for name, fields in verifiers.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{key} is not a user as this program writes it") from None
    return User(name=key.removeprefix(USERS), verifiers=made, enabled=enabled)


def _verifier_fields(verifier: Verifier) -> dict[str, object]:
    return {
        "iterations": verifier.iterations,
        "salt": _base64(verifier.salt),
        "server_key": _base64(verifier.server_key),
        "stored_key": _base64(verifier.stored_key),
    }


def _read_verifier(mechanism: str, fields: Mapping[str, Any]) -> Verifier:
    if type(fields["iterations"]) is not int:
        raise TypeError
    return Verifier(
        mechanism=mechanism,
        salt=_bytes(fields["salt"]),
        iterations=fields["iterations"],
        stored_key=_bytes(fields["stored_key"]),
        server_key=_bytes(fields["server_key"]),
    )


def _read_key(entry: Entry) -> bytes:
    try:
        key = _bytes(json.loads(entry.value)["key"])
    except (ValueError, KeyError, TypeError):
        key = b""
    if not key:
        raise ValueError(f"{FAKE_SALTS} has no key")
    return key


def _text(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii"), validate=True)
