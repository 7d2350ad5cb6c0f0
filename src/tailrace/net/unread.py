"""What the clients of a node have not read: answers and messages that wait in our memory. One bound for all.

Every listener stops writing to a client that does not read, so one connection holds little: a piece of a
fetch (Kafka), one answer (HTTP), `out_buffer_bytes_max` (native). Very many connections hold much, and no
client can be made to read. So a connection with more than WATERMARK_BYTES unread is known here, and over
`bytes_max` the connection that has not read anything for longest is closed, until the rest is within it.

A client that reads, however slowly, comes before those that do not, and one that keeps up is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

logger = logging.getLogger(__name__)

UNREAD_BYTES_MAX: Final = 128 << 20
WATERMARK_BYTES: Final = 64 << 10
"""A connection with less is not known here: what each may hold uncounted."""


class Reader(Protocol):
    """A connection whose client should read."""

    @property
    def buffered_bytes(self) -> int:
        """What waits for the client in our memory."""

    def close_unread(self) -> None:
        """Close now: the client does not read, and the node has no room for what waits for it."""


class UnreadBytes:
    """The connections of a node that have much unread, and how much that is in all."""

    __slots__ = ("_sizes", "bytes", "bytes_max", "closed")

    def __init__(self, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.closed = 0  # connections that were closed for it
        self._sizes: dict[Reader, int] = {}  # the one that has read nothing for longest comes first

    def __repr__(self) -> str:
        return f"<UnreadBytes {self.bytes} of {self.bytes_max} bytes, {len(self._sizes)} connections>"

    def note(self, reader: Reader, size: int) -> None:
        """`size` bytes wait for this client now; less than before means that it has read some."""
        before = self._sizes.get(reader)
        if before is not None and size < before:
            del self._sizes[reader]
        if size:
            self._sizes[reader] = size
        self.bytes += size - (before or 0)
        if self.bytes > self.bytes_max:
            self._shed()

    def forget(self, reader: Reader) -> None:
        """The client has read what waited for it, or is gone."""
        self.bytes -= self._sizes.pop(reader, 0)

    def _shed(self) -> None:
        """Close connections, the one that has read nothing for longest first."""
        for reader in list(self._sizes):
            if self.bytes <= self.bytes_max:
                return
            known, now = self._sizes[reader], reader.buffered_bytes
            self.forget(reader)
            if now < known:  # it has read meanwhile, and comes after those that have not
                self._sizes[reader] = now
                self.bytes += now
                continue
            self.closed += 1
            logger.info("connection closed: the client does not read, and the node has no room: %s", reader)
            # By way of the loop: this is called in the middle of a connection's write.
            asyncio.get_running_loop().call_soon(reader.close_unread)
