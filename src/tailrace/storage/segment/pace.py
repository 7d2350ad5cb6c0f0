"""Long work in short turns: everybody else in the loop comes in between.

Work that is all computing (decoding, sifting, encoding) is written as a generator that stops every few
records, and a `Pace` goes on with it until its turn is over. A turn is a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from tailrace.runtime import Clock

_T = TypeVar("_T")

Steps = Generator[None, None, _T]
"""Work that may be interrupted wherever it yields."""

_TURN_S = 0.001


class Pace:
    """The turns of one piece of work."""

    __slots__ = ("_clock", "_ends")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends = clock.monotonic() + _TURN_S

    async def wait_turn(self) -> None:
        """Let the others go first if this turn is over."""
        if self._clock.monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._clock.monotonic() + _TURN_S

    async def run(self, work: Steps[_T]) -> _T:
        """What `work` returns, after as many turns as it takes."""
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await self.wait_turn()


async def wait_whole(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to its end; a caller that is cancelled meanwhile is told so afterwards.

    The cancellation comes before an error of the work, which is its cause: a caller that takes the error for
    something to go on from would never end.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    task.result()
