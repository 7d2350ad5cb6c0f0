"""Processor time and memory of this process, without asking anybody else for it."""

from __future__ import annotations

import os
import resource
import sys

_STATM = "/proc/self/statm"
_RESIDENT_FIELD = 1


def cpu_s() -> float:
    """Processor time of all threads since the process began."""
    times = os.times()
    return times.user + times.system


def memory_bytes() -> int:
    """What is resident now; where the kernel does not tell, the most that ever was."""
    try:
        with open(_STATM, "rb") as file:
            return int(file.read().split()[_RESIDENT_FIELD]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
