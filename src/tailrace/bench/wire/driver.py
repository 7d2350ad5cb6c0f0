"""Sends rings over many connections with a window each, and times every reply.

A closed loop: a connection keeps its window full and sends the next request when a reply has come. A latency
is the time from handing a request to the socket to reading the last byte of its reply; replies come in the
order of the requests. Figures count from the end of the warm-up to the end of the window; what is still in
flight then is drained, so that nothing is cut off in the middle of the peer's work.

One thread, plain non-blocking sockets, one preallocated buffer for reading: what it costs itself is in the
result, and `bare` shows how far it reaches.
"""

from __future__ import annotations

import gc
import selectors
import socket
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailrace.bench.wire.latency import Percentiles, percentiles
from tailrace.bench.wire.reader import LoadError, Reader
from tailrace.bench.wire.ring import Ring

_BUFFER_BYTES = 1 << 20
_SILENCE_S = 30.0
_NS = 1_000_000_000


@dataclass(slots=True, kw_only=True)
class Lane:
    """One connection that is set up and ready, what it sends, and how much of it at a time.

    Lanes of one name share their figures.
    """

    sock: socket.socket
    ring: Ring
    reader: Reader
    in_flight: int
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How long. `mark` is called as the window opens and as it closes, to look at the peer's processes;
    `check` at every turn, and ends the load by raising."""

    warm_s: float
    seconds: float
    mark: Callable[[], None] = lambda: None
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneResult:
    """The replies within the window, of all lanes of one name."""

    replies: int
    payload_bytes: int
    latency: Percentiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a window saw."""

    seconds: float
    driver_cpu_s: float
    lanes: dict[str, LaneResult]


def drive(lanes: Sequence[Lane], window: Window) -> Outcome:
    """Run the load; LoadError if a peer refuses, closes, or says nothing for half a minute."""
    runs = [_Run(lane) for lane in lanes]
    collecting = gc.isenabled()
    gc.disable()  # nothing here makes cycles, and a collection would be seen as the peer's latency
    try:
        with selectors.DefaultSelector() as selector:
            for run in runs:
                run.start(selector)
            clock = _Clock(window, runs)
            _turn_until(selector, clock.look, check=window.check)
            for run in runs:
                run.stop()
            _turn_until(selector, lambda _now: not any(run.waits for run in runs), check=window.check)
    finally:
        if collecting:
            gc.enable()
    return Outcome(seconds=clock.seconds, driver_cpu_s=clock.driver_cpu_s, lanes=_by_name(runs))


def _turn_until(
    selector: selectors.BaseSelector, done: Callable[[int], bool], *, check: Callable[[], None]
) -> None:
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    last_ns = time.monotonic_ns()
    while not done(time.monotonic_ns()):
        check()
        for key, mask in selector.select(0.05):
            run: _Run = key.data
            if mask & selectors.EVENT_READ and run.receive(buffer):
                last_ns = time.monotonic_ns()
            if mask & selectors.EVENT_WRITE:
                run.send()
        if time.monotonic_ns() - last_ns > _SILENCE_S * _NS:
            raise LoadError(f"no reply for {_SILENCE_S:.0f} s")


class _Clock:
    """Opens and closes the window."""

    __slots__ = (
        "_began_cpu",
        "_began_ns",
        "_close_ns",
        "_open_ns",
        "_runs",
        "_window",
        "driver_cpu_s",
        "seconds",
    )

    def __init__(self, window: Window, runs: Sequence[_Run]) -> None:
        self._window = window
        self._runs = runs
        self._open_ns = time.monotonic_ns() + int(window.warm_s * _NS)
        self._close_ns = 0  # not open yet
        self._began_ns = 0
        self._began_cpu = 0.0
        self.seconds = 0.0
        self.driver_cpu_s = 0.0

    def look(self, now_ns: int) -> bool:
        """Whether the window has closed."""
        if not self._close_ns:
            if now_ns >= self._open_ns:
                self._open()
            return False
        if now_ns < self._close_ns:
            return False
        for run in self._runs:
            run.closed_at = len(run.latencies)
        self.seconds = (time.monotonic_ns() - self._began_ns) / _NS
        self.driver_cpu_s = time.process_time() - self._began_cpu
        self._window.mark()
        return True

    def _open(self) -> None:
        self._window.mark()
        for run in self._runs:
            run.opened_at = len(run.latencies)
        self._began_cpu = time.process_time()
        self._began_ns = time.monotonic_ns()
        self._close_ns = self._began_ns + int(self._window.seconds * _NS)


class _Run:
    """A lane while it runs."""

    __slots__ = (
        "_count",
        "_next",
        "_oldest",
        "_rest",
        "_selector",
        "_sent_ns",
        "_stopped",
        "_unsent_bytes",
        "_view",
        "_writing",
        "closed_at",
        "lane",
        "latencies",
        "opened_at",
        "waits",
    )

    def __init__(self, lane: Lane) -> None:
        if not 0 < lane.in_flight <= lane.ring.count:
            raise ValueError(f"{lane.in_flight} in flight of a ring of {lane.ring.count}")
        self.lane = lane
        self.latencies = array("Q")
        self.opened_at = self.closed_at = 0
        self.waits = 0  # requests that have no reply yet
        self._view = memoryview(lane.ring.data)
        self._count = lane.ring.count
        self._sent_ns = [0] * self._count
        self._oldest = 0  # the place whose reply comes next
        self._next = 0  # the byte that is sent next
        self._unsent_bytes = 0  # of requests that count as sent, behind `_next`
        self._rest = b""
        self._writing = False
        self._stopped = False

    def start(self, selector: selectors.BaseSelector) -> None:
        """Fill the window."""
        self._selector = selector
        self.lane.sock.setblocking(False)
        selector.register(self.lane.sock, selectors.EVENT_READ, self)
        self._add(self.lane.in_flight, time.monotonic_ns())
        self.send()

    def stop(self) -> None:
        """Send no more than what has been begun."""
        self._stopped = True

    def receive(self, buffer: memoryview) -> int:
        """Take what has arrived and send as many requests as were answered; how many that is."""
        rest = len(self._rest)
        if rest:
            buffer[:rest] = self._rest
        try:
            arrived = self.lane.sock.recv_into(buffer[rest:])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LoadError(f"the connection broke: {error}") from error
        if not arrived:
            raise LoadError("the peer closed the connection")
        now_ns = time.monotonic_ns()
        replies, used = self.lane.reader.feed(buffer[: rest + arrived])
        self._rest = bytes(buffer[used : rest + arrived])
        if replies:
            self._note(replies, now_ns)
            if not self._stopped:
                self._add(replies, now_ns)
                if not self._writing:
                    self.send()
        return replies

    def _note(self, replies: int, now_ns: int) -> None:
        if replies > self.waits:
            raise LoadError(f"{replies} replies to {self.waits} requests")
        self.waits -= replies
        oldest, count, sent_ns, add = self._oldest, self._count, self._sent_ns, self.latencies.append
        for _ in range(replies):
            add(now_ns - sent_ns[oldest])
            oldest += 1
            if oldest == count:
                oldest = 0
        self._oldest = oldest

    def _add(self, requests: int, now_ns: int) -> None:
        """The next requests count as sent now: what the socket does not take at once is the peer's doing."""
        place = self._oldest + self.waits
        for each in range(place, place + requests):
            self._sent_ns[each % self._count] = now_ns
        self.waits += requests
        self._unsent_bytes += requests * self.lane.ring.request_bytes

    def send(self) -> None:
        """Hand over as much as the socket takes."""
        view, sock, total = self._view, self.lane.sock, len(self._view)
        while self._unsent_bytes:
            at = self._next
            try:
                sent = sock.send(view[at : min(at + self._unsent_bytes, total)])
            except BlockingIOError:
                break
            except OSError as error:
                raise LoadError(f"the connection broke: {error}") from error
            self._unsent_bytes -= sent
            self._next = at + sent if at + sent < total else 0
        if self._writing != bool(self._unsent_bytes):
            self._writing = bool(self._unsent_bytes)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._writing else 0)
            self._selector.modify(sock, events, self)


def _by_name(runs: Sequence[_Run]) -> dict[str, LaneResult]:
    names = dict.fromkeys(run.lane.name for run in runs)
    return {name: _result([run for run in runs if run.lane.name == name]) for name in names}


def _result(runs: Sequence[_Run]) -> LaneResult:
    seen = array("Q")
    payload_bytes = 0
    for run in runs:
        within = run.latencies[run.opened_at : run.closed_at]
        seen.extend(within)
        payload_bytes += len(within) * run.lane.ring.payload_bytes
    return LaneResult(replies=len(seen), payload_bytes=payload_bytes, latency=percentiles(seen))
