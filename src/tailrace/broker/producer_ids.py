"""Ids for idempotent and transactional producers: unique for the life of the cluster.

A block is reserved durably and handed out from memory; what is left of it at a crash is never used.
"""

from __future__ import annotations

import asyncio

from tailrace.broker.ports import MetadataStore

_BLOCK = 1000


class ProducerIds:
    """Hands out ids."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._next = self._end = 0
        self._reserving = asyncio.Lock()

    async def take(self) -> int:
        """The next one."""
        while (taken := self.take_nowait()) is None:
            await self.fill()
        return taken

    def take_nowait(self) -> int | None:
        """The next one, if one is reserved."""
        if self._next == self._end:
            return None
        taken = self._next
        self._next += 1
        return taken

    async def fill(self) -> None:
        """Return when at least one is reserved."""
        async with self._reserving:
            if self._next == self._end:
                first = await self._metadata.reserve_producer_ids(_BLOCK)
                self._next, self._end = first, first + _BLOCK
