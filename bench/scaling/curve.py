"""What a curve is: something that there is more and more of, and figures at each size.

As it stands in a report:

    {"name", "title", "x",                            what grows
     "figures": [{"key", "title", "unit"}],
     "points":  [{"x", "label", key: value ...}],     a figure that has no meaning at a size is absent
     "missing": [{"x", "label", "why"}]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from bench.report import Row
from bench.scaling.bed import Bed

_DECIMAL = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB"))
_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of a curve."""

    key: str
    title: str
    unit: str


def count_label(count: int) -> str:
    """5,000."""
    return f"{count:,}"


def decimal_label(size: int) -> str:
    """1 KB, 10 MB."""
    return _size_label(size, _DECIMAL)


def binary_label(size: int) -> str:
    """64 MiB, 10 GiB."""
    return _size_label(size, _BINARY)


def _size_label(size: int, units: tuple[tuple[int, str], ...]) -> str:
    for unit, name in units:
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`measure` gives the figures at one size by their keys.

    It may add `x`, the size that it could do, with `why` it was not the one that it was asked for.
    """

    name: str
    title: str
    x: str
    figures: tuple[Figure, ...]
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]
    measure: Callable[[Bed, int], Row]
    label: Callable[[int], str] = count_label

    def sizes_for(self, *, quick: bool) -> tuple[int, ...]:
        return self.quick_sizes if quick else self.sizes

    def as_row(self) -> Row:
        """Without its points."""
        figures = [asdict(figure) for figure in self.figures]
        return {"name": self.name, "title": self.title, "x": self.x, "figures": figures}

    def point(self, size: int, found: Mapping[str, object]) -> Row:
        """A point of the report: the figures that were found, and no more than those."""
        reached = found.get("x", size)
        assert isinstance(reached, int)
        kept = {each.key: found[each.key] for each in self.figures if found.get(each.key) is not None}
        return {"x": reached, "label": self.label(reached), **kept}

    def gap(self, size: int, why: str) -> Row:
        """A size without figures of its own."""
        return {"x": size, "label": self.label(size), "why": why}


RATE = Figure(key="per_s", title="requests", unit="per second")
MB_RATE = Figure(key="mb_per_s", title="throughput", unit="MB/s")
P99 = Figure(key="p99_ms", title="p99 latency", unit="ms")
CPU = Figure(key="cpu_us", title="CPU of the broker", unit="µs per request")
MB_CPU = Figure(key="cpu_ms_per_mb", title="CPU of the broker", unit="ms per MB")
MEMORY = Figure(key="rss_mb", title="memory of the broker", unit="MB")
