"""API tokens: how they are written, stored and proven. Pure; `tokens` has those of a node.

    trt_4f1c09ab62d7e835_<32 random bytes, base64url>    what its owner holds, shown once
    ApiToken                                             what is stored: HMAC-SHA-256 of that text, and bounds

The HMAC is made under a key of the server. Two keys live at most: the current one, and the one before it,
until every token was used once more.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tailrace.model.scope import Scope
from tailrace.security.secret import Secret

PREFIX: Final = "trt_"
TOKEN_USER: Final = "token"
"""The user name that says that the password is an API token."""
LIFETIME_MS: Final = 30 * 86_400_000
LIFETIME_MS_MIN: Final = 60_000
LIFETIME_MS_MAX: Final = 365 * 86_400_000
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32
_KEY_BYTES: Final = 32
_TEXT: Final = re.compile(r"trt_(?P<id>[0-9a-f]{16})_[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """What is kept of a token."""

    id: str
    owner: str  # a user of this node
    label: str  # what it is for, for people
    scope: Scope
    created_ms: int
    expires_ms: int
    key_id: str  # of the server key that made the digest
    digest: bytes = field(repr=False)
    used_ms: int | None = None  # about when it was used last; None: never


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenKey:
    """A key of the server."""

    id: str
    key: bytes = field(repr=False)

    def digest(self, token: Secret) -> bytes:
        return hmac.digest(self.key, token.reveal().encode(), "sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTokens:
    """Everything that a store holds of tokens."""

    tokens: Mapping[str, ApiToken] = field(default_factory=dict)  # by id
    keys: Sequence[TokenKey] = ()  # the current one first


class TokenStore(Protocol):
    """Keeps tokens; what a method returned from is durable."""

    async def load(self) -> StoredTokens:
        """Everything that is stored."""

    async def save(self, token: ApiToken) -> None:
        """Store a token, in the place of the one of this id."""

    async def remove(self, ids: Sequence[str]) -> None:
        """Forget tokens; to forget one that does not exist is harmless."""

    async def save_keys(self, keys: Sequence[TokenKey]) -> None:
        """Store the server keys in the place of those before."""


class MemoryTokens:
    """A store that lives as long as its process."""

    def __init__(self) -> None:
        self._tokens: dict[str, ApiToken] = {}
        self._keys: Sequence[TokenKey] = ()

    async def load(self) -> StoredTokens:
        return StoredTokens(tokens=dict(self._tokens), keys=self._keys)

    async def save(self, token: ApiToken) -> None:
        self._tokens[token.id] = token

    async def remove(self, ids: Sequence[str]) -> None:
        for each in ids:
            self._tokens.pop(each, None)

    async def save_keys(self, keys: Sequence[TokenKey]) -> None:
        self._keys = tuple(keys)


def new_token() -> tuple[str, Secret]:
    """The id and the text of a new token."""
    token_id = secrets.token_hex(_ID_BYTES)
    return token_id, Secret(f"{PREFIX}{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}")


def new_key() -> TokenKey:
    return TokenKey(id=secrets.token_hex(4), key=secrets.token_bytes(_KEY_BYTES))


def is_api_token(token: Secret) -> bool:
    """Whether a text is meant to be an API token."""
    return token.reveal().startswith(PREFIX)


def id_of(token: Secret) -> str | None:
    """The id in the text of a token; None for a text that is none."""
    found = _TEXT.fullmatch(token.reveal())
    return None if found is None else found["id"]
