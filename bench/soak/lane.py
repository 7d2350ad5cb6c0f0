"""A producer on one connection: prebuilt requests, sent when they are due, with a bound on what is in flight.

A latency runs from handing a request to the socket to its acknowledgement. Every acknowledgement is counted,
because at the end the log must hold exactly what was acknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import cast

from bench.soak.pace import Pace
from tailrace.bench.wire import LoadError, Reader, Ring

_TIMER_S = 0.001  # the resolution of the loop's timers


class Lane(asyncio.Protocol):
    """One connection; `fail` is told why it cannot go on."""

    def __init__(
        self, *, ring: Ring, reader: Reader, in_flight: int, pace: Pace, fail: Callable[[str], None]
    ) -> None:
        if not 0 < in_flight <= ring.count:
            raise ValueError(f"{in_flight} in flight of a ring of {ring.count}")
        self._ring, self._reader, self._pace, self._fail = ring, reader, pace, fail
        self._in_flight = in_flight
        self._view = memoryview(ring.data)
        self._place = 0  # the request that is sent next
        self._rest = b""
        self._sent_ns: deque[int] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._drained = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.acknowledged = 0
        self.latencies_ns: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._drained.is_set():
            self._end(f"a producer's connection ended: {error or 'the broker closed it'}")

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        try:
            replies, used = self._reader.feed(memoryview(data))
            if replies > len(self._sent_ns):
                raise LoadError(f"{replies} replies to {len(self._sent_ns)} requests")
        except LoadError as error:
            self._end(f"a producer: {error}")
            return
        self._rest = data[used:]
        now_ns = time.monotonic_ns()
        for _ in range(replies):
            self.latencies_ns.append(now_ns - self._sent_ns.popleft())
        self.acknowledged += replies
        if self._stopped:
            self._note_drained()
        else:
            self.pump()

    def pump(self) -> None:
        """Send what is due, and come back when the next is; a full window waits for a reply instead."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped:
            return
        now_ns = time.monotonic_ns()  # the loop's own time is told in whole milliseconds
        now_s = now_ns / 1e9
        count = self._pace.take(now_s, room=self._in_flight - len(self._sent_ns))
        if count:
            self._sent_ns.extend([now_ns] * count)
            self._send(count)
        next_s = self._pace.next_s()
        if next_s is not None and len(self._sent_ns) < self._in_flight:
            self._timer = self._loop.call_later(max(next_s - now_s, _TIMER_S), self.pump)

    def stop(self) -> None:
        """Send no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._note_drained()

    async def wait_drained(self) -> None:
        """Until everything that was sent is acknowledged, or never will be."""
        await self._drained.wait()

    def close(self) -> None:
        self._drained.set()
        self._transport.close()

    def _send(self, count: int) -> None:
        size, places = self._ring.request_bytes, self._ring.count
        while count:
            run = min(count, places - self._place)
            self._transport.write(self._view[self._place * size : (self._place + run) * size])
            self._place = (self._place + run) % places
            count -= run

    def _note_drained(self) -> None:
        if not self._sent_ns:
            self._drained.set()

    def _end(self, why: str) -> None:
        self._stopped = True
        self._drained.set()
        self._transport.abort()
        self._fail(why)
