"""Which of too many are shown: labels of a metric are what a scraper pays for, and clients make names.

Those that were shown stay shown as long as they exist: a series that came and went with the traffic of others
would be of no use. The room that is left goes to the most active of the rest, whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that might be shown."""

    cost: int = 1  # series that it takes
    activity: int = 0


class Choice:
    """What is shown, from one look to the next."""

    __slots__ = ("_shown",)

    def __init__(self) -> None:
        self._shown: dict[str, None] = {}

    def choose(self, candidates: Mapping[str, Candidate], *, series_max: int) -> set[str]:
        """The names that fit into so many series."""
        kept: dict[str, None] = {}
        rest = [name for name in candidates if name not in self._shown]
        rest.sort(key=lambda name: (-candidates[name].activity, name))
        left = series_max
        for name in [*(name for name in self._shown if name in candidates), *rest]:
            if candidates[name].cost <= left:
                kept[name] = None
                left -= candidates[name].cost
        self._shown = kept
        return set(kept)
