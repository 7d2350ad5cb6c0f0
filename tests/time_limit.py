"""A time limit for every test: past it the test fails and shows where every thread and every task was.

Setup, call and teardown of a test may each take two minutes, five in a slow test, forty in a heavy one, or
the seconds of `@pytest.mark.time_limit(seconds)`, which may be more than five minutes in a heavy test only: a
default run stays short. SIGALRM interrupts the main thread. Code that catches the
exception gets it again every ten seconds, and its test fails nevertheless. A test that never returns to the
interpreter ends with its process; pytest-xdist then names the test and continues in another process.

`deadline` is the same alarm for a part of a test.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

import pytest

DEFAULT_S = 120.0
SLOW_S = 300.0
HEAVY_S = 2400.0

_AGAIN_S = 10.0
_PHASES = 3
_GRACE_S = 60.0

_stderr = pytest.StashKey[TextIO]()


class TimeLimitExceeded(BaseException):
    """A test ran for too long. Not an Exception: neither the code under test nor hypothesis handles it."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "time_limit(seconds): how long setup, call and teardown may take each")
    config.stash[_stderr] = os.fdopen(os.dup(2), "w")  # the real one: pytest captures output only later


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_stderr].close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    long = [item.nodeid for item in items if _is_long(item)]
    if long:
        raise pytest.UsageError(f"over {SLOW_S:g} s and not marked heavy: {', '.join(long)}")


def _is_long(item: pytest.Item) -> bool:
    own = item.get_closest_marker("time_limit")
    return own is not None and own.args[0] > SLOW_S and item.get_closest_marker("heavy") is None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process if the alarms could not end the test."""
    limit_s = _limit_s(item)
    if limit_s is None:
        return (yield)
    faulthandler.dump_traceback_later(
        _PHASES * limit_s + _GRACE_S, exit=True, file=item.config.stash[_stderr]
    )
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    yield from _limited(item, "setup")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    yield from _limited(item, "call")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield from _limited(item, "teardown")


def _limited(item: pytest.Item, phase: str) -> Generator[None, None, None]:
    limit_s = _limit_s(item)
    if limit_s is None:
        yield
        return
    with deadline(limit_s, f"{phase} takes over {limit_s:g} s", kind=TimeLimitExceeded):
        yield


def _limit_s(item: pytest.Item) -> float | None:
    """Returns the limit of each phase, or None under --pdb, where a person decides how long it takes."""
    if item.config.getoption("usepdb", default=False):
        return None
    own = item.get_closest_marker("time_limit")
    if own is not None:
        return float(own.args[0])
    if item.get_closest_marker("heavy") is not None:
        return HEAVY_S
    return SLOW_S if item.get_closest_marker("slow") is not None else DEFAULT_S


@contextmanager
def deadline(
    seconds: float, message: str | None = None, *, kind: type[BaseException] = AssertionError
) -> Iterator[None]:
    """Interrupts its body after that time with an exception of that kind, also a loop that never waits.

    Deadlines nest: when the inner one ends, the outer one has the time left that it would have without it.
    """
    stacks = ""
    is_describing = False  # which takes longer on a busy machine than the next alarm

    def expire(signum: int, frame: FrameType | None) -> None:
        nonlocal stacks, is_describing
        if is_describing:
            return
        is_describing = True
        stacks = stacks or describe_stacks(frame)
        is_describing = False
        raise kind(f"{message or f'still running after {seconds:g} s'}\n{stacks}")

    began_s = time.monotonic()
    handler = signal.signal(signal.SIGALRM, expire)
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left_s:
            left_s = max(left_s - (time.monotonic() - began_s), 0.001)  # 0 would disarm the outer one
            signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)
    if stacks:
        raise kind(f"{message or f'still running after {seconds:g} s'}, and went on\n{stacks}")


def describe_stacks(interrupted: FrameType | None) -> str:
    """Returns the stack of every thread, the main thread first, and of every task that is not done."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = io.StringIO()
    main = threading.main_thread().ident
    for ident, frame in sorted(sys._current_frames().items(), key=lambda each: each[0] != main):
        text.write(f"\n---- thread {names.get(ident, ident)}\n")
        traceback.print_stack(interrupted if ident == main else frame, file=text)
    for task in (each for each in gc.get_objects() if issubclass(type(each), asyncio.Task)):
        if not task.done():
            text.write(f"\n---- task {task.get_name()}\n")
            text.writelines(traceback.format_list(traceback.StackSummary.extract(_awaits(task.get_coro()))))
    return text.getvalue()


def _awaits(waiting: object) -> Iterator[tuple[FrameType, int]]:
    """Yields the frames of a coroutine and of all that it awaits, the innermost last."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield frame, frame.f_lineno
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
