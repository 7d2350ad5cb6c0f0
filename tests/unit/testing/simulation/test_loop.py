"""The simulated loop: order, virtual time, asyncio's own tools on it, and runs that cannot end."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator

import pytest

from tailrace.testing.simulation import Deadlock, Livelock, SimulatedLoop


def test_callbacks_run_in_the_order_of_their_scheduling() -> None:
    seen: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(5):
            loop.call_soon(seen.append, number)
        await asyncio.sleep(0)

    SimulatedLoop().run(main())
    assert seen == [0, 1, 2, 3, 4]


def test_timers_run_by_deadline_and_then_by_age() -> None:
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for name, delay_s in [("late", 2.0), ("first", 1.0), ("second", 1.0), ("now", 0.0)]:
            loop.call_later(delay_s, note, name)
        await asyncio.sleep(3)

    SimulatedLoop().run(main())
    assert seen == [("now", 0.0), ("first", 1.0), ("second", 1.0), ("late", 2.0)]


def test_time_stands_still_while_anything_is_ready() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(0.001, lambda: None)
        for _ in range(1000):
            await asyncio.sleep(0)
        return loop.time()

    assert SimulatedLoop(started_s=7.0).run(main()) == 7.0


def test_a_timer_set_in_the_past_runs_without_turning_time_back() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(5)
        loop.call_at(1.0, done.set_result, None)
        await done
        return loop.time()

    loop = SimulatedLoop()
    done = loop.create_future()
    assert loop.run(main()) == 5.0


def test_a_cancelled_timer_neither_runs_nor_moves_time() -> None:
    seen: list[str] = []

    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1, seen.append, "cancelled").cancel()
        await asyncio.sleep(0.5)
        return loop.time()

    loop = SimulatedLoop()
    assert loop.run(main()) == 0.5
    assert seen == []


def test_wait_for_times_out_in_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), timeout=3600)
        return asyncio.get_running_loop().time()

    assert SimulatedLoop().run(main()) == 3600


def test_wait_for_returns_what_comes_in_time() -> None:
    async def main() -> str:
        return await asyncio.wait_for(asyncio.sleep(1, "done"), timeout=2)

    assert SimulatedLoop().run(main()) == "done"


def test_asyncio_timeout_cancels_its_block() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.sleep(20)
        return asyncio.get_running_loop().time()

    assert SimulatedLoop().run(main()) == 10


def test_lock_event_and_queue_hand_over() -> None:
    seen: list[str] = []

    async def worker(name: str, queue: asyncio.Queue[str], lock: asyncio.Lock, go: asyncio.Event) -> None:
        await go.wait()
        async with lock:
            seen.append(f"{name} in")
            await asyncio.sleep(1)
            seen.append(f"{name} out")
        await queue.put(name)

    async def main() -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        lock, go = asyncio.Lock(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b"):
                group.create_task(worker(name, queue, lock, go))
            go.set()
            return [await queue.get(), await queue.get()]

    assert SimulatedLoop().run(main()) == ["a", "b"]
    assert seen == ["a in", "a out", "b in", "b out"]


def test_gather_keeps_order_and_shows_the_first_error() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("no")

    async def main() -> None:
        assert list(await asyncio.gather(asyncio.sleep(2, "a"), asyncio.sleep(1, "b"))) == ["a", "b"]
        with pytest.raises(ValueError, match="no"):
            await asyncio.gather(fail(), asyncio.sleep(2, "c"))

    SimulatedLoop().run(main())


def test_an_error_of_the_work_is_raised() -> None:
    async def main() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        SimulatedLoop().run(main())


def test_an_error_in_a_callback_is_not_lost() -> None:
    def fail() -> None:
        raise ValueError("in a callback")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(0)

    with pytest.raises(ExceptionGroup) as caught:
        SimulatedLoop().run(main())
    assert [str(error) for error in caught.value.exceptions] == ["in a callback"]


def test_an_error_of_a_task_that_nobody_awaits_is_not_lost() -> None:
    async def fail() -> None:
        raise ValueError("in a task")

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(fail())
        await asyncio.wait([task])

    loop = SimulatedLoop()
    loop.run(main())
    loop._tasks.clear()
    gc.collect()
    assert [str(error) for error in loop.errors] == ["in a task"]


def test_a_generator_that_is_let_go_is_finished() -> None:
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            seen.append("finished")

    async def main() -> None:
        async for _ in numbers():
            break
        gc.collect()
        await asyncio.sleep(1)

    SimulatedLoop().run(main())
    assert seen == ["finished"]


def test_threads_are_refused() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(AssertionError, match="no threads"):
        SimulatedLoop().run(main())


# ---- runs that cannot end


def test_a_deadlock_names_who_waits_and_where() -> None:
    async def stuck_here() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.get_running_loop().create_task(stuck_here(), name="the stuck one")

    with SimulatedLoop() as loop, pytest.raises(Deadlock, match=r"the stuck one at .*locks\.py.*wait"):
        loop.run(main())


def test_a_cancelled_timer_does_not_hide_a_deadlock() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, print).cancel()
        await asyncio.Event().wait()

    with SimulatedLoop() as loop:
        with pytest.raises(Deadlock):
            loop.run(main())
        assert loop.time() == 0


def test_polling_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.testing.simulation.loop._STEPS_AT_ONE_MOMENT_MAX", 1000)

    async def main() -> None:
        for _ in itertools.repeat(None):
            await asyncio.sleep(0)

    with SimulatedLoop() as loop, pytest.raises(Livelock, match="without a pause"):
        loop.run(main())


def test_a_timer_that_ticks_for_ever_does_not_hide_a_deadlock() -> None:
    async def tick() -> None:
        for _ in itertools.repeat(None):
            await asyncio.sleep(60)

    async def main() -> None:
        ticking = asyncio.get_running_loop().create_task(tick())
        await asyncio.Event().wait()
        ticking.cancel()

    with SimulatedLoop(span_s_max=3600) as loop, pytest.raises(Livelock, match="timers still tick"):
        loop.run(main())


def test_the_same_program_takes_the_same_steps() -> None:
    def steps() -> tuple[list[str], int]:
        seen: list[str] = []

        async def worker(name: str, delay_s: float) -> None:
            for _ in range(20):
                await asyncio.sleep(delay_s)
                seen.append(name)

        async def main() -> None:
            await asyncio.gather(*(worker(str(number), 0.1 + number / 7) for number in range(5)))

        loop = SimulatedLoop()
        loop.run(main())
        return seen, loop.steps

    assert steps() == steps()


def test_many_tasks_are_not_kept_once_they_have_ended() -> None:
    async def nothing() -> None:
        pass

    async def main() -> None:
        for _ in range(2000):
            await asyncio.get_running_loop().create_task(nothing())

    loop = SimulatedLoop()
    loop.run(main())
    assert len(loop._tasks) < 600
