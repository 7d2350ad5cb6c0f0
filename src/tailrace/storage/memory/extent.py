"""What a read of the memory engine hands out: views of batches, joined where they are small.

An extent holds on to the views themselves, so eviction, truncation and closing do not disturb a reader.
"""

from __future__ import annotations

from collections.abc import Sequence


class MemoryExtent:
    """A run of whole batches in memory."""

    __slots__ = ("_views", "size")

    def __init__(self, views: Sequence[memoryview], size: int) -> None:
        self._views = views
        self.size = size

    def __repr__(self) -> str:
        return f"<MemoryExtent {len(self._views)} batches, {self.size} bytes>"

    def load_nowait(self) -> memoryview:
        """The bytes: a lone batch as it lies in the ring, several as one copy."""
        views = self._views
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    async def load(self) -> memoryview:
        return self.load_nowait()

    def release(self) -> None:
        """Nothing to give back: the buffers are the ring's, or collected with the view."""
