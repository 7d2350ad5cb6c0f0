"""An event loop whose clock stands still while the process does not get to run.

For tests with short timeouts whose both sides live in one loop. On a busy machine a process may be kept from
running for longer than such a timeout; by a usual clock that is silence, and of two peers that talk all the
time one takes the other for dead. Here only that time passes in which the loop waits because nobody has
anything to do, and hardly more than it wanted to wait. A broker in such a loop takes `LoopClock`: by the
machine's time its leases would run out all the same.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from tailrace.runtime.clock import SystemClock

T = TypeVar("T")

_TICK_S = 0.001  # may pass in any turn, else whoever asks again after no time at all would ask for ever


class _Selector(selectors.DefaultSelector):
    """Counts the seconds that were waited on purpose, from any number on."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began_s = time.monotonic()
        found = super().select(timeout)
        passed_s = time.monotonic() - began_s
        # Where something was found nobody knows how long it had been there before we got to run.
        most_s = _TICK_S if found or timeout is None else max(timeout, _TICK_S)
        self.waited_s += min(passed_s, most_s)
        return found


class LoopClock(SystemClock):
    """The time of day at the start, and from then on what the running loop takes for time."""

    def __init__(self) -> None:
        super().__init__()
        self.monotonic = asyncio.get_running_loop().time
        self._started = self.monotonic()
        self.now_ms = self.steady_ms  # type: ignore[method-assign]

    def steady_ms(self) -> int:
        return self._started_ms + int((self.monotonic() - self._started) * 1000)


class UnhurriedLoop(asyncio.SelectorEventLoop):
    """A loop for one test, which has it from `run` or by a Runner's `loop_factory`."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.waited_s


def run(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run without hurry."""
    with asyncio.Runner(loop_factory=UnhurriedLoop) as runner:
        return runner.run(work)
