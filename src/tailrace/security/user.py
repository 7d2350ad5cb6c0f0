"""A user as it is stored, and the port to where users are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailrace.security.verifier import Verifier


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who may log in. There is a verifier per SCRAM mechanism, and at least one."""

    name: str
    verifiers: Mapping[str, Verifier]  # by mechanism
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUsers:
    """Everything that a store holds of users."""

    users: Mapping[str, User] = field(default_factory=dict)  # by name
    fake_key: bytes = field(default=b"", repr=False)  # makes the salts of unknown users; b"": not made yet


class UserStore(Protocol):
    """Keeps users; what a method returned from is durable."""

    async def load(self) -> StoredUsers:
        """Everything that is stored."""

    async def save(self, user: User, *, fake_key: bytes) -> None:
        """Store a user, in the place of the one of this name, and the key if there is none yet."""

    async def remove(self, name: str) -> None:
        """Forget a user; to forget one that does not exist is harmless."""

    async def changes(self) -> Mapping[str, User | None]:
        """The users that others have changed since the last load or call, and None for those removed."""


class MemoryUsers:
    """A store that lives as long as its process."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}
        self._fake_key = b""

    async def load(self) -> StoredUsers:
        return StoredUsers(users=dict(self._users), fake_key=self._fake_key)

    async def save(self, user: User, *, fake_key: bytes) -> None:
        self._users[user.name] = user
        self._fake_key = self._fake_key or fake_key

    async def remove(self, name: str) -> None:
        self._users.pop(name, None)

    async def changes(self) -> Mapping[str, User | None]:
        return {}
