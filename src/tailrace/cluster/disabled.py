"""Disabled principals in the store of the metadata.

disabled/User:CN=alice,O=Acme     {}
"""

from __future__ import annotations

from typing import Final

from tailrace.cluster import record
from tailrace.cluster.metadata import first_start
from tailrace.cluster.store import ABSENT, Store
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.session import Principal

DISABLED: Final = "disabled/"
_ATTEMPTS_MAX: Final = 10


class MetadataDisabled:
    """The disabled principals in a store, which belongs to whoever opened it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<MetadataDisabled in {self._store}>"

    async def load(self) -> set[Principal]:
        return {_principal(key) for key in (await self._store.read(DISABLED)).entries}

    async def add(self, principal: Principal) -> None:
        key = f"{DISABLED}{principal}"
        for _ in range(_ATTEMPTS_MAX):
            entries = (await self._store.read()).entries
            puts = {key: "{}"}
            if record.CLUSTER not in entries:
                puts |= first_start()
            checks = {each: entries[each].version if each in entries else ABSENT for each in puts}
            if await self._store.commit(checks=checks, puts=puts) is not None:
                return
        raise BrokerError(
            f"{principal} was changed by others {_ATTEMPTS_MAX} times in a row. Try again",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    async def remove(self, principal: Principal) -> None:
        await self._store.commit(checks={}, puts={}, deletes=[f"{DISABLED}{principal}"])


def _principal(key: str) -> Principal:
    kind, _, name = key.removeprefix(DISABLED).partition(":")
    return Principal(kind, name)
