"""Waiting for something outside this process, always with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE_S = 0.03


def wait_until(true: Callable[[], bool], *, within_s: float, what: Callable[[], object] | str) -> None:
    """Ask until it is so; what another process did cannot wake us. `what` tells the state on failure."""
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            state = what if isinstance(what, str) else what()
            raise TimeoutError(f"not within {within_s} s: {state}")
        time.sleep(_PAUSE_S)
