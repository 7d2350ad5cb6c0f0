"""Supervised background tasks: named, started in one place, and never lost in silence.

A task of a supervisor runs until it is stopped. One that fails reports its error to `on_failure` once; what
follows from that (fencing a log directory, ending the process) is the owner's decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def for_each(items: Iterable[_T], act: Callable[[_T], Awaitable[object]], *, at_once: int) -> None:
    """Do something with every item, a few at a time.

    After the first failure no other item is begun; it is raised when those under way have ended, so that
    nothing goes on behind the caller's back. A cancellation reaches them too, and is waited out as well.
    """
    rest = iter(items)
    failures: list[BaseException] = []

    async def work() -> None:
        for item in rest:
            try:
                await act(item)
            except BaseException as error:
                failures.append(error)
                raise
            if failures:
                return

    await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
    if failures:
        raise failures[0]


async def wait_at_most(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, or until so much time has passed; whether it is set.

    Unlike `asyncio.wait_for` before Python 3.12, this never takes a cancellation for the time running out.
    """
    passed = asyncio.get_running_loop().create_future()
    timer = asyncio.get_running_loop().call_later(seconds, passed.set_result, None)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting, passed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        waiting.cancel()
    return event.is_set()


class Supervisor:
    """The background tasks of one owner."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order in which they were started

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` beside everything else, under `name`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Ask everything that still runs to end."""
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    async def stop(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        self.cancel()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)
