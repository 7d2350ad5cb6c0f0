"""Flat or not, by arithmetic.

The time of a run is cut into four quarters. The first is warm-up and counts for nothing. A figure is flat if
the median of the last quarter is within a tenth of the median of the second, or within an amount that is
noise for its kind, whichever is more. Medians forgive single outliers and the teeth of a saw; a line by least
squares through the last three quarters tells how fast a figure grows, in units per hour.

A figure that falls is told as such. That fails a figure of which more is better, such as the load itself; for
memory, descriptors or lag it means that the second quarter was the busier one, and nothing leaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

SHARE_MAX = 0.1
SAMPLES_MIN = 3  # of each of the quarters that are compared
_HOUR_S = 3600.0


class Course(StrEnum):
    """What a figure did."""

    FLAT = "flat"
    RISES = "rises"
    FALLS = "falls"
    TOO_SHORT = "too short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure that is judged: its column, its unit, and how much is noise."""

    name: str
    title: str
    unit: str
    noise: float
    more_is_better: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one figure went. Medians are None where there was too little to tell."""

    name: str
    title: str
    unit: str
    second: float | None
    last: float | None
    slope_per_hour: float | None
    course: str
    passed: bool


def judge(figure: Figure, times_s: Sequence[float], values: Sequence[float], *, span_s: float) -> Verdict:
    """The verdict on one series over a run of `span_s` seconds."""
    second = [value for at, value in zip(times_s, values, strict=True) if quarter(at, span_s) == 1]
    last = [value for at, value in zip(times_s, values, strict=True) if quarter(at, span_s) == 3]
    before = median(second) if len(second) >= SAMPLES_MIN else None
    after = median(last) if len(last) >= SAMPLES_MIN else None
    course = course_of(before, after, noise=figure.noise)
    warm = [pair for pair in zip(times_s, values, strict=True) if quarter(pair[0], span_s) > 0]
    bad = {Course.TOO_SHORT, Course.FALLS if figure.more_is_better else Course.RISES}
    return Verdict(
        name=figure.name,
        title=figure.title,
        unit=figure.unit,
        second=before,
        last=after,
        slope_per_hour=slope_per_hour(warm),
        course=str(course),
        passed=course not in bad,
    )


def course_of(before: float | None, after: float | None, *, noise: float) -> Course:
    """From the medians of two quarters."""
    if before is None or after is None:
        return Course.TOO_SHORT
    if abs(after - before) <= max(abs(before) * SHARE_MAX, noise):
        return Course.FLAT
    return Course.RISES if after > before else Course.FALLS


def quarter(at_s: float, span_s: float) -> int:
    """0 to 3: which quarter of the run a time belongs to."""
    return min(max(int(4 * at_s / span_s), 0), 3) if span_s > 0 else 0


def slope_per_hour(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Of the least-squares line through (seconds, value); None for fewer than two times."""
    count = len(pairs)
    if count < 2:
        return None
    mean_at = sum(at for at, _ in pairs) / count
    mean_value = sum(value for _, value in pairs) / count
    spread = sum((at - mean_at) ** 2 for at, _ in pairs)
    if spread == 0:
        return None
    common = sum((at - mean_at) * (value - mean_value) for at, value in pairs)
    return common / spread * _HOUR_S
