"""Bytes done, reported in steps to whoever watches."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int], None]

_STEP_BYTES = 1 << 20  # moving a progress bar costs more than checking a small batch


class Progress:
    """Gathers small steps into large ones."""

    __slots__ = ("_advance", "_unreported", "bytes")

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._unreported = 0
        self.bytes = 0

    def add(self, bytes_done: int) -> None:
        self.bytes += bytes_done
        self._unreported += bytes_done
        if self._unreported >= _STEP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Report what has not been reported yet."""
        self._advance(self._unreported)
        self._unreported = 0
