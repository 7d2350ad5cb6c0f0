"""Who is waiting for a partition to move.

A fetch that finds too little, and later a push with nothing to push, leaves a callback with every partition
it looks at. It is called in the loop when the high watermark moved, the leader changed or the topic went, and
looks for itself; being called for nothing is normal. Nobody polls.
"""

from __future__ import annotations

from collections.abc import Callable

Callback = Callable[[], None]


class Waiters:
    """The callbacks of one partition, in the order in which they came."""

    __slots__ = ("callbacks",)

    def __init__(self) -> None:
        self.callbacks: dict[Callback, None] = {}

    def __len__(self) -> int:
        return len(self.callbacks)

    def add(self, callback: Callback) -> None:
        self.callbacks[callback] = None

    def discard(self, callback: Callback) -> None:
        self.callbacks.pop(callback, None)

    def wake(self) -> None:
        """Call everybody; who is satisfied takes himself off."""
        for callback in list(self.callbacks):
            callback()
