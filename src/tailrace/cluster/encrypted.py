"""A store whose secrets are encrypted: what logins are checked by, and the keys of tokens.

Around the store of a node with encryption at rest, and outside of what mirrors it: so cluster.json holds what
the database holds. Names of users stay readable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from tailrace.cluster.record import USERS
from tailrace.cluster.store import Entry, Rows, Store

_SECRET = (USERS, "security/")


class Values(Protocol):
    """What encrypts single values by their names; plain ones pass through `decrypt`."""

    encrypts: bool

    def encrypt(self, name: str, text: str) -> str:
        """The value as it is stored."""

    def decrypt(self, name: str, text: str) -> str:
        """The value; StorageError if it is not what was encrypted under this name."""


class EncryptedStore:
    """Passes everything on, and secrets in their stored form."""

    def __init__(self, store: Store, values: Values) -> None:
        self._store = store
        self._values = values

    def __repr__(self) -> str:
        return f"<EncryptedStore {self._store}>"

    def __str__(self) -> str:
        return str(self._store)

    async def read(self, prefix: str = "") -> Rows:
        rows = await self._store.read(prefix)
        entries = {
            key: Entry(self._plain(key, each.value), each.version) for key, each in rows.entries.items()
        }
        return Rows(revision=rows.revision, entries=entries)

    async def commit(
        self, *, checks: Mapping[str, int], puts: Mapping[str, str], deletes: Collection[str] = ()
    ) -> int | None:
        stored = {key: self._stored(key, value) for key, value in puts.items()}
        return await self._store.commit(checks=checks, puts=stored, deletes=deletes)

    async def close(self) -> None:
        await self._store.close()

    async def encrypt_rest(self) -> None:
        """Encrypt the secrets that are still plain, of a directory that was plain."""
        if not self._values.encrypts:
            return
        for key, each in (await self._store.read()).entries.items():
            if key.startswith(_SECRET) and self._plain(key, each.value) == each.value:
                puts = {key: self._stored(key, each.value)}
                await self._store.commit(checks={key: each.version}, puts=puts)

    def _stored(self, key: str, value: str) -> str:
        return (
            self._values.encrypt(key, value) if self._values.encrypts and key.startswith(_SECRET) else value
        )

    def _plain(self, key: str, value: str) -> str:
        return self._values.decrypt(key, value) if key.startswith(_SECRET) else value
