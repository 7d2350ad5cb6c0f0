"""The loads of native messaging over a broker that is a deque: what they count and what they refuse."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tailrace.bench.native import load
from tailrace.bench.native.messaging import Handler
from tailrace.bench.wire.driver import Outcome, Window
from tailrace.bench.wire.reader import LoadError

T = TypeVar("T")
TINY = Window(warm_s=0.2, seconds=0.5)


class QueueMessaging:
    """Confirms in the next turn of the loop, delivers at once, and knows what was acknowledged."""

    batch = 1

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.published = 0
        self.in_flight = self.in_flight_most = 0
        self.unacknowledged = 0
        self.handler: Handler | None = None
        self.prefetch = 0

    async def open(self) -> None: ...

    async def create(self) -> None: ...

    async def publish(self, body: bytes) -> None:
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        self.published += self.batch
        self.messages.extend([body] * self.batch)
        self.deliver()

    async def subscribe(self, handler: Handler, *, prefetch: int) -> None:
        self.handler, self.prefetch = handler, prefetch
        asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        while self.handler is not None and self.messages:
            self.handler(self.messages.popleft())

    async def unsubscribe(self) -> None:
        self.handler = None

    async def count_unacknowledged(self) -> int:
        return self.unacknowledged + len(self.messages)

    async def remove(self) -> None: ...

    async def close(self) -> None: ...


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def fill(messaging: QueueMessaging, count: int) -> None:
    messaging.messages.extend([bytes(load.BODY_BYTES)] * count)


def the_lane(outcome: Outcome) -> tuple[int, int]:
    (lane,) = outcome.lanes.values()
    return lane.replies, lane.payload_bytes


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence that is over soon."""
    for name in ("SILENCE_S", "_SETTLE_S", "_CANCEL_S"):
        monkeypatch.setattr(load, name, 0.5)


# ---- publish


def test_so_many_publishes_are_in_flight_and_each_is_timed() -> None:
    messaging = QueueMessaging()

    found = run(load.publish(messaging, TINY, in_flight=7))

    assert messaging.in_flight_most == 7
    assert found.total == messaging.published
    count, size = the_lane(found.outcome)
    assert 0 < count < found.total, "the warm-up is not counted"
    assert size == count * load.BODY_BYTES
    (lane,) = found.outcome.lanes.values()
    assert lane.latency is not None and lane.latency.p50_ms >= 0


def test_a_client_that_sends_batches_has_as_many_messages_in_flight() -> None:
    messaging = QueueMessaging()
    messaging.batch = 50

    found = run(load.publish(messaging, TINY, in_flight=200))

    assert messaging.in_flight_most == 4
    assert found.total == messaging.published
    assert the_lane(found.outcome)[0] % 50 == 0


def test_the_window_is_marked_as_it_opens_and_as_it_closes() -> None:
    marks: list[int] = []
    messaging = QueueMessaging()
    window = Window(warm_s=0.0, seconds=0.02, mark=lambda: marks.append(messaging.published))

    run(load.publish(messaging, window, in_flight=1))

    opened, closed = marks
    assert opened < closed


def test_a_publish_that_fails_ends_the_load_with_its_error() -> None:
    class Refusing(QueueMessaging):
        async def publish(self, body: bytes) -> None:
            await super().publish(body)
            if self.published > 20:
                raise ConnectionError("the broker has gone")

    with pytest.raises(ConnectionError, match="has gone"):
        run(load.publish(Refusing(), TINY, in_flight=5))


@pytest.mark.usefixtures("impatient")
def test_a_client_that_does_not_hear_a_cancellation_cannot_hold_the_load() -> None:
    class Deaf(QueueMessaging):
        async def publish(self, body: bytes) -> None:
            if self.published:
                raise ConnectionError("the broker has gone")
            try:
                await super().publish(body)
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                await asyncio.sleep(0)

    with pytest.raises(ConnectionError):
        run(load.publish(Deaf(), TINY, in_flight=3))


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_confirms_nothing_is_a_failure() -> None:
    class Silent(QueueMessaging):
        async def publish(self, body: bytes) -> None:
            await asyncio.Event().wait()

    with pytest.raises(LoadError, match="3 publishes were not confirmed"):
        run(load.publish(Silent(), TINY, in_flight=3))


# ---- deliver


def test_everything_that_waits_is_delivered_and_all_but_the_first_counted() -> None:
    messaging = QueueMessaging()
    fill(messaging, 500)

    outcome = run(load.deliver(messaging, Window(warm_s=0, seconds=60), count=500))

    assert the_lane(outcome) == (499, 499 * load.BODY_BYTES)
    assert messaging.prefetch == load.PREFETCH
    assert messaging.handler is None


def test_a_single_message_is_enough() -> None:
    messaging = QueueMessaging()
    fill(messaging, 1)

    outcome = run(load.deliver(messaging, Window(warm_s=0, seconds=60), count=1))

    assert the_lane(outcome)[0] == 1


def test_when_time_is_up_the_rest_stays_where_it_is() -> None:
    messaging = QueueMessaging()
    fill(messaging, 500)

    outcome = run(load.deliver(messaging, Window(warm_s=0, seconds=0), count=10_000))

    assert the_lane(outcome)[0] == 63, "the clock is looked at every 64 deliveries"


@pytest.mark.usefixtures("impatient")
def test_messages_that_never_come_are_a_failure() -> None:
    messaging = QueueMessaging()
    fill(messaging, 3)

    with pytest.raises(LoadError, match="3 of 4 messages came"):
        run(load.deliver(messaging, Window(warm_s=0, seconds=60), count=4))


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_does_not_know_of_the_acknowledgements_is_a_failure() -> None:
    messaging = QueueMessaging()
    messaging.unacknowledged = 2
    fill(messaging, 10)

    with pytest.raises(LoadError, match="2 messages were delivered, and the broker has no acknowledgement"):
        run(load.deliver(messaging, Window(warm_s=0, seconds=60), count=10))


# ---- end to end


def test_every_message_is_timed_from_publish_to_handler_but_for_the_warm_up() -> None:
    messaging = QueueMessaging()

    outcome = run(load.end_to_end(messaging, messaging, Window(warm_s=0.02, seconds=0.05), per_s=1000))

    assert messaging.published == 20 + 50
    (lane,) = outcome.lanes.values()
    assert lane.replies == 50
    assert lane.latency is not None and 0 < lane.latency.p50_ms < 1_000


def test_a_broker_that_is_slow_does_not_slow_the_rate() -> None:
    class Slow(QueueMessaging):
        """Takes nothing before all have been sent."""

        def __init__(self) -> None:
            super().__init__()
            self.gate = asyncio.Event()
            self.called = 0

        async def publish(self, body: bytes) -> None:
            self.called += 1
            if self.called == 40:
                self.gate.set()
            await self.gate.wait()
            await super().publish(body)

    messaging = Slow()
    run(load.end_to_end(messaging, messaging, Window(warm_s=0, seconds=0.04), per_s=1000))

    assert messaging.published == 40


def test_a_publish_that_fails_at_a_rate_ends_the_load() -> None:
    class Refusing(QueueMessaging):
        async def publish(self, body: bytes) -> None:
            raise ConnectionError("the broker has gone")

    messaging = Refusing()
    with pytest.raises(ConnectionError):
        run(load.end_to_end(messaging, messaging, TINY, per_s=1000))


@pytest.mark.usefixtures("impatient")
def test_a_message_that_is_lost_on_the_way_is_a_failure() -> None:
    class Losing(QueueMessaging):
        async def publish(self, body: bytes) -> None:
            await super().publish(body)
            if self.published == 10:
                self.handler = None

    messaging = Losing()
    with pytest.raises(LoadError, match="10 of 50 messages came"):
        run(load.end_to_end(messaging, messaging, Window(warm_s=0, seconds=0.05), per_s=1000))
