"""Turns of the event loop that others get while something is done: one number for each, in a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def counted_turns() -> AsyncIterator[list[int]]:
    """Count the turns of another task while the block runs."""
    turns: list[int] = []

    async def count() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield turns
    finally:
        counting.cancel()
