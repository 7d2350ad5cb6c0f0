"""What is looked for among records, by a read or by a tail: exactly this key, this text somewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Keyed(Protocol):
    """As much of a record as is looked at."""

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which records are shown; one that says nothing shows all."""

    key: bytes | None = None  # exactly this one
    text: bytes | None = None  # somewhere in key or value; an empty one is in every record

    @property
    def is_open(self) -> bool:
        """Whether it lets everything through."""
        return self.key is None and not self.text

    def admits(self, record: Keyed) -> bool:
        """Whether a record is looked for."""
        key, value, text = record.key, record.value, self.text
        if self.key is not None and key != self.key:
            return False
        return not text or (key is not None and text in key) or (value is not None and text in value)
