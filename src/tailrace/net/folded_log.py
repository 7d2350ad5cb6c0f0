"""Log lines that clients cause: one per subject and minute, and the number of those that were left out."""

from __future__ import annotations

import logging
from typing import Final

_EVERY_S: Final = 60.0
_SUBJECTS_MAX: Final = 1_000


class FoldedLog:
    """Keeps what many clients do wrong from filling the log."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._seen: dict[str, tuple[float, int]] = {}  # by subject: when it was logged, and how many since

    def warn(self, message: str, *details: object, subject: str, now: float) -> None:
        """Log a warning, unless one about the same subject was logged within the last minute."""
        at, folded = self._seen.get(subject, (-_EVERY_S, 0))
        if now - at < _EVERY_S:
            self._seen[subject] = (at, folded + 1)
            return
        if len(self._seen) >= _SUBJECTS_MAX:
            self._seen.clear()
        self._seen[subject] = (now, 0)
        more = f", and {folded} times before" if folded else ""
        self._logger.warning(message + "%s", *details, more)
