"""Percentiles of a handful of values."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], part: float) -> float | None:
    """The value that `part` of all do not exceed; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
