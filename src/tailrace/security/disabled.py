"""Principals that may not come, beside the users of the store: those of client certificates and of JWTs.

Such a principal exists where its certificate or token was made, and the broker can only keep it out. Users of
the store are disabled as users (`users`). A change is stored first, and watchers are told then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.session import Principal

DISABLED_MAX: Final = 100_000
_NAME_CHARACTERS_MAX: Final = 1024


class DisabledStore(Protocol):
    """Keeps principals; what a method returned from is durable."""

    async def load(self) -> set[Principal]:
        """Everyone that is disabled."""

    async def add(self, principal: Principal) -> None:
        """Store a principal as disabled."""

    async def remove(self, principal: Principal) -> None:
        """Forget a principal; to forget one that is not stored is harmless."""


class MemoryDisabled:
    """A store that lives as long as its process."""

    def __init__(self) -> None:
        self._principals: set[Principal] = set()

    async def load(self) -> set[Principal]:
        return set(self._principals)

    async def add(self, principal: Principal) -> None:
        self._principals.add(principal)

    async def remove(self, principal: Principal) -> None:
        self._principals.discard(principal)


class Disabled:
    """The disabled principals of a node, in the order of their names."""

    def __init__(
        self,
        store: DisabledStore | None = None,
        *,
        on_failure: Callable[[StorageError], None] = lambda _: None,
    ) -> None:
        """`on_failure` is told where it is not known whether a change was stored."""
        self._store = store or MemoryDisabled()
        self._on_failure = on_failure
        self._principals: set[Principal] = set()
        self._changing = asyncio.Lock()
        self._watchers: list[Callable[[Principal], None]] = []

    def __repr__(self) -> str:
        return f"<Disabled: {len(self._principals)}>"

    def __iter__(self) -> Iterator[Principal]:
        return iter(sorted(self._principals))

    async def load(self) -> None:
        """Take over what is stored."""
        self._principals = await self._store.load()

    def admits(self, principal: Principal) -> bool:
        """Whether a principal may come, as far as this list goes."""
        return principal not in self._principals

    def watch(self, callback: Callable[[Principal], None]) -> None:
        """Have `callback` called with every principal that was disabled or enabled again."""
        self._watchers.append(callback)

    async def set_enabled(self, principal: Principal, *, enabled: bool) -> None:
        """Whether a principal may come; POLICY_VIOLATION if the list is full."""
        async with self._changing:
            if not enabled and len(self._principals) >= DISABLED_MAX and principal not in self._principals:
                raise BrokerError(
                    f"{DISABLED_MAX} principals are disabled, and no more can be. Revoke certificates "
                    "with a CRL",
                    code=ErrorCode.POLICY_VIOLATION,
                )
            try:
                await (self._store.remove(principal) if enabled else self._store.add(principal))
            except StorageError as error:
                self._on_failure(error)
                raise
            (self._principals.discard if enabled else self._principals.add)(principal)
        for watcher in list(self._watchers):
            watcher(principal)


def parse_principal(text: str) -> Principal | None:
    """The principal that a text such as `User:CN=alice,O=Acme` names; INVALID_REQUEST if it can be none.

    None for the name of a user of the store, which has no colon.
    """
    kind, colon, name = text.partition(":")
    if not colon:
        return None
    if kind != "User" or not name or len(name) > _NAME_CHARACTERS_MAX or not name.isprintable():
        raise BrokerError(
            "a principal is User:NAME, where NAME has 1 to 1024 printable characters: for a certificate "
            "User:CN=alice,O=Acme, for a user of this broker NAME alone",
            code=ErrorCode.INVALID_REQUEST,
        )
    return Principal(kind, name)
