"""How calls to the simulated disk go: when they take effect, which fail, and in which the process ends.

A call takes effect at once, in a later turn of the loop, or after a while; other tasks run meanwhile. It
takes effect although its caller was cancelled, as a call in a disk thread does, with the buffers as they are
by then.

When the process ends the loop halts: no line of it runs after the call in which it ended. Calls that a
closing coroutine still makes, or that go through a file of an earlier life, raise `Crash`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

from tailrace.runtime.disk import SyncError
from tailrace.testing.simulation.inode import SECTOR_BYTES
from tailrace.testing.simulation.loop import SimulatedLoop

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_AT_ONCE_CHANCE = 0.2
_NEXT_TURN_CHANCE = 0.4
_SHORT_S = 0.001
_LONG_S = 0.25


class Crash(BaseException):
    """The process has ended. Not an `Exception`: no handler of the code under test may go on from it."""


class SimulatedCalls:
    """The calls of one machine, over all lives of its process."""

    def __init__(
        self, rng: random.Random, *, capacity_bytes: int | None, log: Callable[[str], None] | None
    ) -> None:
        self.rng = rng
        self.capacity_bytes = capacity_bytes
        self.log = log  # is told every call, for the trace of a failing seed
        self.calls = 0
        self.faults = 0
        self.crash_at = 0  # the number of the call in which the process ends; 0 is never
        self.crashed = False
        self.slow_chance = 0.04
        self.sync_error_chance = 0.0
        self.sync_errno = errno.EIO
        self.write_error_chance = 0.0
        self.write_errno = errno.ENOSPC
        self.read_flip_chance = 0.0
        self.cold_chance = 0.25
        self.sync_failed = False  # in this life
        self.syncs_after_failure = 0  # begun in this life after a failed one was answered
        self.life = 1

    async def call(self, effect: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> _T:
        """Have `effect` take place, now or later."""
        loop = self._loop()
        draw = self.rng.random()
        if draw < _AT_ONCE_CHANCE:
            return effect(*args)
        done: asyncio.Future[_T] = loop.create_future()
        if draw < _AT_ONCE_CHANCE + _NEXT_TURN_CHANCE:
            loop.call_soon(self._land, self.life, done, effect, *args)
        else:
            span_s = _LONG_S if draw >= 1 - self.slow_chance else _SHORT_S
            loop.call_later(self.rng.random() * span_s, self._land, self.life, done, effect, *args)
        return await done

    def _loop(self) -> SimulatedLoop:
        """The loop of the living process; there is none for a coroutine that is only being closed."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise Crash("a call outside of a running loop") from None
        assert isinstance(loop, SimulatedLoop), "the simulated disk needs the simulated loop"
        if self.crashed or loop.halted():
            raise Crash("the process has ended")
        return loop

    def _land(
        self, life: int, done: asyncio.Future[_T], effect: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> None:
        if life != self.life or self.crashed:
            return
        try:
            result = effect(*args)
        except BaseException as error:
            if not done.done():
                done.set_exception(error)
            elif not isinstance(error, (OSError, Crash)):  # a bug is told even if nobody waits
                raise
        else:
            if not done.done():
                done.set_result(result)

    def ends_here(self, op: str, path: str, *detail: object) -> bool:
        """Count a call as it takes effect; whether the process ends in it."""
        self.calls += 1
        if self.log is not None:
            now_s = asyncio.get_running_loop().time()
            self.log(f"{self.calls:6d} {now_s:12.6f} {' '.join(map(str, (op, path, *detail)))}")
        return self.calls == self.crash_at

    def enter(self, op: str, path: str, *detail: object) -> None:
        """Count a call that takes effect whole or not at all."""
        if self.ends_here(op, path, *detail):
            raise self.end()

    def end(self) -> Crash:
        """End the process: halt its loop, and refuse it every further call."""
        self.crashed = True
        crash = Crash(f"the process ended in call {self.calls}")
        self.say("the process ends")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.halt(crash)
        return crash

    def fails(self, chance: float) -> bool:
        """Whether a call fails by chance; no number is drawn where it cannot."""
        if not chance or self.rng.random() >= chance:
            return False
        self.faults += 1
        self.say("the call fails")
        return True

    def begin_sync(self) -> None:
        self.syncs_after_failure += self.sync_failed

    def fail_sync(self, path: str) -> SyncError:
        self.sync_failed = True
        return SyncError(self.sync_errno, os.strerror(self.sync_errno), path)

    def part(self, *, start: int, end: int) -> int:
        """Where a write stops that is not done whole: at a sector's end, for a sector is old or new."""
        stop = start + self.rng.choice([0, self.rng.randrange(end - start + 1), end - start])
        if stop < end:
            stop -= stop % SECTOR_BYTES
        return max(start, stop)

    def check_alive(self, life: int) -> None:
        if self.crashed or life != self.life:
            raise Crash("the process has ended")

    def start_life(self) -> None:
        """From here on another process makes the calls."""
        self.life += 1
        self.crashed = False
        self.crash_at = 0
        self.sync_failed = False
        self.syncs_after_failure = 0

    def say(self, text: str) -> None:
        """Put a line between the calls of the trace."""
        if self.log is not None:
            self.log(f"{self.calls:6d} {text}")
