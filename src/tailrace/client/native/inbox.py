"""Messages that were delivered and that nobody has begun with, for workers in the event loop.

The broker bounds it: it delivers no more than the prefetch before some are settled. Should a broker deliver
more, the oldest are dropped; they were not settled, and come again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar

from tailrace.client.native.message import AsyncMessage

T = TypeVar("T")


class Inbox(Protocol):
    """Where a subscription puts what is delivered to it."""

    def put(self, message: AsyncMessage) -> AsyncMessage | None:
        """Add a message; what had to be dropped for it."""

    def clear(self) -> list[AsyncMessage]:
        """Drop everything that nobody has begun with."""

    def close(self) -> None:
        """Let everybody who waits know that there will be nothing more."""


def inbox_size(prefetch: int) -> int:
    """How many messages may wait: twice what was asked for, as a lowered prefetch takes a while to arrive."""
    return 2 * prefetch + 100


class AsyncInbox(Generic[T]):
    """For tasks: `get` waits in the event loop."""

    __slots__ = ("_getters", "_is_closed", "_messages", "size_max")

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._messages: deque[T] = deque()
        self._getters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: T) -> T | None:
        """Add a message; what had to be dropped for it."""
        self._messages.append(message)
        self._wake_one()
        return self._messages.popleft() if len(self._messages) > self.size_max else None

    async def get(self) -> T | None:
        """The next message, as soon as there is one; None once it is closed."""
        while not self._messages:
            if self._is_closed:
                return None
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if not getter.cancelled() and self._messages:
                    self._wake_one()  # it was called for a message that somebody else must take now
                raise
        return self._messages.popleft()

    def clear(self) -> list[T]:
        """Drop everything that nobody has begun with."""
        dropped = list(self._messages)
        self._messages.clear()
        return dropped

    def close(self) -> None:
        """Drop everything, and let everybody who waits know that there will be nothing more."""
        self._is_closed = True
        self._messages.clear()
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)
        self._getters.clear()

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
