"""What a WebSocket of the native protocol needs of the native listener, which is not imported here."""

from __future__ import annotations

from typing import Protocol

from tailrace.net import ConnectionFacts


class MessageSocket(Protocol):
    """A WebSocket, as the native listener sees it."""

    @property
    def facts(self) -> ConnectionFacts:
        """Who talks to whom."""

    async def receive(self) -> bytes | str | None:
        """The next message; None once the client has left."""

    async def send(self, message: bytes | str) -> None:
        """Waits while the client does not read; ConnectionError if it has left."""

    async def close(self, code: int, reason: str) -> None:
        """End it with a code of RFC 6455 section 7.4."""


class NativeShell(Protocol):
    """One client of the native listener that came by WebSocket."""

    async def serve(self) -> None:
        """Returns when it is over."""

    def close_soon(self) -> None:
        """Take nothing more; close when the replies under way have left."""
