"""A deterministic event loop whose time is only a number.

Callbacks run in the order in which they were scheduled, timers in the order of their deadlines and, at one
deadline, of their making. Time stands still while anything is ready and then jumps to the next timer, so a
history of an hour runs in milliseconds, and the same program with the same seed takes the same steps.

There is no selector, no thread and no signal here: whatever is not a task, a callback or a timer is refused.

A run that cannot end says so instead of hanging: `Deadlock` when nothing is ready and no timer is set,
`Livelock` when steps go on without end. Both name the waiting tasks and where they wait.

The end of a process is `halt`: nothing runs after the present step, and `run` raises what `halt` was given.
`abandon` then drops what is left. Coroutines are closed, because the interpreter would do it anyway at some
later moment, but whatever they still want to say finds neither a loop nor a disk that listens.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack, cast

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_STEPS_AT_ONE_MOMENT_MAX = 1_000_000
_SPAN_S_MAX = 7 * 86_400.0
_TASKS_SWEPT_AT = 256
_CLOSE_ATTEMPTS_MAX = 100


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set, while somebody waits."""


class Livelock(RuntimeError):
    """Steps go on without end: tasks that poll, or timers that tick, while what is awaited never comes."""


if TYPE_CHECKING:  # to a type checker a loop without sockets, signals and subprocesses is unfinished
    _Loop = asyncio.SelectorEventLoop
else:
    _Loop = asyncio.AbstractEventLoop


class SimulatedLoop(_Loop):
    """One process's life on virtual time. `started_s` lets the next life go on where the last one ended."""

    def __init__(self, *, started_s: float = 0.0, span_s_max: float = _SPAN_S_MAX) -> None:
        self.errors: list[BaseException] = []  # of callbacks and tasks, where nobody took them
        self.steps = 0
        self._time_s = started_s
        self._ends_s = started_s + span_s_max
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []  # a heap; the number breaks ties
        self._timers_made = 0
        self._tasks: list[asyncio.Task[Any]] = []  # held strongly: a collector's timing must not show
        self._tasks_swept_at = _TASKS_SWEPT_AT
        self._halted_by: BaseException | None = None
        self._running = False
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "running" if self._running else "idle"
        return f"<SimulatedLoop {state} at {self._time_s:.6f} s, {len(self._ready)} ready>"

    def __enter__(self) -> SimulatedLoop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    # ---- running

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run `work` to its end; errors that nobody took anywhere else are raised in the end, not lost."""
        result = self.run_until_complete(work)
        if self.errors:
            raise BaseExceptionGroup("errors that nobody took", self.errors)
        return result

    def run_until_complete(self, future: Generator[Any, None, _T] | Awaitable[_T]) -> _T:
        assert not self._closed, "the loop was abandoned"
        assert not self._running, "the loop runs already"
        awaited: asyncio.Future[_T] = asyncio.ensure_future(cast(Awaitable[_T], future), loop=self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._finish_generator)
        events._set_running_loop(self)
        self._running = True
        try:
            self._run_until_done(awaited)
        finally:
            self._running = False
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        return awaited.result()

    def _run_until_done(self, awaited: asyncio.Future[Any]) -> None:
        ready = self._ready
        steps_left = _STEPS_AT_ONE_MOMENT_MAX
        while not awaited.done():
            if self._halted_by is not None:
                raise self._halted_by
            if not ready:
                self._advance()
                steps_left = _STEPS_AT_ONE_MOMENT_MAX
            handle = ready.popleft()
            if not handle._cancelled:
                self.steps += 1
                handle._run()
            steps_left -= 1
            if not steps_left:
                raise Livelock(f"a million steps without a pause; {self._waiting()}")
        if self._halted_by is not None:
            raise self._halted_by

    def _advance(self) -> None:
        """Jump to the next timer, and make ready all that are due then."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"nothing is ready and no timer is set; {self._waiting()}")
        self._time_s = max(self._time_s, timers[0][0])
        if self._time_s > self._ends_s:
            raise Livelock(f"only timers still tick at {self._time_s:.0f} s; {self._waiting()}")
        while timers and timers[0][0] <= self._time_s:
            self._ready.append(heapq.heappop(timers)[2])

    def _waiting(self) -> str:
        return "waiting: " + (
            ", ".join(f"{task.get_name()} {_place(task)}" for task in self.pending()) or "nobody"
        )

    # ---- the end of a process

    def halt(self, error: BaseException) -> None:
        """Let nothing run after this step; `run` raises `error`."""
        if self._halted_by is None:
            self._halted_by = error

    def halted(self) -> bool:
        """Whether the process of this loop has ended."""
        return self._closed or self._halted_by is not None

    def pending(self) -> list[asyncio.Task[Any]]:
        """Tasks that have not ended, in the order of their making."""
        return [task for task in self._tasks if not task.done()]

    def abandon(self) -> None:
        """Drop every task and callback; the loop is of no use afterwards. Abandoning twice is harmless."""
        assert not self._running, "a loop cannot abandon itself; halt it"
        if self._closed:
            return
        self._closed = True
        for task in self.pending():
            _close_silently(task.get_coro())
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()

    def close(self) -> None:
        self.abandon()

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: a generator that is let go is finished by a task of its own."""

    async def shutdown_default_executor(self) -> None:
        """Nothing to do: there is none."""

    def _finish_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self.halted():
            self.create_task(generator.aclose(), name="finish a generator")

    # ---- scheduling

    def time(self) -> float:
        return self._time_s

    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._closed:
            self._timers_made += 1
            heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio's timers report here; a cancelled one is dropped when its turn comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: object = None,
        context: Context | None = None,
        **kwargs: Any,  # what later Pythons add, eager_start in 3.14
    ) -> asyncio.Task[_T]:
        label = None if name is None else str(name)
        task = asyncio.Task(coro, loop=self, name=label, context=context, **kwargs)
        if len(self._tasks) >= self._tasks_swept_at:
            self._tasks = self.pending()
            self._tasks_swept_at = 2 * len(self._tasks) + _TASKS_SWEPT_AT
        self._tasks.append(task)
        return task

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002
        func: Callable[[Unpack[_Ts]], _T],  # noqa: ARG002
        *args: *_Ts,  # noqa: ARG002
    ) -> asyncio.Future[_T]:
        raise AssertionError("a simulation has no threads: go through the ports")

    # ---- errors

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an error for `run`; nobody needs to hear that a process that is gone left tasks behind."""
        if not self.halted():
            self.errors.append(context.get("exception") or RuntimeError(context["message"]))

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignored: asyncio's debug mode measures real time."""


def _place(task: asyncio.Task[Any]) -> str:
    """Where a task waits: the innermost frame of its own that is suspended."""
    frame = None
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None) or frame
        inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)
    if frame is None:
        return "at an unknown place"
    return f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"


def _close_silently(coroutine: Any) -> None:
    """Close a coroutine of a process that is gone: what it raises on the way reaches nobody.

    One that awaits in its `finally` is closed again at that place, until it has ended.
    """
    for _ in range(_CLOSE_ATTEMPTS_MAX):
        try:
            coroutine.close()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # whatever it was, the process that could care is gone
            continue
        return
    raise RuntimeError(f"{coroutine!r} awaits again whenever it is closed")
