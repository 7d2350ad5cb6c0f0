"""When a request is due.

An open loop: requests are due at even distances from the beginning, whether or not the broker keeps up, so a
broker that slows down is not asked for less. What could not be sent in time is sent later, but a debt over
`debt_s` is forgiven: one stall shall not turn half a load into a full one for minutes.

Without a rate everything is due at once: that is the closed loop of the calibration.
"""

from __future__ import annotations

import math

DEBT_S = 1.0
_ROUNDING = 1e-6  # of a request: whoever comes at the time that `next_s` told is not too early


class Pace:
    """The timetable of one sender; times are seconds of any steady clock."""

    __slots__ = ("_began_s", "_debt_max", "_per_s", "forgiven", "taken")

    def __init__(self, *, per_s: float | None, began_s: float, debt_s: float = DEBT_S) -> None:
        if per_s is not None and per_s <= 0:
            raise ValueError(f"a rate is above 0, not {per_s}")
        self._per_s = per_s
        self._began_s = began_s
        self._debt_max = 0 if per_s is None else max(math.ceil(per_s * debt_s), 1)
        self.taken = 0
        self.forgiven = 0

    def take(self, now_s: float, *, room: int) -> int:
        """How many to send now, of at most `room`; they count as sent."""
        if self._per_s is None:
            count = room
        else:
            due = math.floor((now_s - self._began_s) * self._per_s + _ROUNDING) + 1
            debt = due - self.taken - self.forgiven
            if debt > self._debt_max:
                self.forgiven += debt - self._debt_max
                debt = self._debt_max
            count = max(min(debt, room), 0)
        self.taken += count
        return count

    def next_s(self) -> float | None:
        """When the next one is due, in the past if it is late; None if nothing depends on the time."""
        if self._per_s is None:
            return None
        return self._began_s + (self.taken + self.forgiven) / self._per_s
