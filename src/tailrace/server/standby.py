"""What a process that stands by answers: that it is alive, and not ready.

It has no data to serve and knows no users yet, so it opens no listener but this one, on the address of the
HTTP listener, which gets the address when it takes over. Where another program has the address (the broker
that serves now, on the same machine) it goes without.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final

from tailrace.server.listener import ListenerConfig

logger = logging.getLogger(__name__)

_HEAD_BYTES_MAX: Final = 8192
_CONNECTIONS_MAX: Final = 64
_DEADLINE_S: Final = 5.0


class StandbyListener:
    """Answers /health and /health/ready, and 503 to everything else."""

    def __init__(self, config: ListenerConfig) -> None:
        self._config = config
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def port(self) -> int | None:
        """The port that was bound; None if none could be."""
        if self._server is None or not self._server.sockets:
            return None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        address = self._config.address
        try:
            self._server = await asyncio.start_server(
                self._serve, address.host, address.port, limit=_HEAD_BYTES_MAX
            )
        except OSError as error:
            logger.warning("standing by without health on %s: %s", address, error.strerror or error)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_DEADLINE_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer(head))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that sends no request gets no answer
        finally:
            self._open -= 1
            writer.close()


def answer(head: bytes) -> bytes:
    """The reply to the head of a request; the connection ends behind it."""
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    alive = path == b"/health" and method in (b"GET", b"HEAD")
    status = "200 OK" if alive else "503 Service Unavailable"
    body = json.dumps({"status": "standby", "reason": "another broker serves this database"}).encode()
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == b"HEAD" else body)
