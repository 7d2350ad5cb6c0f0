"""What a load needs of a broker: one topic with one subscription, as an asyncio client offers them.

The loads know nothing else, so they are the same for every broker that has a `Messaging`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Handler = Callable[[bytes], None]


class Messaging(Protocol):
    """One connection to one broker (a pool, where the client has one), used by one event loop."""

    batch: int
    """How many messages one call of `publish` carries: 1, or more where batches are the client's best."""

    async def open(self) -> None:
        """Connect."""

    async def create(self) -> None:
        """Make the topic and its subscription, both empty."""

    async def publish(self, body: bytes) -> None:
        """Publish the body, `batch` times; returns once the broker has confirmed that."""

    async def subscribe(self, handler: Handler, *, prefetch: int) -> None:
        """Deliver to the handler, and acknowledge what it returned from; at most `prefetch` are not yet."""

    async def unsubscribe(self) -> None:
        """Deliver no more. What was handled is acknowledged."""

    async def count_unacknowledged(self) -> int:
        """Messages of the subscription that the broker still holds, delivered or not."""

    async def remove(self) -> None:
        """Delete subscription and topic."""

    async def close(self) -> None:
        """Disconnect."""
