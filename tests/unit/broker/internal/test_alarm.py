"""The one timer: who is due, in which order, and that it rings by itself."""

from __future__ import annotations

import asyncio

from tailrace.broker.internal import Alarm
from tailrace.runtime import SystemClock
from tailrace.testing import FakeClock


def test_those_due_come_in_order_of_their_times_and_once() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        alarm: Alarm[str] = Alarm(clock, lambda: None)
        start_ms = clock.steady_ms()
        for at_ms, name in ((30, "c"), (10, "a"), (20, "b"), (10, "a2")):
            alarm.plan(start_ms + at_ms, name)
        assert alarm.take_due(start_ms + 9) == []
        assert [name for _, name in alarm.take_due(start_ms + 20)] == ["a", "a2", "b"]
        assert alarm.take_due(start_ms + 20) == []
        assert len(alarm) == 1
        alarm.cancel()
        assert len(alarm) == 0

    asyncio.run(scenario())


def test_it_rings_for_the_earliest_even_if_that_was_planned_last() -> None:
    async def scenario() -> None:
        clock = SystemClock()
        rung = asyncio.Event()
        alarm: Alarm[str] = Alarm(clock, rung.set)
        alarm.plan(clock.steady_ms() + 3_600_000, "late")
        alarm.plan(clock.steady_ms(), "now")
        await asyncio.wait_for(rung.wait(), 60)
        assert [name for _, name in alarm.take_due(clock.steady_ms())] == ["now"]
        alarm.cancel()

    asyncio.run(scenario())


def test_a_cancelled_alarm_does_not_ring() -> None:
    async def scenario() -> None:
        clock = SystemClock()
        rings: list[None] = []
        alarm: Alarm[str] = Alarm(clock, lambda: rings.append(None))
        alarm.plan(clock.steady_ms(), "never")
        alarm.cancel()
        other: asyncio.Event = asyncio.Event()
        asyncio.get_running_loop().call_later(0.005, other.set)  # a timer set later than the alarm's was
        await other.wait()
        assert rings == []

    asyncio.run(scenario())
