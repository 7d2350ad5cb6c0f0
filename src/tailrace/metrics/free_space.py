"""Space left where the logs are, as it was when somebody last asked.

Asking may wait for a disk. So the sampler asks in a thread from time to time, and whoever shows the figure
shows what it found.
"""

from __future__ import annotations

import asyncio
import os


class FreeSpace:
    """The file system of one data directory."""

    __slots__ = ("_data_dir", "newest_bytes")

    def __init__(self, data_dir: str = "") -> None:
        self._data_dir = data_dir  # "": everything is in memory
        self.newest_bytes: int | None = None  # None: in memory, nobody can tell, or nobody has asked yet

    def __repr__(self) -> str:
        return f"<FreeSpace {self.newest_bytes} bytes in {self._data_dir or 'memory'}>"

    def read_bytes(self) -> int | None:
        """Ask the file system; blocks."""
        if not self._data_dir:
            return None
        try:
            state = os.statvfs(self._data_dir)
        except OSError:
            return None
        return state.f_bavail * state.f_frsize

    async def refresh(self) -> int | None:
        """Ask in a thread."""
        if self._data_dir:
            self.newest_bytes = await asyncio.to_thread(self.read_bytes)
        return self.newest_bytes
