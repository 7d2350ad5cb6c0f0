"""What the broker has done since it started, as plain integers: counting must cost next to nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_LATENCIES_KEPT = 1024


@dataclass(slots=True)
class Counters:
    """Numbers grow only. Records out are counted by offsets, since nobody decodes a batch to count it."""

    records_in: int = 0
    bytes_in: int = 0
    batches_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    produce_ms: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES_KEPT))
    """How long the newest Produce requests waited for durability."""
