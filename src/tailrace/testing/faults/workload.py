"""What a fault test writes: batches of every kind, into a directory with small bounds.

The bounds are small so that a second of writing rolls segments, reuses journal files, checkpoints and evicts
many times; the sizes of batches lie on both sides of each of them.
"""

from __future__ import annotations

import random
import time

from tailrace.model import NO_PRODUCER
from tailrace.records import Batch, build_batch, validate_batch
from tailrace.storage import LogConfig
from tailrace.storage.api import COMMIT, Fsync
from tailrace.storage.segment import DirectoryConfig

_KIB = 1024
_BATCH_BYTES_MAX = 120 * _KIB
_PRODUCER_CHANCE = 0.5

LOG_CONFIG = LogConfig(segment_bytes=48 * _KIB, index_interval_bytes=512)

_SIZES = (
    (0.60, 1, 200),  # several of them fill a sector of the journal
    (0.85, 200, 2 * _KIB),
    (0.98, 4 * _KIB, 20 * _KIB),  # by reference
    (1.00, 65 * _KIB, 80 * _KIB),  # by reference, over a segment's size, and a span by itself
)
"""Up to this draw, values of so many bytes, from and to."""


def small_directory(fsync: Fsync = COMMIT) -> DirectoryConfig:
    """Settings under which everything happens often."""
    return DirectoryConfig(
        fsync=fsync,
        journal_file_bytes=128 * _KIB,
        journal_bytes_max=512 * _KIB,
        checkpoint_bytes=128 * _KIB,
        checkpoint_interval_ms=40,
        round_bytes_max=96 * _KIB,
        tail_bytes_max=64 * _KIB,
        inline_bytes_max=3 * _KIB,
        loose_inline_bytes_max=1 * _KIB,
        apply_bytes=8 * _KIB,
        apply_delay_ms=3,
        sync_piece_bytes=32 * _KIB,
        reserve_bytes=8 * _KIB,
        free_bytes_min=256 * _KIB,
        index_cache_bytes=4 * _KIB,
        slow_read_bytes=16 * _KIB,
    )


class BatchSource:
    """Batches that are all different, some of them of an idempotent producer."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._producer_id = 0
        self._sequence = 0
        self.begin_producer()

    def begin_producer(self) -> None:
        """Go on as another producer: what the one before sent may be truncated."""
        self._producer_id = self._rng.getrandbits(48)
        self._sequence = 0

    def draw(self) -> Batch:
        """A batch as a producer's request would bring it."""
        value_bytes = self._draw_size()
        return self.build(self._rng.choice((1, 1, 1, 2, 5)) if value_bytes < 2 * _KIB else 1, value_bytes)

    def build(self, count: int, value_bytes: int) -> Batch:
        """A batch of `count` records with values of a known size."""
        now_ms = time.time_ns() // 1_000_000
        records = [
            (now_ms + index, b"%d" % index, self._rng.randbytes(value_bytes), ()) for index in range(count)
        ]
        producer_id, epoch, sequence = NO_PRODUCER, -1, -1
        if self._rng.random() < _PRODUCER_CHANCE:
            producer_id, epoch, sequence = self._producer_id, 0, self._sequence
            self._sequence += count
        data = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return validate_batch(data, bytes_max=_BATCH_BYTES_MAX)

    def _draw_size(self) -> int:
        draw = self._rng.random()
        low, high = next((low, high) for bound, low, high in _SIZES if draw < bound)
        return self._rng.randint(low, high)
