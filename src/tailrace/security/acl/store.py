"""The port to where entries are stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from tailrace.security.acl.binding import AclBinding


class AclStore(Protocol):
    """Keeps entries by their ids; what a method returned from is durable."""

    async def load(self) -> Mapping[str, AclBinding]:
        """Everything that is stored."""

    async def change(self, *, added: Mapping[str, AclBinding], removed: Collection[str]) -> None:
        """Store entries and forget others, in one step; to forget one that does not exist is harmless."""


class MemoryAcls:
    """A store that lives as long as its process."""

    def __init__(self) -> None:
        self._bindings: dict[str, AclBinding] = {}

    async def load(self) -> Mapping[str, AclBinding]:
        return dict(self._bindings)

    async def change(self, *, added: Mapping[str, AclBinding], removed: Collection[str]) -> None:
        for key in removed:
            self._bindings.pop(key, None)
        self._bindings.update(added)
