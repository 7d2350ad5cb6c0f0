"""What the clients of a node have not read: answers and messages that wait in our memory. One bound for all.

Every listener stops writing to a client that does not read, so one connection holds little: a piece of a
fetch (Kafka), one answer (HTTP), `out_buffer_bytes_max` (native). Very many connections hold much, and no
client can be made to read. So a connection with more than WATERMARK_BYTES unread is known here, and over
`bytes_max` the connection that has not read anything for longest is closed, until the rest is within it.

A client that reads, however slowly, comes before those that do not, and one that keeps up is not known here.
Each listener notes its own connections (`ListenerUnread`), so that its bytes can be shown.
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


class ListenerUnread:
    """What the clients of one listener have not read; part of the node's."""

    __slots__ = ("bytes", "node")

    def __init__(self, node: UnreadBytes) -> None:
        self.node = node
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<ListenerUnread {self.bytes} bytes of {self.node}>"

    def note(self, reader: Reader, size: int) -> None:
        """`size` bytes wait for this client now; less than before means that it has read some."""
        self.node.note(reader, size, self)

    def forget(self, reader: Reader) -> None:
        """The client has read what waited for it, or is gone."""
        self.node.forget(reader)


class UnreadBytes:
    """The connections of a node that have much unread, and how much that is in all."""

    __slots__ = ("_known", "bytes", "bytes_max", "closed")

    def __init__(self, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.closed = 0  # connections that were closed for it
        self._known: dict[Reader, tuple[int, ListenerUnread]] = {}  # who has read nothing for longest first

    def __repr__(self) -> str:
        return f"<UnreadBytes {self.bytes} of {self.bytes_max} bytes, {len(self._known)} connections>"

    def note(self, reader: Reader, size: int, listener: ListenerUnread) -> None:
        """`size` bytes wait for a client of this listener now."""
        before, _ = self._known.get(reader, (0, listener))
        if size < before:
            del self._known[reader]
        if size:
            self._known[reader] = size, listener
        self._add(size - before, listener)
        if self.bytes > self.bytes_max:
            self._shed()

    def forget(self, reader: Reader) -> None:
        """The client has read what waited for it, or is gone."""
        known = self._known.pop(reader, None)
        if known is not None:
            size, listener = known
            self._add(-size, listener)

    def _add(self, size: int, listener: ListenerUnread) -> None:
        self.bytes += size
        listener.bytes += size

    def _shed(self) -> None:
        """Close connections, the one that has read nothing for longest first."""
        for reader, (known, listener) in list(self._known.items()):
            if self.bytes <= self.bytes_max:
                return
            now = reader.buffered_bytes
            self.forget(reader)
            if now < known:  # it has read meanwhile, and comes after those that have not
                self._known[reader] = now, listener
                self._add(now, listener)
                continue
            self.closed += 1
            logger.info("connection closed: the client does not read, and the node has no room: %s", reader)
            # By way of the loop: this is called in the middle of a connection's write.
            asyncio.get_running_loop().call_soon(reader.close_unread)
