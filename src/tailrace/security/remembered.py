"""Passwords that were checked a moment ago, so that the next login with one costs no hashing.

What is kept of a password is an HMAC under a key that this process made and that is nowhere else. An entry
ends after 60 s, and as soon as its user changes.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final, NamedTuple

from tailrace.security.secret import Secret
from tailrace.security.user import User

REMEMBERED_S: Final = 60.0


class _Entry(NamedTuple):
    digest: bytes
    until: float
    user: User  # as it was: a change makes another object


class Remembered:
    """The last password that was right, by user."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, user: User, password: Secret, *, now: float) -> None:
        """This password was checked, and is right."""
        self._entries[user.name] = _Entry(self._digest(user, password), now + REMEMBERED_S, user)

    def knows(self, user: User, password: Secret, *, now: float) -> bool:
        """Whether this password was right a moment ago, and the user has not changed since."""
        found = self._entries.get(user.name)
        if found is None:
            return False
        if now >= found.until or found.user is not user:
            del self._entries[user.name]
            return False
        return hmac.compare_digest(found.digest, self._digest(user, password))

    def forget(self, name: str) -> None:
        """The user has changed."""
        self._entries.pop(name, None)

    def _digest(self, user: User, password: Secret) -> bytes:
        return hmac.digest(self._key, f"{user.name}\0{password.reveal()}".encode(), "sha256")
