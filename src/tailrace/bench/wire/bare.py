"""The least that a broker could do with Produce: find the end of each request and send a reply made
beforehand.

What the driver reaches against it is the driver's own limit. `python -m tailrace.bench.wire.bare` serves on a
free port of the loopback address, prints the port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from typing import cast

from tailrace.bench.wire.kafka import PRODUCE_VERSION
from tailrace.wire.kafka import PRODUCE, ProduceResult, write_produce_response, write_response_head

TOPIC = "bench-part0"
"""The one topic that it answers for, partition 0 of it."""

_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ihhi")  # with the API and its version in between


class BareHandler(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, topic: str = TOPIC) -> None:
        body = write_produce_response(PRODUCE_VERSION, [(topic, [ProduceResult(0, 0, 0, -1, 0)])])
        head = write_response_head(PRODUCE, PRODUCE_VERSION, 0, len(body))
        self._before, self._behind = head[:4], head[8:] + body  # around the correlation id
        self._buffer = bytearray(1 << 20)
        self._filled = 0
        self._missing = 0  # bytes of a request whose head has been seen
        self._pending = b""  # its reply

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        end = self._filled + nbytes
        at = min(self._missing, end)
        self._missing -= at
        replies = []
        if self._pending and not self._missing:
            replies.append(self._pending)
            self._pending = b""
        while end - at >= _SIZE_AND_CORRELATION.size and not self._missing:
            size, _, _, correlation_id = _SIZE_AND_CORRELATION.unpack_from(self._buffer, at)
            reply = self._before + _SIZE.pack(correlation_id) + self._behind
            if at + 4 + size <= end:
                replies.append(reply)
                at += 4 + size
            else:
                self._missing = at + 4 + size - end
                self._pending = reply
                at = end
        self._buffer[: end - at] = self._buffer[at:end]
        self._filled = end - at
        if replies:
            self._transport.write(b"".join(replies))


async def serve() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(BareHandler, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(serve())


if __name__ == "__main__":
    main()
