"""Kills a piece of work before every line that it executes in some modules, one child process for each line.

    python -m tests.crash.line_kills tests.crash.test_metadata_kills:MIGRATION /tmp/somewhere

A `Killed` has three functions, which are given a directory: `prepare` fills it, `work` is what is killed, and
`check` looks at what a kill left. This runs in a process of its own, because it forks.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

_LINES_MAX = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """Work that is to survive being killed."""

    prepare: Callable[[Path], None]
    work: Callable[[Path], None]
    check: Callable[[Path], None]
    modules: tuple[ModuleType, ...]  # whose lines count


def run(killed: Killed, directory: Path) -> int:
    """Returns how many lines the work was killed at; it was finished once, at the end."""
    for line in range(1, _LINES_MAX):
        place = directory / str(line)
        place.mkdir()
        killed.prepare(place)
        child = os.fork()
        if not child:
            _work_until(killed, place, line)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert status == 0, f"the work failed at its own end: {status}"
            killed.check(place)
            return line - 1
        assert os.WTERMSIG(status) == signal.SIGKILL
        killed.check(place)
    raise AssertionError(f"the work has more than {_LINES_MAX} lines")


def _work_until(killed: Killed, place: Path, last: int) -> None:
    files = {module.__file__ for module in killed.modules}
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            seen += 1
            if seen == last:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    killed.work(place)
    os._exit(0)


if __name__ == "__main__":
    name, _, attribute = sys.argv[1].partition(":")
    print(run(getattr(importlib.import_module(name), attribute), Path(sys.argv[2])))
