"""One record as a reader sees it, and the shapes in which a writer hands records over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes. A memoryview must have one-byte items, as slices of bytes and bytearray have."""

NewRecord: TypeAlias = tuple[
    int, BytesLike | None, BytesLike | None, Sequence[tuple[str, BytesLike | None]] | tuple[()]
]
"""A record that has no offset yet: (timestamp in ms, key, value, headers)."""


class Record(NamedTuple):
    """A decoded record. Made only where somebody asks for records; the broker itself works per batch."""

    offset: int
    timestamp: int
    """Milliseconds since 1970; the batch's append time where the topic stamps it, else the producer's."""
    key: bytes | None
    value: bytes | None
    """None is a tombstone: compaction forgets the key."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """In the order written; a key may occur more than once."""
