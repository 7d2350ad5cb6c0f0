"""How long the answer to a failed login waits. Pure: the time is given.

Every failure is answered after 100 ms at least (KIP-306). Each further one from the same address, or for the
same user, doubles the wait of both, up to a bound; a minute without a failure halves it. A success never
waits, so that guessing at a user does not lock the user out. What is remembered is bounded, and the oldest
goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

DELAY_S_MIN: Final = 0.1
DELAY_S_MAX: Final = 5.0
_FREE: Final = 3.0  # so many failures cost the least wait: people mistype
_HALVED_AFTER_S: Final = 60.0
_REMEMBERED_MAX: Final = 10_000


@dataclass(slots=True)
class _Failures:
    count: float
    at: float


class Guessing:
    """Failures by address and by user."""

    def __init__(self, *, remembered_max: int = _REMEMBERED_MAX) -> None:
        self._remembered_max = remembered_max
        self._by_origin: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_origin)

    def failed(self, *, host: str, user: str, now: float) -> float:
        """Note a failure; the seconds after which it may be answered."""
        worst = self._note(("host", host), now)
        if user:
            worst = max(worst, self._note(("user", user), now))
        return min(DELAY_S_MIN * 2 ** max(worst - _FREE, 0.0), DELAY_S_MAX)

    def _note(self, origin: tuple[str, str], now: float) -> float:
        found = self._by_origin.pop(origin, None)
        if found is None:
            found = _Failures(0.0, now)
        found.count = found.count * 0.5 ** ((now - found.at) / _HALVED_AFTER_S) + 1.0
        found.count, found.at = min(found.count, 64.0), now
        self._by_origin[origin] = found
        if len(self._by_origin) > self._remembered_max:
            self._by_origin.popitem(last=False)
        return found.count
