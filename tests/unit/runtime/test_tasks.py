"""Supervised tasks: who hears of a failure, and what cancelling ends; in plain asyncio loops."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.runtime import Supervisor, for_each, wait_at_most
from tailrace.testing.simulation import SimulatedLoop


async def forever(ended: list[str], name: str) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        ended.append(name)


async def fail(error: Exception, after: asyncio.Event | None = None) -> None:
    if after is not None:
        await after.wait()
    raise error


def test_a_failure_is_reported_once() -> None:
    heard: list[BaseException] = []

    async def main() -> None:
        supervisor = Supervisor(heard.append)
        task = supervisor.start("doomed", fail(error))
        await asyncio.wait({task})
        await asyncio.sleep(0)
        await supervisor.stop()

    error = ValueError("the disk is on fire")
    asyncio.run(main())
    assert heard == [error]


def test_every_task_that_fails_is_reported() -> None:
    heard: list[BaseException] = []

    async def main() -> None:
        supervisor = Supervisor(heard.append)
        errors = [ValueError("one"), ValueError("two")]
        tasks = {supervisor.start("doomed", fail(error)) for error in errors}
        await asyncio.wait(tasks)
        await asyncio.sleep(0)
        assert heard == errors

    asyncio.run(main())


def test_one_that_ends_or_is_cancelled_is_not_a_failure() -> None:
    heard: list[BaseException] = []
    ended: list[str] = []

    async def main() -> None:
        supervisor = Supervisor(heard.append)
        await supervisor.start("short", asyncio.sleep(0))
        task = supervisor.start("long", forever(ended, "long"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0)

    asyncio.run(main())
    assert (heard, ended) == ([], ["long"])


def test_stop_waits_until_all_have_ended() -> None:
    ended: list[str] = []

    async def main() -> None:
        supervisor = Supervisor(lambda error: None)
        for name in ("one", "two"):
            supervisor.start(name, forever(ended, name))
        await asyncio.sleep(0)
        await supervisor.stop()
        assert sorted(ended) == ["one", "two"]
        await supervisor.stop()

    asyncio.run(main())


def test_the_handler_may_cancel_the_others() -> None:
    heard: list[BaseException] = []
    ended: list[str] = []

    async def main() -> None:
        def on_failure(error: BaseException) -> None:
            heard.append(error)
            supervisor.cancel()

        supervisor = Supervisor(on_failure)
        go = asyncio.Event()
        other = supervisor.start("other", forever(ended, "other"))
        supervisor.start("doomed", fail(ValueError("x"), go))
        await asyncio.sleep(0)
        go.set()
        await asyncio.wait({other})
        assert other.cancelled()

    asyncio.run(main())
    assert len(heard) == 1
    assert ended == ["other"]


def test_a_task_may_stop_its_own_supervisor() -> None:
    ended: list[str] = []

    async def main() -> None:
        supervisor = Supervisor(lambda error: None)
        supervisor.start("other", forever(ended, "other"))
        await asyncio.sleep(0)
        await asyncio.wait_for(supervisor.start("stopper", supervisor.stop()), 60)

    asyncio.run(main())
    assert ended == ["other"]


def test_tasks_carry_their_names() -> None:
    async def main() -> None:
        supervisor = Supervisor(lambda error: None)
        task = supervisor.start("commit", asyncio.sleep(0))
        assert task.get_name() == "commit"
        await task

    asyncio.run(main())


def test_an_error_while_stopping_is_reported_too() -> None:
    heard: list[BaseException] = []

    async def stubborn() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as cancelled:
            raise ValueError("cannot let go") from cancelled

    async def main() -> None:
        supervisor = Supervisor(heard.append)
        supervisor.start("stubborn", stubborn())
        await asyncio.sleep(0)
        await supervisor.stop()
        await asyncio.sleep(0)

    asyncio.run(main())
    with pytest.raises(ValueError, match="cannot let go"):
        raise heard[0]


# ---- waiting for an event, but not for ever


def test_a_wait_ends_with_its_event() -> None:
    async def main() -> None:
        event = asyncio.Event()
        loop.call_later(3, event.set)
        assert await wait_at_most(event, 10)
        assert loop.time() == 3
        assert await wait_at_most(event, 10)
        assert loop.time() == 3

    with SimulatedLoop() as loop:
        loop.run(main())


def test_a_wait_ends_with_its_time() -> None:
    async def main() -> None:
        event = asyncio.Event()
        assert not await wait_at_most(event, 10)
        assert loop.time() == 10
        event.set()
        event.clear()
        assert not await wait_at_most(event, 5)
        assert loop.time() == 15

    with SimulatedLoop() as loop:
        loop.run(main())


@pytest.mark.parametrize("moment", ["before", "with the event", "with the time"])
def test_a_cancelled_wait_is_cancelled_whenever_that_happens(moment: str) -> None:
    """A task that took its cancellation for something else would never end."""

    async def main() -> None:
        event = asyncio.Event()
        waiting = asyncio.ensure_future(wait_at_most(event, 10))
        await asyncio.sleep(0)
        if moment == "with the event":
            event.set()
        elif moment == "with the time":
            await asyncio.sleep(10)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert not loop.errors

    with SimulatedLoop() as loop:
        loop.run(main())


def test_a_wait_leaves_nothing_behind() -> None:
    async def main() -> None:
        event = asyncio.Event()
        for _ in range(3):
            await wait_at_most(event, 1)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    with SimulatedLoop() as loop:
        loop.run(main())


def test_for_each_takes_every_item_and_no_more_at_once_than_allowed() -> None:
    under_way: set[int] = set()
    seen: list[int] = []
    most = 0

    async def act(item: int) -> None:
        nonlocal most
        under_way.add(item)
        most = max(most, len(under_way))
        await asyncio.sleep(0)
        under_way.remove(item)
        seen.append(item)

    asyncio.run(for_each(range(20), act, at_once=3))
    assert (sorted(seen), most) == (list(range(20)), 3)


def test_after_a_failure_for_each_begins_nothing_and_waits_for_what_is_under_way() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def act(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError("the second is bad")
        await asyncio.sleep(0.01)
        ended.append(item)

    with pytest.raises(ValueError, match="the second is bad"):
        asyncio.run(for_each(range(20), act, at_once=2))
    assert (begun, ended) == ([0, 1], [0])


def test_a_cancellation_inside_an_item_is_not_taken_for_success() -> None:
    async def act(_item: int) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await for_each(range(2), act, at_once=2)

    asyncio.run(main())


def test_for_each_ends_its_items_when_it_is_cancelled() -> None:
    ended: list[str] = []

    async def main() -> None:
        task = asyncio.ensure_future(for_each("ab", lambda name: forever(ended, name), at_once=2))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(ended) == ["a", "b"]

    asyncio.run(main())
