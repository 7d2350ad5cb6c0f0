"""Our log and the bare system calls in turns.

Each does its work several times, and who goes first changes with every turn: what the disk, the page cache
and other programs do to one they do to the other. The medians are compared, so a hiccup costs one run and not
the figure.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

_Result = TypeVar("_Result")


_RUNS_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How many runs of either side count, and how long they may take; past that it is fewer, but three."""

    runs: int
    seconds_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How much either side did in a second, run by run."""

    unit: str
    ours: tuple[float, ...]
    bare: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Over 1: we are faster than the bare calls."""
        return round(median(self.ours) / median(self.bare), 3)

    def details(self) -> dict[str, object]:
        """The absolute figures, for a report."""
        return {
            "unit": self.unit,
            "runs": len(self.ours),
            "tailrace": _summary(self.ours),
            "bare": _summary(self.bare),
        }


async def compare(
    turns: Turns, *, unit: str, ours: Callable[[], Awaitable[float]], bare: Callable[[], float]
) -> Comparison:
    """Let both run once uncounted and then in turns; each returns how much it did in a second."""
    ours_rates: list[float] = []
    bare_rates: list[float] = []
    deadline = time.monotonic() + turns.seconds_max
    for run in range(turns.runs + 1):
        if run > _RUNS_MIN and time.monotonic() > deadline:
            break
        if run % 2:
            ours_rates.append(await _undisturbed(ours))
            bare_rates.append(_undisturbed(bare))
        else:
            bare_rates.append(_undisturbed(bare))
            ours_rates.append(await _undisturbed(ours))
    return Comparison(unit=unit, ours=tuple(ours_rates[1:]), bare=tuple(bare_rates[1:]))


def _undisturbed(side: Callable[[], _Result]) -> _Result:
    """What the run before left behind is collected before this one begins."""
    gc.collect()
    return side()


def _summary(rates: tuple[float, ...]) -> dict[str, float]:
    return {"min": round(min(rates), 1), "median": round(median(rates), 1), "max": round(max(rates), 1)}
