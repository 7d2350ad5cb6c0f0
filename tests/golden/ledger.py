"""What was written in transactions, and how they ended: kept apart from the broker.

Records of a partition stand in the order in which they were written. A transaction without a fate is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

COMMITTED, ABORTED = "committed", "aborted"


@dataclass(slots=True)
class Ledger:
    """Records by "topic-partition", each a value and the name of its transaction; and fates by that name."""

    records: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    fates: dict[str, str] = field(default_factory=dict)

    def wrote(self, topic: str, partition: int, values: Iterable[bytes], transaction: str) -> None:
        """Records have been stored."""
        rows = self.records.setdefault(f"{topic}-{partition}", [])
        rows += [[value.decode(), transaction] for value in values]

    def ended(self, transaction: str, *, commit: bool) -> None:
        """A transaction is decided."""
        self.fates[transaction] = COMMITTED if commit else ABORTED

    def as_json(self) -> dict[str, Any]:
        return {"records": self.records, "fates": self.fates}


def seen_uncommitted(rows: Sequence[Sequence[str]]) -> list[str]:
    """Every value of a partition."""
    return [value for value, _ in rows]


def seen_committed(rows: Sequence[Sequence[str]], fates: Mapping[str, str]) -> list[str]:
    """The values of a partition that a careful reader sees: none from the first open transaction on."""
    seen = []
    for value, transaction in rows:
        if transaction not in fates:
            break
        if fates[transaction] == COMMITTED:
            seen.append(value)
    return seen
