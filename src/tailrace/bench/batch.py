"""Batches of an exact size, made of records of 100 bytes.

An append keeps the buffer that it is given and writes offset and epoch into it, so every append of a load
needs a fresh one; they are made, and validated as a producer's batch is, before the clock runs.
"""

from __future__ import annotations

import random

from tailrace.records import HEADER_BYTES, Batch, BatchError, build_batch, validate_batch

RECORD_BYTES = 100
_RECORD_OVERHEAD_BYTES_MAX = 11  # lengths and deltas of a record of this size in a batch of this size
_TIMESTAMP_MS = 1_700_000_000_000
_ATTEMPTS = 8


def batch_of(size: int) -> bytes:
    """One batch of exactly `size` bytes; its last record takes what the others leave."""
    value = random.Random(size).randbytes(RECORD_BYTES)
    count = max((size - HEADER_BYTES) // (RECORD_BYTES + _RECORD_OVERHEAD_BYTES_MAX), 1)
    last_bytes = RECORD_BYTES
    for _ in range(_ATTEMPTS):  # the length of a length changes once or twice on the way
        values = [value] * (count - 1) + [bytes(last_bytes)]
        built = build_batch((_TIMESTAMP_MS, None, each, ()) for each in values)
        if len(built) == size:
            return bytes(built)
        last_bytes = max(last_bytes + size - len(built), 0)
    raise BatchError(f"no batch takes exactly {size} bytes")


def fresh_batches(template: bytes, count: int) -> list[Batch]:
    """Validated batches, each in a buffer of its own."""
    return [validate_batch(bytearray(template), bytes_max=len(template)) for _ in range(count)]
