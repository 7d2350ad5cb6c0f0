"""Every curve, point by point, each with a server of its own.

A point that cannot be measured leaves its reason. What was found is in the report as soon as it is known, so
an interrupt loses the point under way and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.measure import Durations
from bench.report import Report, Row
from bench.scaling import connections, consumers, groups, log_size, message_size, partitions
from bench.scaling.bed import open_bed
from bench.scaling.curve import Curve
from bench.server import NotHere
from tailrace.bench.wire import LoadError

KIND = "scaling"
CURVES = (
    partitions.CURVE,
    connections.CURVE,
    message_size.CURVE,
    consumers.CURVE,
    log_size.CURVE,
    groups.CURVE,
)


def is_about_curves(word: str) -> bool:
    """Whether a word of the command line is for this package."""
    return word == KIND or word.startswith(f"{KIND}-")


def plan_curves(only: Sequence[str]) -> list[Curve]:
    """Those that a word of `only` begins, such as `scaling-groups`; all for `scaling`, or without a word."""
    for word in only:
        if not any(_matches(curve, word) for curve in CURVES):
            known = ", ".join(f"{KIND}-{curve.name}" for curve in CURVES)
            raise ValueError(f"no curve is called {word!r}; there are {KIND}, {known}")
    return [curve for curve in CURVES if not only or any(_matches(curve, word) for word in only)]


def _matches(curve: Curve, word: str) -> bool:
    return word == KIND or f"{KIND}-{curve.name}".startswith(word)


def count_points(curves: Sequence[Curve], *, quick: bool) -> int:
    """What a progress bar counts."""
    return sum(len(curve.sizes_for(quick=quick)) for curve in curves)


def run_curves(
    curves: Sequence[Curve],
    durations: Durations,
    report: Report,
    *,
    directory: Path,
    note: Callable[[str], None],
    save: Callable[[Report], None],
) -> None:
    """Measure the curves into the report; `save` is called after each."""
    for curve in curves:
        points: list[Row] = []
        missing: list[Row] = []
        report.scaling.append({**curve.as_row(), "points": points, "missing": missing})
        for size in curve.sizes_for(quick=report.quick):
            note(f"{KIND}-{curve.name}: {curve.label(size)}")
            try:
                with open_bed(directory, durations) as bed:
                    found = curve.measure(bed, size)
            except (LoadError, NotHere, OSError) as error:
                missing.append(curve.gap(size, str(error)))
                continue
            if why := found.get("why"):
                missing.append(curve.gap(size, f"{why}; {found['x']} were measured instead"))
            points.append(curve.point(size, found))
        save(report)
