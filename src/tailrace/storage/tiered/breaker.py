"""When a server that fails is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

FIRST_S: Final = 1.0
MOST_S: Final = 30.0

State = Literal["closed", "open", "half-open"]


class Breaker:
    """Opens after some failures in a row, for 1 s, then twice as long each time, up to 30 s.

    When that time has passed one attempt may be made. It closes the breaker, or opens it again.
    """

    def __init__(self, *, failures_max: int, monotonic: Callable[[], float]) -> None:
        self._failures_max = failures_max
        self._monotonic = monotonic
        self._failures = 0
        self._open_s = FIRST_S
        self._until: float | None = None  # None: closed
        self._is_trying = False
        self.opened = 0  # how often

    @property
    def state(self) -> State:
        if self._until is None:
            return "closed"
        return "open" if self._monotonic() < self._until else "half-open"

    def allows(self) -> bool:
        """Whether an attempt may be made now; its outcome must be told."""
        if self._until is None:
            return True
        if self._monotonic() < self._until or self._is_trying:
            return False
        self._is_trying = True
        return True

    def succeeded(self) -> None:
        self._failures, self._open_s, self._until, self._is_trying = 0, FIRST_S, None, False

    def failed(self) -> None:
        self._failures += 1
        if self._until is None and self._failures < self._failures_max:
            return
        if self._until is not None and not self._is_trying:
            return  # one of those that were under way when it opened
        self._is_trying = False
        self._until = self._monotonic() + self._open_s
        self._open_s = min(self._open_s * 2, MOST_S)
        self.opened += 1
