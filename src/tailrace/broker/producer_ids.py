"""Ids for idempotent producers: unique for the life of the cluster.

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
        async with self._reserving:
            if self._next == self._end:
                self._next = await self._metadata.reserve_producer_ids(_BLOCK)
                self._end = self._next + _BLOCK
            taken = self._next
            self._next += 1
            return taken
