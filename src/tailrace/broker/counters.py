"""What the broker has done since it started, as plain integers: counting must cost next to nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Grows only. Records out are counted by offsets, since nobody decodes a batch to count it."""

    records_in: int = 0
    bytes_in: int = 0
    batches_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
