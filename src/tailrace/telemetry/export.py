"""The task that sends what was traced and measured, every so often, and says when it cannot.

    loop                                             thread
    take a snapshot, collect families  --------->    convert, encode, post
    spans that ended                   --------->    encode, post

Only one message is on its way at a time. What is not delivered is dropped: figures are cumulative, so the
next ones make up for it, and spans are samples anyway. The log hears of the first failure and of the first
success after it, however long that takes. A thread cannot be ended from outside: one that a collector keeps
is waited for no longer than `send_timeout_s`, and no other is started beside it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

from opentelemetry.sdk.metrics.export import Metric
from prometheus_client.core import Metric as Family

from tailrace.metrics.collector import NodeCollector
from tailrace.metrics.family import PIECE_SAMPLES
from tailrace.metrics.loop_lag import LoopLag
from tailrace.metrics.observed import Observed
from tailrace.metrics.snapshot import Choices, take_snapshot
from tailrace.runtime import Supervisor, wait_at_most
from tailrace.telemetry.config import TelemetryConfig
from tailrace.telemetry.destination import Destination, NotDelivered
from tailrace.telemetry.figure import Figures, in_messages
from tailrace.telemetry.thread import start_in_thread
from tailrace.telemetry.tracing import HttpTrace, RequestTrace, SpanBuffer, create_tracer

logger = logging.getLogger(__name__)

_HTTP = "http"


class Telemetry:
    """What one node sends, from `start` to `close`."""

    def __init__(self, config: TelemetryConfig, observed: Observed, loop_lag: LoopLag) -> None:
        self._config = config
        self._observed = observed
        self._loop_lag = loop_lag
        version = observed.info.get("version", "")
        cluster = observed.broker.cluster
        self._destination = Destination(
            config, version=version, instance=f"{cluster.cluster_id}-{cluster.node_id}"
        )
        self._soon = asyncio.Event()  # the spans will not wait for the interval
        self._spans = SpanBuffer(config.spans_max, self._soon.set)
        self._tracer = create_tracer(self._spans, resource=self._destination.resource, version=version)
        self.http_trace = HttpTrace(self._tracer) if config.traces else None
        self._choices = Choices()
        self._under_way: asyncio.Future[Exception | None] | None = None  # the newest that was sent
        self._started_ns = time.time_ns()
        self._is_reached = True
        self._tasks = Supervisor(lambda error: logger.error("telemetry ended: %s", error, exc_info=error))

    def __repr__(self) -> str:
        return f"<Telemetry to {self._config.endpoint}, {len(self._spans)} spans wait>"

    def start(self) -> None:
        """Begin to trace and to send, in the running loop."""
        if self._config.traces:
            for listener, counters in self._observed.listeners.items():
                if listener != _HTTP:
                    one_in = self._config.sample_one_in
                    counters.trace = RequestTrace(self._tracer, listener=listener, one_in=one_in)
        if self._config.metrics:
            self._loop_lag.start()
        self._tasks.start("telemetry", self._run())

    async def close(self) -> None:
        """Send what is left, if somebody takes it, and end."""
        for counters in self._observed.listeners.values():
            counters.trace = None
        await self._tasks.stop()
        if self._is_reached:
            try:
                async with asyncio.timeout(self._config.close_timeout_s):
                    await self._send_all()
            except TimeoutError:
                logger.warning("telemetry left behind: %s does not answer", self._config.endpoint)
        self._loop_lag.stop()
        self._destination.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._config.interval_s
        while True:
            await wait_at_most(self._soon, max(due - loop.time(), 0.0))
            self._soon.clear()
            if loop.time() >= due:
                due = loop.time() + self._config.interval_s
                await self._send_all()
            else:
                await self._send_spans()

    async def _send_all(self) -> None:
        await self._send_spans()
        if self._config.metrics:
            families = await self._collect()
            await self._send(lambda: self._destination.send_metrics(self._messages(families)))

    async def _send_spans(self) -> None:
        if spans := self._spans.take():
            await self._send(lambda: self._destination.send_spans(spans))

    async def _send(self, send: Callable[[], None]) -> None:
        try:
            async with asyncio.timeout(self._config.send_timeout_s):
                await self._wait_sent()
                self._under_way = start_in_thread(send)
                error = await self._wait_sent()
        except TimeoutError:
            self._tell("it does not come to the end of an answer")
            return
        if error is not None and not isinstance(error, NotDelivered):
            raise error
        self._tell("" if error is None else str(error))

    async def _wait_sent(self) -> Exception | None:
        """How the message that is under way ended; nobody who gives up takes it along."""
        if self._under_way is None:
            return None
        await asyncio.wait([self._under_way])
        return self._under_way.result()

    def _tell(self, trouble: str) -> None:
        """Of the change only: a collector may be away for days."""
        is_reached = not trouble
        if is_reached == self._is_reached:
            return
        self._is_reached = is_reached
        if is_reached:
            logger.info("telemetry reaches %s again", self._config.endpoint)
        else:
            logger.warning(
                "telemetry does not reach %s, and is dropped until it does: %s",
                self._config.endpoint,
                trouble,
            )

    async def _collect(self) -> list[Family]:
        """The families of this moment; in between, the loop is given to others."""
        await self._observed.free_space.refresh()  # a node without an HTTP listener has no sampler that asks
        snapshot = await take_snapshot(self._observed.broker, self._choices, by_partition=False)
        families: list[Family] = []
        samples = 0
        for family in NodeCollector(self._observed, snapshot, self._loop_lag).collect():
            families.append(family)
            samples += len(family.samples)
            if samples >= PIECE_SAMPLES:
                samples = 0
                await asyncio.sleep(0)
        return families

    def _messages(self, families: list[Family]) -> Iterator[list[Metric]]:
        figures = Figures(started_ns=self._started_ns, now_ns=time.time_ns())
        return in_messages(figures.convert(families), points_max=self._config.points_max)
