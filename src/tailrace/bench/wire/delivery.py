"""How long a record takes from one client to another, through the broker.

    producer --Produce--> broker --Fetch--> consumer        one process, one thread, one clock

Record n is due n / rate seconds after the start, and its latency is the time from then until the consumer
has read it: a broker that stalls is not spared the records that had to wait for their turn. As ordinary
producers do, this one keeps a few requests in flight, and sends what becomes due meanwhile as one batch. The
consumer always has a fetch waiting at the broker. Nobody else writes to the partition, so an offset tells
which record it is, and nothing is kept per record but its latency.
"""

from __future__ import annotations

import gc
import selectors
import socket
import struct
import time
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.bench.wire.driver import LaneResult, Outcome, Window
from tailrace.bench.wire.kafka import CLIENT_ID, FETCH_VERSION, PRODUCE_VERSION
from tailrace.bench.wire.latency import percentiles
from tailrace.bench.wire.reader import LoadError
from tailrace.model import ErrorCode, ProtocolError
from tailrace.records import BatchError, build_batch, iter_batches
from tailrace.wire.kafka import (
    FETCH,
    PRODUCE,
    FetchPartition,
    read_fetch_response,
    read_produce_response,
    read_response_head,
    write_fetch_request,
    write_produce_request,
    write_request,
)

_IN_FLIGHT_MAX = 5
_BATCH_BYTES = 900_000  # below what brokers take by default
_FETCH_BYTES = 1 << 20
_FETCH_WAIT_MS = 500
_REPLY_BYTES_MAX = 1 << 24
_RECEIVE_BYTES = 1 << 16
_TIMEOUT_MS = 30_000
_SILENCE_NS = 30 * 10**9
_NS = 10**9
_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which partition the records go through, from where on, how many a second, and how large."""

    topic: str
    partition: int
    first_offset: int
    per_s: int
    record_bytes: int
    acks: int = -1


def deliver(producer: socket.socket, consumer: socket.socket, *, route: Route, window: Window) -> Outcome:
    """Run the load over two open connections; LoadError if the broker refuses, closes or falls silent."""
    delivery = _Delivery(_Line(producer), _Line(consumer), route, window)
    collecting = gc.isenabled()
    gc.disable()  # a collection would be seen as the broker's latency
    try:
        # Not epoll, which sleeps in whole milliseconds: as long as the pause between two records.
        with selectors.SelectSelector() as selector:
            return _run(delivery, selector, window)
    finally:
        if collecting:
            gc.enable()


def _run(delivery: _Delivery, selector: selectors.BaseSelector, window: Window) -> Outcome:
    delivery.start(selector)
    opens_ns = delivery.start_ns + int(window.warm_s * _NS)
    delivery.turn_until(opens_ns)
    window.mark()
    opened_at, began_cpu, began_ns = len(delivery.latencies), time.process_time(), time.monotonic_ns()
    delivery.turn_until(began_ns + int(window.seconds * _NS))
    seen = delivery.latencies[opened_at:]
    seconds, cpu_s = (time.monotonic_ns() - began_ns) / _NS, time.process_time() - began_cpu
    window.mark()
    delivery.drain()
    result = LaneResult(
        replies=len(seen), payload_bytes=len(seen) * delivery.route.record_bytes, latency=percentiles(seen)
    )
    return Outcome(seconds=seconds, driver_cpu_s=cpu_s, lanes={"": result})


class _Delivery:
    """Both ends while they run."""

    __slots__ = (
        "_batch_records_max",
        "_consumer",
        "_correlation_id",
        "_in_flight",
        "_interval_ns",
        "_last_ns",
        "_next_offset",
        "_producer",
        "_selector",
        "_sent",
        "_value",
        "_window",
        "latencies",
        "route",
        "start_ns",
    )

    def __init__(self, producer: _Line, consumer: _Line, route: Route, window: Window) -> None:
        self.route = route
        self._window = window
        self.latencies = array("Q")
        self.start_ns = 0  # when record 0 is due
        self._producer = producer
        self._consumer = consumer
        self._interval_ns = _NS // route.per_s
        self._batch_records_max = max(_BATCH_BYTES // (route.record_bytes + 20), 1)
        self._value = bytes(route.record_bytes)
        self._sent = 0  # records
        self._next_offset = route.first_offset  # what the consumer asks for
        self._correlation_id = 0
        self._in_flight: deque[int] = deque()  # correlation ids of Produce
        self._last_ns = 0  # when something last arrived

    def start(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        for line in (self._producer, self._consumer):
            selector.register(line.sock, selectors.EVENT_READ, line)
        self._fetch()
        self.start_ns = self._last_ns = time.monotonic_ns()

    def turn_until(self, end_ns: int) -> None:
        """Send what becomes due, and take what arrives, up to a moment."""
        while (now_ns := time.monotonic_ns()) < end_ns:
            wake_ns = self._produce_due(now_ns)
            self._turn(max(min(wake_ns, end_ns) - time.monotonic_ns(), 0) / _NS)

    def drain(self) -> None:
        """Wait for all that was sent: nothing is cut off in the middle of the broker's work."""
        while self._in_flight or self._next_offset < self.route.first_offset + self._sent:
            self._turn(0.05)

    def _turn(self, seconds: float) -> None:
        self._window.check()
        for key, mask in self._selector.select(seconds):
            line: _Line = key.data
            if mask & selectors.EVENT_WRITE:
                self._flush(line)
            if mask & selectors.EVENT_READ:
                for frame in line.receive():
                    self._take(line, frame)
        if time.monotonic_ns() - self._last_ns > _SILENCE_NS:
            raise LoadError(f"no record has arrived for {_SILENCE_NS // _NS} s")

    # ---- producer

    def _produce_due(self, now_ns: int) -> int:
        """Send the records that are due, if there is room; when to come back."""
        due = (now_ns - self.start_ns) // self._interval_ns + 1 - self._sent
        if len(self._in_flight) >= _IN_FLIGHT_MAX:
            return now_ns + _NS  # an answer wakes us
        if due > 0:
            self._produce(min(due, self._batch_records_max))
        return self.start_ns + self._sent * self._interval_ns

    def _produce(self, count: int) -> None:
        record = (time.time_ns() // 1_000_000, None, self._value, ())
        batch = build_batch([record] * count)
        route = self.route
        body = write_produce_request(
            PRODUCE_VERSION,
            transactional_id=None,
            acks=route.acks,
            timeout_ms=_TIMEOUT_MS,
            topics={route.topic: {route.partition: batch}},
        )
        self._in_flight.append(self._send(self._producer, PRODUCE, PRODUCE_VERSION, b"".join(body)))
        self._sent += count

    # ---- consumer

    def _fetch(self) -> None:
        where = FetchPartition(self.route.partition, -1, self._next_offset, -1, -1, _FETCH_BYTES)
        body = write_fetch_request(
            FETCH_VERSION,
            topics={self.route.topic: [where]},
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
        )
        self._send(self._consumer, FETCH, FETCH_VERSION, body)

    def _arrive(self, records: memoryview, now_ns: int) -> None:
        """Note the latency of every record that is new."""
        first, start_ns, interval_ns = self.route.first_offset, self.start_ns, self._interval_ns
        try:
            for batch in iter_batches(records):
                for offset in range(max(batch.base_offset, self._next_offset), batch.next_offset):
                    self.latencies.append(max(now_ns - start_ns - (offset - first) * interval_ns, 0))
                self._next_offset = max(self._next_offset, batch.next_offset)
        except BatchError:
            pass  # the last batch of a reply may be cut off: it is asked for again
        if self._next_offset > first + self._sent:
            raise LoadError(f"{self.route.topic} has records that we did not send")

    # ---- both

    def _send(self, line: _Line, key: int, version: int, body: bytes) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        line.queue(write_request(key, version, self._correlation_id, CLIENT_ID, body))
        self._flush(line)
        return self._correlation_id

    def _flush(self, line: _Line) -> None:
        waits = line.flush()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waits else 0)
        if self._selector.get_key(line.sock).events != events:
            self._selector.modify(line.sock, events, line)

    def _take(self, line: _Line, frame: memoryview) -> None:
        now_ns = time.monotonic_ns()
        try:
            if line is self._producer:
                self._take_produced(frame)
            else:
                self._take_fetched(frame, now_ns)
        except (ProtocolError, IndexError) as error:
            raise LoadError(f"a reply makes no sense: {error}") from error

    def _take_produced(self, frame: memoryview) -> None:
        correlation_id, body = read_response_head(PRODUCE, PRODUCE_VERSION, frame)
        if not self._in_flight or correlation_id != self._in_flight.popleft():
            raise LoadError(f"correlation id {correlation_id} is not the one that is due")
        _check(read_produce_response(body, PRODUCE_VERSION).topics[0][1][0].error_code)

    def _take_fetched(self, frame: memoryview, now_ns: int) -> None:
        reply = read_fetch_response(read_response_head(FETCH, FETCH_VERSION, frame)[1], FETCH_VERSION)
        _check(reply.error_code)
        (result,) = reply.topics[0][1]
        _check(result.error_code)
        if result.records:
            self._last_ns = now_ns
            self._arrive(result.records, now_ns)
        self._fetch()


def _check(code: int) -> None:
    if code:
        name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else "unknown"
        raise LoadError(f"the broker answered with error {code} ({name})")


class _Line:
    """A connection that never blocks: whole requests in, whole replies out."""

    __slots__ = ("_arrived", "_unsent", "sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._unsent = bytearray()
        self._arrived = bytearray()

    def queue(self, request: bytes) -> None:
        self._unsent += request

    def flush(self) -> bool:
        """Hand over as much as the socket takes; whether something is left."""
        while self._unsent:
            try:
                sent = self.sock.send(self._unsent)
            except BlockingIOError:
                return True
            except OSError as error:
                raise LoadError(f"the connection broke: {error}") from error
            del self._unsent[:sent]
        return False

    def receive(self) -> Iterator[memoryview]:
        """The replies that are complete now, without their sizes."""
        try:
            piece = self.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise LoadError(f"the connection broke: {error}") from error
        if not piece:
            raise LoadError("the peer closed the connection")
        self._arrived += piece
        while len(self._arrived) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._arrived)
            if not _SIZE.size <= size <= _REPLY_BYTES_MAX:
                raise LoadError(f"a reply of {size} bytes")
            end = _SIZE.size + size
            if len(self._arrived) < end:
                return
            frame = memoryview(bytes(self._arrived[_SIZE.size : end]))
            del self._arrived[:end]
            yield frame
