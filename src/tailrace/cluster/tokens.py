"""API tokens in the store of the metadata: `tokens/<id>`, and `security/token_keys` beside them.

    tokens/4f1c...        {"created_ms": ..., "digest": <base64>, "expires_ms": ..., "key_id": ...,
                          "label": ..., "owner": ..., "scope": ["read:topic:orders"], "used_ms": ...}
    security/token_keys   {"keys": [{"id": ..., "key": <base64>}, ...]}, the current one first

The text of a token is not stored. Errors name keys and never repeat a value.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tailrace.cluster import record
from tailrace.cluster.store import Entry, Store
from tailrace.model import StorageError
from tailrace.model.scope import read_scope
from tailrace.security.api_token import ApiToken, StoredTokens, TokenKey
from tailrace.security.tokens import KEYS_MAX

TOKENS: Final = record.TOKENS
KEYS: Final = "security/token_keys"


class MetadataTokens:
    """The tokens in a store, which belongs to the one that opened it (`security.api_token.TokenStore`)."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<MetadataTokens in {self._store}>"

    async def load(self) -> StoredTokens:
        tokens = (await self._store.read(TOKENS)).entries
        keys = (await self._store.read(KEYS)).entries
        try:
            return StoredTokens(
                tokens={
                    key.removeprefix(TOKENS): read_token(key, each.value) for key, each in tokens.items()
                },
                keys=_read_keys(keys[KEYS]) if KEYS in keys else (),
            )
        except ValueError as error:
            raise StorageError(
                "read API tokens in",
                str(self._store),
                str(error),
                hint="Revoke the token while no broker runs, with --data-dir, and create another one",
            ) from None

    async def save(self, token: ApiToken) -> None:
        await self._store.commit(checks={}, puts={TOKENS + token.id: write_token(token)})

    async def remove(self, ids: Sequence[str]) -> None:
        await self._store.commit(checks={}, puts={}, deletes=[TOKENS + each for each in ids])

    async def save_keys(self, keys: Sequence[TokenKey]) -> None:
        rows = [{"id": each.id, "key": base64.b64encode(each.key).decode()} for each in keys]
        await self._store.commit(checks={}, puts={KEYS: _text({"keys": rows})})


def tokens_of(owner: str, entries: Mapping[str, Entry]) -> list[str]:
    """The keys of a user's tokens, among the entries of a store."""
    return [key for key, each in entries.items() if json.loads(each.value).get("owner") == owner]


def write_token(token: ApiToken) -> str:
    return _text(
        {
            "created_ms": token.created_ms,
            "digest": base64.b64encode(token.digest).decode(),
            "expires_ms": token.expires_ms,
            "key_id": token.key_id,
            "label": token.label,
            "owner": token.owner,
            "scope": token.scope.texts(),
            "used_ms": token.used_ms,
        }
    )


def read_token(key: str, text: str) -> ApiToken:
    """ValueError names the key, and repeats nothing of the value."""
    try:
        value = json.loads(text)
        times = [value["created_ms"], value["expires_ms"], value["used_ms"] or 0]
        words = [value["label"], value["owner"], value["key_id"], *value["scope"]]
        if any(type(each) is not int for each in times) or any(type(each) is not str for each in words):
            raise TypeError
        return ApiToken(
            id=key.removeprefix(TOKENS),
            owner=value["owner"],
            label=value["label"],
            scope=read_scope(value["scope"]),
            created_ms=value["created_ms"],
            expires_ms=value["expires_ms"],
            key_id=value["key_id"],
            digest=base64.b64decode(value["digest"].encode("ascii"), validate=True),
            used_ms=value["used_ms"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{key} is not an API token as this program writes it") from None


def _read_keys(entry: Entry) -> tuple[TokenKey, ...]:
    try:
        rows: Sequence[Mapping[str, Any]] = json.loads(entry.value)["keys"]
        found = tuple(TokenKey(id=str(each["id"]), key=base64.b64decode(each["key"])) for each in rows)
    except (ValueError, KeyError, TypeError, AttributeError):
        found = ()
    if not 0 < len(found) <= KEYS_MAX or not all(each.key for each in found):
        raise ValueError(f"{KEYS} has no keys as this program writes them")
    return found


def _text(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
