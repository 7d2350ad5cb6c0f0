"""In which tables the chunks of a log are: by its retention, and by the day of the append.

A class is days of retention rounded up, so that the tables of a day hold what leaves together. What has no
end (compacted, unlimited, over a year) is in the class KEPT, which has no days.
"""

from __future__ import annotations

from typing import Final

from tailrace.storage.api import NO_LIMIT, LogConfig

DAY_MS: Final = 24 * 3600 * 1000
DATED: Final = (1, 7, 31, 366)
KEPT: Final = 0
TIME_END_MS: Final = 1 << 62
"""Above every time of an append."""


def retention_class(config: LogConfig) -> int:
    """The class that a log's new chunks are in."""
    if config.compact or not config.delete or config.retention_ms == NO_LIMIT:
        return KEPT
    return next((days for days in DATED if config.retention_ms <= days * DAY_MS), KEPT)


def day_of_append(retention: int, appended_ms: int) -> int:
    """The day of a chunk, counted from 1970; 0 in the class that has none."""
    return 0 if retention == KEPT else appended_ms // DAY_MS


def times_of_day(retention: int, day: int) -> tuple[int, int]:
    """The first append time of a day, and the first one after it; they tell PostgreSQL which table it is."""
    return (0, TIME_END_MS) if retention == KEPT else (day * DAY_MS, (day + 1) * DAY_MS)
