"""The API tokens of a node: in memory for look-ups, in a `TokenStore` for good.

A token acts for its owner and ends with it: the tokens of a user that was deleted are removed, and those of a
disabled user are not accepted. A change is stored before it counts; watchers are told the id of a token that
ended. When a token was used is written once an hour at most.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.scope import Scope
from tailrace.security.api_token import (
    LIFETIME_MS_MAX,
    LIFETIME_MS_MIN,
    ApiToken,
    MemoryTokens,
    TokenKey,
    TokenStore,
    id_of,
    new_key,
    new_token,
)
from tailrace.security.failure import UnknownToken
from tailrace.security.secret import Secret
from tailrace.security.users import Users

OWNER_TOKENS_MAX: Final = 100
TOKENS_MAX: Final = 100_000
LABEL_LENGTH_MAX: Final = 100
KEYS_MAX: Final = 2
_USE_NOTED_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000

T = TypeVar("T")
Ended = Callable[[str], None]


def _ignore(error: BaseException) -> None:
    """The caller of the change has the error too."""


class Tokens(Mapping[str, ApiToken]):
    """Tokens by id."""

    def __init__(
        self,
        users: Users,
        store: TokenStore | None = None,
        *,
        now_ms: Callable[[], int],
        on_failure: Callable[[BaseException], None] = _ignore,
    ) -> None:
        self._users = users
        self._store = store or MemoryTokens()
        self._now_ms = now_ms
        self._on_failure = on_failure
        self._tokens: dict[str, ApiToken] = {}
        self._keys: tuple[TokenKey, ...] = ()  # the current one first
        self._no_key = new_key()  # what an unknown token is compared under, so that it costs the same
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        self._noting: set[str] = set()  # tokens whose use is being written
        self._watchers: list[Ended] = []
        users.watch(self._user_changed)

    def __repr__(self) -> str:
        return f"<Tokens: {len(self)}>"

    def __getitem__(self, token_id: str) -> ApiToken:
        return self._tokens[token_id]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._tokens))

    def __len__(self) -> int:
        return len(self._tokens)

    async def load(self) -> None:
        """Take over what is stored; users are loaded before."""
        stored = await self._store.load()
        self._tokens, self._keys = dict(stored.tokens), tuple(stored.keys)
        orphans = [each.id for each in self._tokens.values() if each.owner not in self._users]
        if orphans and len(self._users):  # without a single user something else is amiss
            await self._change(self._remove(orphans))

    async def close(self) -> None:
        """Return when the changes under way have come to their end."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    # ---- looking up

    def prove(self, text: Secret) -> ApiToken | None:
        """The token that this text proves, if it may be used now."""
        found = self._tokens.get(id_of(text) or "")
        key = self._key(found.key_id) if found is not None else None
        digest = (key or self._no_key).digest(text)
        if found is None or key is None or not hmac.compare_digest(digest, found.digest):
            return None
        if not self.is_live(found.id):
            return None
        self._note_use(found, text)
        return found

    def is_live(self, token_id: str) -> bool:
        """Whether a token may be used: it is known, not over, and its owner may log in."""
        found = self._tokens.get(token_id)
        return found is not None and self._now_ms() < found.expires_ms and self._users.may_log_in(found.owner)

    def of(self, owner: str) -> list[ApiToken]:
        """The tokens of a user, the oldest first."""
        return sorted(
            (each for each in self._tokens.values() if each.owner == owner),
            key=lambda each: (each.created_ms, each.id),
        )

    def known(self, token_id: str) -> ApiToken:
        """The token; RESOURCE_NOT_FOUND."""
        found = self._tokens.get(token_id)
        if found is None:
            raise UnknownToken
        return found

    def watch(self, callback: Ended) -> None:
        """Have `callback` called with the id of every token that was revoked."""
        self._watchers.append(callback)

    # ---- changing

    async def create(
        self, owner: str, *, scope: Scope, lifetime_ms: int, label: str = ""
    ) -> tuple[ApiToken, Secret]:
        """A new token of a user, and its text, which is not known again."""
        self._users.known(owner)
        _check_label(label)
        if not LIFETIME_MS_MIN <= lifetime_ms <= LIFETIME_MS_MAX:
            raise BrokerError(
                f"a token lives for {LIFETIME_MS_MIN // 1000} s to {LIFETIME_MS_MAX // _DAY_MS} days",
                code=ErrorCode.INVALID_REQUEST,
            )
        return await self._change(self._create(owner, scope, lifetime_ms, label))

    async def revoke(self, token_id: str) -> None:
        """End a token, and what is connected by it; RESOURCE_NOT_FOUND."""
        self.known(token_id)
        await self._change(self._remove([token_id]))

    async def rotate_key(self, *, drop: bool = False) -> int:
        """A new server key; returns how many tokens wait under the earlier one until they are used.

        POLICY_VIOLATION if tokens are still under the key before that; with `drop` they end.
        """
        return await self._change(self._rotate_key(drop=drop))

    # ---- inside

    async def _change(self, work: Coroutine[Any, Any, T]) -> T:
        """One change after the other, and each to its end, also where its caller stopped waiting."""
        task = asyncio.get_running_loop().create_task(self._perform(work), name="token-change")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _perform(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._changing:
            try:
                return await work
            except StorageError as error:
                self._on_failure(error)
                raise

    async def _create(
        self, owner: str, scope: Scope, lifetime_ms: int, label: str
    ) -> tuple[ApiToken, Secret]:
        self._users.known(owner)  # it may have been deleted meanwhile
        await self._remove_over(owner)
        self._check_room(owner)
        if not self._keys:
            await self._put_keys((new_key(),))
        token_id, text = new_token()
        key, now_ms = self._keys[0], self._now_ms()
        made = ApiToken(
            id=token_id,
            owner=owner,
            label=label,
            scope=scope,
            created_ms=now_ms,
            expires_ms=now_ms + lifetime_ms,
            key_id=key.id,
            digest=key.digest(text),
        )
        await self._store.save(made)
        self._tokens[token_id] = made
        return made, text

    def _check_room(self, owner: str) -> None:
        count = len(self.of(owner))
        if count < OWNER_TOKENS_MAX and len(self._tokens) < TOKENS_MAX:
            return
        raise BrokerError(
            f"user {owner!r} has {count} tokens and the node {len(self._tokens)}: no more may be created. "
            "Revoke those that are not used: tailrace token list",
            code=ErrorCode.POLICY_VIOLATION,
        )

    async def _remove_over(self, owner: str) -> None:
        now_ms = self._now_ms()
        over = [each.id for each in self.of(owner) if each.expires_ms <= now_ms]
        if over:
            await self._remove(over)

    async def _remove(self, ids: list[str]) -> None:
        await self._store.remove(ids)
        for each in ids:
            self._tokens.pop(each, None)
            for watcher in list(self._watchers):
                watcher(each)

    async def _rotate_key(self, *, drop: bool) -> int:
        if self._keys:
            late = [each.id for each in self._tokens.values() if each.key_id != self._keys[0].id]
            if late and not drop:
                raise BrokerError(
                    f"{len(late)} tokens were not used since the last rotation and would end. Wait until "
                    "they are used, revoke them, or end them all with --drop",
                    code=ErrorCode.POLICY_VIOLATION,
                )
            if late:
                await self._remove(late)
        await self._put_keys((new_key(), *self._keys)[:KEYS_MAX])
        return len(self._tokens)

    async def _put_keys(self, keys: tuple[TokenKey, ...]) -> None:
        await self._store.save_keys(keys)
        self._keys = keys

    def _key(self, key_id: str) -> TokenKey | None:
        return next((each for each in self._keys if each.id == key_id), None)

    def _note_use(self, found: ApiToken, text: Secret) -> None:
        now_ms, key = self._now_ms(), self._keys[0]
        is_noted = found.used_ms is not None and 0 <= now_ms - found.used_ms < _USE_NOTED_MS
        if found.id in self._noting or (is_noted and found.key_id == key.id):
            return
        self._noting.add(found.id)
        self._start(self._save_use(found.id, now_ms, key, key.digest(text)))

    async def _save_use(self, token_id: str, now_ms: int, key: TokenKey, digest: bytes) -> None:
        try:
            found = self._tokens.get(token_id)
            if found is None:  # revoked meanwhile: writing it would bring it back
                return
            if key not in self._keys:  # another key came meanwhile; the next use is under that
                key, digest = TokenKey(id=found.key_id, key=b""), found.digest
            noted = replace(found, used_ms=now_ms, key_id=key.id, digest=digest)
            await self._store.save(noted)
            if token_id in self._tokens:  # else its owner was deleted meanwhile
                self._tokens[token_id] = noted
        finally:
            self._noting.discard(token_id)

    def _user_changed(self, name: str) -> None:
        if name in self._users:
            return
        owned = [each.id for each in self.of(name)]
        if owned:
            for each in owned:
                del self._tokens[each]  # at once; the store follows
            self._start(self._remove(owned))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """A change that no caller waits for; its failure has gone to `on_failure`."""
        task = asyncio.get_running_loop().create_task(self._perform(work), name="token-change")
        self._changes.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)


def _check_label(label: str) -> None:
    if len(label) > LABEL_LENGTH_MAX or not label.isprintable():
        raise BrokerError(
            f"the name of a token has {LABEL_LENGTH_MAX} printable characters at most",
            code=ErrorCode.INVALID_REQUEST,
        )
