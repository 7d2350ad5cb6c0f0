"""A process that is killed and lives again: each life is a fork, as starting an interpreter takes far longer.

The parent only forks and waits. A life that ends by SIGKILL is followed by the next one; one that ends in any
other way ends the parent with its exit code. A life is told to end by the end of standard input.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

Live = Callable[[int], Coroutine[Any, Any, None]]


def live_again_and_again(live: Live) -> int:
    """Run `live` with the number of the life, as often as it is killed; the exit code of the last one."""
    for number in itertools.count():
        child = os.fork()
        if child == 0:
            asyncio.run(live(number))
            return 0
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            return code
    raise AssertionError("there is always another life")


def die() -> None:
    """End here and now, as if the power went."""
    os.kill(os.getpid(), signal.SIGKILL)


async def wait_told_to_end() -> None:
    """Wait for the end of standard input, which is what the one who started us closes."""
    loop = asyncio.get_running_loop()
    told = loop.create_future()

    def readable() -> None:
        if not os.read(sys.stdin.fileno(), 1) and not told.done():
            told.set_result(None)

    loop.add_reader(sys.stdin.fileno(), readable)
    try:
        await told
    finally:
        loop.remove_reader(sys.stdin.fileno())
