"""The simulated clock: it reads the loop's time, and a clock that is set jumps alone."""

from __future__ import annotations

import asyncio

from tailrace.runtime import Clock
from tailrace.testing.simulation import SimulatedClock, SimulatedLoop


def _later(loop: SimulatedLoop) -> None:
    loop.run(asyncio.sleep(1.5))


def test_the_day_passes_with_the_loop() -> None:
    loop = SimulatedLoop()
    clock: Clock = SimulatedClock(loop, started_ms=1_000_000)
    _later(loop)
    assert (clock.now_ms(), clock.steady_ms(), clock.monotonic()) == (1_001_500, 1_001_500, 1.5)


def test_a_clock_set_back_moves_the_time_of_day_alone() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop, started_ms=1_000_000)
    clock.set_by(-500_000)
    _later(loop)
    assert (clock.now_ms(), clock.steady_ms(), clock.monotonic()) == (501_500, 1_001_500, 1.5)


def test_the_next_life_goes_on_where_the_last_one_ended() -> None:
    loop = SimulatedLoop()
    _later(loop)
    last_ms = SimulatedClock(loop).now_ms()
    assert SimulatedClock(SimulatedLoop(started_s=loop.time())).now_ms() == last_ms
