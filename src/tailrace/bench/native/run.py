"""The loads of `tailrace bench native`, one after the other, against a broker that already runs.

They share one topic with a name of its own, and every step has a subscription; all are deleted at the end
whatever happens. Publisher and subscriber are this one process, as in a service that does both.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tailrace.bench.native import load
from tailrace.bench.native.subject import (
    NativeSubject,
    TailraceMessaging,
    delete_topic,
    find_native_subject,
)
from tailrace.bench.wire.accounting import Usage
from tailrace.bench.wire.broker import BrokerRun, Shape, result_of, usage_of
from tailrace.bench.wire.driver import Outcome, Window
from tailrace.bench.wire.reader import LoadError
from tailrace.model import TailraceError
from tailrace.model.address import Address
from tailrace.server.loop import loop_factory

FULL_S, QUICK_S = 3.0, 1.0
"""How long each load is measured."""

_WARM_SHARE = 0.2  # of that, before

ONE = Shape(name="one", title="one publish at a time, each waited for", connections=1)
LATENCY = Shape(name="latency", title="publish to handler, 1,000 messages/s", connections=2, per_s=load.PER_S)
PUBLISH = Shape(
    name="publish",
    title="200 publishes in flight, each waited for",
    connections=1,
    in_flight=load.IN_FLIGHT,
)
DELIVER = Shape(
    name="deliver",
    title="one subscription, prefetch 200, every message acknowledged",
    connections=1,
    in_flight=load.PREFETCH,
)
SHAPES = (ONE, LATENCY, PUBLISH, DELIVER)

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan:
    """How long each load runs, and how large a message is."""

    seconds: float = FULL_S
    body_bytes: int = load.BODY_BYTES


def look(node: Address, *, bootstrap: str | None, timeout_s: float) -> NativeSubject:
    """The broker at an address; ClientError says why there is none."""
    return asyncio.run(find_native_subject(node, bootstrap=bootstrap, timeout_s=timeout_s))


def run_native_bench(
    subject: NativeSubject, plan: NativePlan, *, note: Note = lambda _title: None
) -> BrokerRun:
    """Every load in turn. A load that fails, or Ctrl-C, ends the run and loses nothing that was found."""
    run = BrokerRun()
    stage = _Stage(subject, plan, run, note)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(stage.measure_all())
    except (LoadError, TailraceError, OSError) as error:
        run.failure = f"{stage.title}: {error}"
    except KeyboardInterrupt:
        run.interrupted = True
    return run


class _Stage:
    """Where the loads of one run take place."""

    def __init__(self, subject: NativeSubject, plan: NativePlan, run: BrokerRun, note: Note) -> None:
        self.title = "connecting"
        self._subject = subject
        self._plan = plan
        self._run = run
        self._note = note
        self._topic = f"tailrace-bench-{uuid.uuid4().hex[:12]}"

    async def measure_all(self) -> None:
        """Ends with the error of the load that failed; the topic is gone either way, or noted as left."""
        try:
            await self._measure()
        finally:
            try:
                await delete_topic(self._subject.bootstrap, self._topic)
            except (TailraceError, OSError):
                self._run.topic_left = self._topic

    async def _measure(self) -> None:
        size = self._plan.body_bytes
        async with self._scene("one") as scene:
            window, usages = self._begin(ONE)
            found = await load.publish(scene, window, in_flight=1, body_bytes=size)
            self._end(ONE, found.outcome, usages)
        async with self._scene("latency") as scene, self._connection("latency") as second:
            window, usages = self._begin(LATENCY)
            self._end(LATENCY, await load.end_to_end(scene, second, window, body_bytes=size), usages)
        async with self._scene("rate") as scene:
            window, usages = self._begin(PUBLISH)
            found = await load.publish(scene, window, body_bytes=size)
            self._end(PUBLISH, found.outcome, usages)
            window, usages = self._begin(DELIVER)
            self._end(DELIVER, await load.deliver(scene, window, count=found.total), usages)

    def _begin(self, shape: Shape) -> tuple[Window, list[Usage | None]]:
        self.title = shape.title
        self._note(shape.title)
        pids = [each.pid for each in self._subject.processes]
        usages: list[Usage | None] = []
        seconds = self._plan.seconds
        window = Window(
            warm_s=seconds * _WARM_SHARE, seconds=seconds, mark=lambda: usages.append(usage_of(pids))
        )
        return window, usages

    def _end(self, shape: Shape, outcome: Outcome, usages: list[Usage | None]) -> None:
        self._run.results.append(result_of(shape, outcome, usages))

    @asynccontextmanager
    async def _connection(self, part: str) -> AsyncIterator[TailraceMessaging]:
        messaging = self._subject.messaging(topic=self._topic, subscription=f"{self._topic}-{part}")
        try:
            await messaging.open()
            yield messaging
        finally:
            await messaging.close()

    @asynccontextmanager
    async def _scene(self, part: str) -> AsyncIterator[TailraceMessaging]:
        """A connection with a subscription, which is gone at the end; with a dead broker it goes with it."""
        async with self._connection(part) as messaging:
            await messaging.create()
            try:
                yield messaging
            finally:
                with suppress(TailraceError, OSError):
                    await messaging.remove_subscription()
