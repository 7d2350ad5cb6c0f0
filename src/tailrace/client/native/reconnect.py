"""How long a client waits before it tries to reach its broker again.

The delays grow at random: each lies between the smallest delay and three times the one before, up to the
largest (decorrelated jitter). So a thousand clients that lost one broker do not come back in one instant.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tailrace.model import ConfigError

_GROWTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnect:
    """When to try again. The defaults try for ever.

    AsyncClient(reconnect=Reconnect(delay_s_max=1.0, attempts_max=20))
    AsyncClient(reconnect=None)       # never: every loss is an error at once
    """

    delay_s_min: float = 0.05
    delay_s_max: float = 5.0
    attempts_max: int | None = None  # in a row, without success; None: no end

    def __post_init__(self) -> None:
        if not 0 < self.delay_s_min <= self.delay_s_max:
            raise ConfigError(
                f"reconnect: delay_s_min = {self.delay_s_min} must be above 0 and not above delay_s_max ="
                f" {self.delay_s_max}"
            )
        if self.attempts_max is not None and self.attempts_max < 1:
            raise ConfigError(
                f"reconnect: attempts_max = {self.attempts_max} must be at least 1. To never try again, say"
                " reconnect=None"
            )

    def delays(self, chooser: random.Random | None = None) -> Iterator[float]:
        """Seconds to wait before each attempt, one after the other."""
        return islice(self._endless(chooser or random.Random()), self.attempts_max)

    def _endless(self, chooser: random.Random) -> Iterator[float]:
        delay_s = self.delay_s_min
        while True:
            delay_s = min(self.delay_s_max, chooser.uniform(self.delay_s_min, delay_s * _GROWTH))
            yield delay_s
