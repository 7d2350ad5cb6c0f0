"""The loop without hurry: what keeps the process from running is no time, what is waited for is."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.unhurried import run


def test_work_takes_no_time() -> None:
    async def main() -> None:
        async with asyncio.timeout(0.01):
            time.sleep(0.05)  # noqa: ASYNC251 - as if another process had the processor
            await asyncio.sleep(0)

    run(main())


def test_of_two_timers_the_earlier_one_has_its_turn_before_the_later_one_is_due() -> None:
    order: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: loop.call_soon(order.append, "first, and what came of it"))
        loop.call_later(0.02, order.append, "second")
        time.sleep(0.05)  # noqa: ASYNC251 - both would be due
        await asyncio.sleep(0.03)

    run(main())
    assert order == ["first, and what came of it", "second"]


def test_what_is_waited_for_comes() -> None:
    async def main() -> float:
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(0.02)
        return asyncio.get_running_loop().time() - began_s

    assert run(main()) == pytest.approx(0.02, abs=0.005)


def test_a_wait_that_is_too_short_for_the_clock_ends() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 1e-6
        while loop.time() < end_s:  # noqa: ASYNC110 - the wait is what is tested
            await asyncio.sleep(1e-13)

    run(main())
