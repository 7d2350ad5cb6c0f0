"""How long to wait before a connection is tried again: doubling, with a limit, and some of it at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

FIRST_S: Final = 0.05
MOST_S: Final = 2.0


class Backoff:
    """Counts the failures in a row."""

    def __init__(self, *, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._next_s = FIRST_S

    @property
    def is_first(self) -> bool:
        """Whether nothing has failed since the last success."""
        return self._next_s == FIRST_S

    def failed(self) -> float:
        """The seconds to wait after one more failure: half of them for sure, half at random."""
        whole, self._next_s = self._next_s, min(self._next_s * 2, MOST_S)
        return whole / 2 * (1 + self._chance())

    def succeeded(self) -> None:
        self._next_s = FIRST_S
