"""Sets the clock of a process: Python imports this by its name where the folder is in PYTHONPATH.

GOLDEN_NOW_MS is the time of day at which the process starts, in milliseconds since 1970.
"""

from __future__ import annotations

import os
import time

_read_ns = time.time_ns
_ahead_ns = int(os.environ["GOLDEN_NOW_MS"]) * 1_000_000 - _read_ns()


def _time_ns() -> int:
    return _read_ns() + _ahead_ns


def _time() -> float:
    return _time_ns() / 1e9


time.time_ns = _time_ns
time.time = _time
