"""What a lake misses: ranges of offsets that were deleted from their topic before they were archived.

The log of the table keeps each as a bad range with the reason `GONE`, so a lake knows for ever what it lacks,
and every run that looks at it can say so. Damaged batches are bad ranges too, but nothing is lost of them:
their bytes are in quarantine.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from tailrace.spark.lake.change import BadRange

GONE = "not in the topic any more"
"""The reason of a range that was deleted, by retention or on request, before it was archived."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MissingRange:
    """Offsets, both ends included, that a lake lacks and its topic too."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} {self.first_offset} to {self.last_offset}"

    @property
    def count(self) -> int:
        return self.last_offset - self.first_offset + 1


def find_missing(bad: Iterable[BadRange], *, topics: Container[str]) -> tuple[MissingRange, ...]:
    """The missing ranges of some topics, in order; ranges that touch each other are one."""
    found: list[MissingRange] = []
    gone = sorted(
        MissingRange(
            topic=each.topic,
            partition=each.partition,
            first_offset=each.first_offset,
            last_offset=each.last_offset,
        )
        for each in bad
        if each.reason == GONE and each.topic in topics
    )
    for each in gone:
        last = found[-1] if found else None
        if (
            last is not None
            and (last.topic, last.partition) == (each.topic, each.partition)
            and each.first_offset <= last.last_offset + 1
        ):
            found[-1] = replace(last, last_offset=max(last.last_offset, each.last_offset))
        else:
            found.append(each)
    return tuple(found)


def tell_missing(missing: Sequence[MissingRange], *, shown_max: int = 5) -> str:
    """In words: "orders-0 10 to 17, orders-1 5 to 9 and 3 more ranges"."""
    text = ", ".join(str(each) for each in missing[:shown_max])
    more = len(missing) - shown_max
    return f"{text} and {more} more ranges" if more > 0 else text
