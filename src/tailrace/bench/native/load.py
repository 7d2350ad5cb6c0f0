"""The loads of native messaging, over anything that is a `Messaging`.

publish      so many publishes in flight, each awaited; with one in flight it is the wait of a single one
deliver      drains what was published before, every message acknowledged, until all came or time is up
end_to_end   publishes at a fixed rate, each timed from the call of publish to the call of the handler

The rate of `end_to_end` does not depend on the answers: a broker that stalls finds all that became due
meanwhile in its way. The event loop's timers are a millisecond coarse, which is not the broker's doing: the
clock of a message starts with the call. Publisher and handler share a process and so a clock.
"""

from __future__ import annotations

import asyncio
import struct
import time
from array import array
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tailrace.bench.native.messaging import Messaging
from tailrace.bench.wire.driver import LaneResult, Outcome, Window
from tailrace.bench.wire.latency import percentiles
from tailrace.bench.wire.reader import LoadError

IN_FLIGHT = 200
PREFETCH = 200
PER_S = 1_000
BODY_BYTES = 100

SILENCE_S = 30.0
"""A broker that gives no sign for so long has failed."""

_SENT = struct.Struct(">Q")
_TICK_S = 0.001  # uvloop rounds to whole milliseconds, and would spin on less
_LOOK_EVERY = 64  # deliveries, at the clock
_SETTLE_S = 5.0
_CANCEL_S = 5.0
_SETTLE_POLL_S = 0.02
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a load of publishes saw, and how many messages there are now, warm-up included."""

    outcome: Outcome
    total: int


async def publish(
    messaging: Messaging, window: Window, *, in_flight: int = IN_FLIGHT, body_bytes: int = BODY_BYTES
) -> Published:
    """Keep so many messages on their way; LoadError if the broker falls silent, its own error if it fails."""
    latencies = array("Q")
    closed = False
    body = bytes(body_bytes)

    async def work() -> None:
        call, note, clock = messaging.publish, latencies.append, time.monotonic_ns
        while not closed:
            began_ns = clock()
            await call(body)
            note(clock() - began_ns)

    workers = [asyncio.create_task(work()) for _ in range(max(in_flight // messaging.batch, 1))]
    try:
        await _wait_working(workers, window.warm_s)
        watch, first = _Watch(window), len(latencies)
        await _wait_working(workers, window.seconds)
        last = len(latencies)
        watch.stop()
        closed = True
        await _wait_silent(workers)
    finally:
        closed = True
        await _end(workers)
    seen = latencies[first:last]
    if not seen:
        raise LoadError(f"no publish was confirmed within {window.seconds:g} s")
    count = len(seen) * messaging.batch
    lane = LaneResult(replies=count, payload_bytes=count * body_bytes, latency=percentiles(seen))
    return Published(outcome=watch.outcome(lane), total=len(latencies) * messaging.batch)


async def deliver(messaging: Messaging, window: Window, *, count: int, prefetch: int = PREFETCH) -> Outcome:
    """Drain so many messages that wait, or as many as come within the window.

    The clock starts with the first one. If all came, none may be left unacknowledged.
    """
    drain = _Drain(window, count)
    await messaging.subscribe(drain.handle, prefetch=prefetch)
    await _wait_growing(drain.done, lambda: drain.seen, f"of {count} messages came")
    seen = drain.seen
    await messaging.unsubscribe()
    if seen >= count:
        await _wait_acknowledged(messaging)
    lane = LaneResult(replies=max(drain.counted, 1), payload_bytes=drain.counted_bytes, latency=None)
    assert drain.watch is not None
    return drain.watch.outcome(lane)


class _Drain:
    """Counts what is handled, and says when it is enough."""

    def __init__(self, window: Window, count: int) -> None:
        self.watch: _Watch | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.seen = 0
        self.counted = 0  # but for the first, with which the clock starts
        self.counted_bytes = 0
        self._window = window
        self._count = count
        self._end_ns = 0

    def handle(self, body: bytes) -> None:
        self.seen += 1
        if self.watch is None:
            self.watch = _Watch(self._window)
            self._end_ns = self.watch.began_ns + int(self._window.seconds * _NS)
            if self._count > 1:
                return
        if self.done.done():
            return
        self.counted += 1
        self.counted_bytes += len(body)
        if self.seen >= self._count or (self.seen % _LOOK_EVERY == 0 and time.monotonic_ns() >= self._end_ns):
            self.watch.stop()
            self.done.set_result(None)


async def end_to_end(
    publishing: Messaging,
    receiving: Messaging,
    window: Window,
    *,
    per_s: int = PER_S,
    body_bytes: int = BODY_BYTES,
) -> Outcome:
    """Messages at a fixed rate from one connection to the other."""
    warm, counted = int(per_s * window.warm_s), max(int(per_s * window.seconds), 1)
    latencies = array("Q")
    all_came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    watch: _Watch | None = None

    def handle(body: bytes) -> None:
        latencies.append(time.monotonic_ns() - _SENT.unpack_from(body)[0])
        if len(latencies) == warm + counted:
            all_came.set_result(None)

    async def send() -> None:
        await publishing.publish(_SENT.pack(time.monotonic_ns()) + rest)

    def opened() -> None:
        nonlocal watch
        watch = _Watch(window)

    rest = bytes(max(body_bytes - _SENT.size, 0))
    await receiving.subscribe(handle, prefetch=PREFETCH)
    confirmed = await _emit(send, per_s=per_s, total=warm + counted, opens_at=warm, opened=opened)
    assert watch is not None
    watch.stop()
    await _wait_growing(all_came, lambda: len(latencies), f"of {warm + counted} messages came")
    await _wait_silent(confirmed)
    await receiving.unsubscribe()
    lane = LaneResult(
        replies=counted,
        payload_bytes=counted * body_bytes,
        latency=percentiles(latencies[warm : warm + counted]),
    )
    return watch.outcome(lane)


async def _emit(
    send: Callable[[], Coroutine[Any, Any, None]],
    *,
    per_s: int,
    total: int,
    opens_at: int,
    opened: Callable[[], None],
) -> list[asyncio.Task[None]]:
    """Start a send whenever one is due; those that are not confirmed yet come back."""
    waiting: set[asyncio.Task[None]] = set()
    failed: list[asyncio.Task[None]] = []

    def finished(task: asyncio.Task[None]) -> None:
        waiting.discard(task)
        if task.cancelled() or task.exception() is not None:
            failed.append(task)

    loop = asyncio.get_running_loop()
    began_s, sent = loop.time(), 0
    while sent < total and not failed:
        due = min(int((loop.time() - began_s) * per_s) + 1, total)
        while sent < due:
            if sent == opens_at:
                opened()
            task = asyncio.create_task(send())
            waiting.add(task)
            task.add_done_callback(finished)
            sent += 1
        await asyncio.sleep(max(began_s + sent / per_s - loop.time(), _TICK_S))
    for task in failed:
        await task  # to raise what it failed with
    return list(waiting)


# ---- the window


class _Watch:
    """From the opening of the window to its end: the time, and the processor time of this process."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._seconds = self._cpu_s = 0.0
        window.mark()  # looks at the broker's processes, which takes a while: not on the clock
        self._began_cpu_s = time.process_time()
        self.began_ns = time.monotonic_ns()

    def stop(self) -> None:
        self._seconds = max((time.monotonic_ns() - self.began_ns) / _NS, 1e-9)
        self._cpu_s = time.process_time() - self._began_cpu_s
        self._window.mark()

    def outcome(self, lane: LaneResult) -> Outcome:
        assert self._seconds, "the window is still open"
        return Outcome(seconds=self._seconds, driver_cpu_s=self._cpu_s, lanes={"": lane})


# ---- waiting


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel what still runs, and wait a little: a foreign client may not hear it at once."""
    for task in tasks:
        task.cancel()
    done, _ = await asyncio.wait(tasks, timeout=_CANCEL_S)
    for task in done:
        if not task.cancelled():
            task.exception()  # the first failure is told, the others are the same


async def _wait_working(workers: list[asyncio.Task[None]], seconds: float) -> None:
    """Let them work for so long; one that ends meanwhile has failed."""
    done, _ = await asyncio.wait(workers, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for worker in done:
        await worker


async def _wait_silent(tasks: list[asyncio.Task[None]]) -> None:
    """Until all have ended; LoadError if that takes as long as silence."""
    if not tasks:
        return
    done, waiting = await asyncio.wait(tasks, timeout=SILENCE_S)
    for task in done:
        await task
    if waiting:
        raise LoadError(f"{len(waiting)} publishes were not confirmed within {SILENCE_S:.0f} s")


async def _wait_growing(done: asyncio.Future[None], count: Callable[[], int], what: str) -> None:
    """Until it is done; LoadError if the count stands still for as long as silence."""
    while not done.done():
        before = count()
        await asyncio.wait([done], timeout=SILENCE_S)
        if not done.done() and count() == before:
            raise LoadError(f"{before} {what}, and then none for {SILENCE_S:.0f} s")


async def _wait_acknowledged(messaging: Messaging) -> None:
    """Some brokers are told and do not answer, so they are asked until they know."""
    deadline_s = time.monotonic() + _SETTLE_S
    while left := await messaging.count_unacknowledged():
        if time.monotonic() > deadline_s:
            raise LoadError(f"{left} messages were delivered, and the broker has no acknowledgement of them")
        await asyncio.sleep(_SETTLE_POLL_S)  # another program's bookkeeping has no event to wait for
