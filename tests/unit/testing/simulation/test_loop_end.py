"""How a process ends on the simulated loop: halted, abandoned, and silent afterwards."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from tailrace.testing.simulation import SimulatedLoop


class _End(BaseException):
    pass


def test_nothing_runs_after_the_step_that_halts() -> None:
    seen: list[str] = []

    async def other() -> None:
        seen.append("other")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        others = [loop.create_task(other()), loop.create_task(other())]
        loop.halt(_End("over"))
        seen.append("rest of the step")
        await asyncio.wait(others)
        seen.append("next step")

    with SimulatedLoop() as loop:
        with pytest.raises(_End, match="over"):
            loop.run(main())
        assert len(loop.pending()) == 3
    assert seen == ["rest of the step"]


def test_a_halt_in_the_last_step_is_raised_too() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.halt(_End())
        return "done"

    with pytest.raises(_End):
        SimulatedLoop().run(main())


def test_abandoned_tasks_say_nothing_whatever_they_do_last() -> None:
    async def awaits_in_finally() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)
            await asyncio.sleep(1)

    async def raises_in_finally() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            raise ValueError("too late")

    async def holds_a_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(awaits_in_finally())
            await asyncio.Event().wait()

    async def takes() -> None:
        async with asyncio.Lock():
            await asyncio.wait_for(asyncio.Queue[int]().get(), 5)

    async def never_started() -> None:
        raise AssertionError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        works = (awaits_in_finally, raises_in_finally, holds_a_group, takes)
        tasks = [loop.create_task(work()) for work in works]
        await asyncio.sleep(0.5)
        tasks.append(loop.create_task(never_started()))
        loop.halt(_End())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop = SimulatedLoop()
        with pytest.raises(_End):
            loop.run(main())
        loop.abandon()
        gc.collect()
    assert loop.errors == []
    assert loop.pending() == []


def test_a_coroutine_that_cannot_be_closed_is_reported() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(0)
            except GeneratorExit:
                if giving_up:
                    raise

    giving_up: list[bool] = []
    loop = SimulatedLoop()
    task = loop.create_task(stubborn())
    loop.run(asyncio.sleep(0))
    with pytest.raises(RuntimeError, match="awaits again"):
        loop.abandon()
    giving_up.append(True)
    work = task.get_coro()
    assert work is not None
    work.close()


def test_an_abandoned_loop_drops_what_is_scheduled_and_refuses_to_run() -> None:
    loop = SimulatedLoop()
    loop.abandon()
    loop.abandon()
    loop.call_soon(print, "never")
    loop.call_later(1, print, "never")
    assert loop.is_closed()
    future = asyncio.Future[None](loop=loop)
    with pytest.raises(AssertionError, match="abandoned"):
        loop.run_until_complete(future)


def test_a_loop_cannot_abandon_itself() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.abandon()

    with pytest.raises(AssertionError, match="halt it"):
        SimulatedLoop().run(main())
