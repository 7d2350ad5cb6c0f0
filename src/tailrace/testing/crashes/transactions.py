"""Transactions in a history: who begins and ends them, and what a reader of committed records may see.

Every transaction has a serial number, and each of its batches, the marker included, carries that as its time.
So a batch that is found later tells which transaction it belongs to, whatever was truncated, lost or
compacted meanwhile, and the oracle knows how that one ended.

- A reader is shown the records of transactions that a marker committed, and none of any other.
- A transaction that was shown as committed is never open again, unless a truncation undoes its marker.
- A transaction whose marker was acknowledged is not open after a recovery.
"""

from __future__ import annotations

import random

from tailrace.broker.partition import Partition
from tailrace.broker.visible_records import Portion, read
from tailrace.model import Epoch
from tailrace.records import build_batch, iter_batches, read_batch, write_marker
from tailrace.storage.segment import SegmentLog
from tailrace.testing.crashes.oracle import Oracle, Wrong, serial_of

_PRODUCERS = (10, 11, 12)
_END_CHANCE = 0.45
_READ_BYTES = 1500


class Transactions:
    """The transactions of one history."""

    def __init__(self, rng: random.Random, oracle: Oracle) -> None:
        self._rng = rng
        self._oracle = oracle
        self._serial = 0
        self._sequences: dict[tuple[int, int], int] = {}
        self._shown: dict[int, set[int]] = {}  # by life: transactions that a reader saw as committed
        self._cut: set[int] = set()  # lives with a truncation under way

    def append(self, log: SegmentLog, epoch: Epoch, *, key: bytes, value: bytes) -> None:
        """Begin a transaction of some producer, go on with it, or end it."""
        # Of few producers all transactions are decided more often: only then compaction gets on.
        producer_id = self._rng.choice(_PRODUCERS[: 1 + log.life % len(_PRODUCERS)])
        known = log.producers.open_transaction(producer_id)
        if known is not None and self._rng.random() < _END_CHANCE:
            self._end(log, producer_id, known.started_ms, epoch)
            return
        if known is None:
            self._serial += 1
        sequence = self._sequences.get((log.life, producer_id), 0)
        batch = build_batch(
            [(self._serial if known is None else known.started_ms, key, value, ())],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        log.append(read_batch(batch), leader_epoch=epoch)
        self._sequences[log.life, producer_id] = sequence + 1

    def _end(self, log: SegmentLog, producer_id: int, serial: int, epoch: Epoch) -> None:
        commit = self._rng.random() < 0.5
        marker = write_marker(producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=serial)
        log.append(marker, leader_epoch=epoch)
        self._oracle.outcomes.setdefault(serial, set()).add(commit)
        if serial in self._shown.get(log.life, ()):
            raise Wrong(f"{log}: transaction {serial} is open again after it was shown as committed")

    def begin_cut(self, log: SegmentLog) -> None:
        """Markers may be undone from now on, also if a crash comes before the end of the truncation."""
        self._shown.pop(log.life, None)
        self._cut.add(log.life)

    def end_cut(self, log: SegmentLog) -> None:
        self._cut.discard(log.life)

    def check_recovered(self, log: SegmentLog) -> None:
        """No transaction is open whose marker was acknowledged."""
        self.end_cut(log)
        ended = self._oracle.ended.get(log.life, {})
        for producer_id, known in log.producers.open_transactions():
            if known.started_ms in ended:
                place = ended[known.started_ms]
                raise Wrong(
                    f"{log}: transaction {known.started_ms} of producer {producer_id} is open, and its "
                    f"marker at {place} was acknowledged"
                )

    async def check_visible(self, partition: Partition, log: SegmentLog) -> None:
        """A reader of committed records sees those that were committed, and no others."""
        offset = int(partition.start_offset)
        truncations = log.truncations
        while offset < partition.last_stable_offset:
            portion = await read(partition, offset, bytes_max=_READ_BYTES)
            if log.truncations != truncations:
                return  # what was listed and what was read may belong to two histories
            self._check_portion(portion, log, offset)
            offset = portion.next_offset

    def _check_portion(self, portion: Portion, log: SegmentLog, offset: int) -> None:
        shown = {visible.batch.base_offset for visible in portion.batches()}
        for batch in iter_batches(portion.data):
            if batch.is_control or not batch.is_transactional or not batch.count:
                continue
            serial, is_shown = serial_of(batch), batch.base_offset in shown
            if is_shown not in self._oracle.outcomes.get(serial, ()) and batch.next_offset > offset:
                word = "shown" if is_shown else "not shown"
                raise Wrong(
                    f"{log}: the batch at {batch.base_offset} is {word}, and its transaction {serial} ended "
                    f"with {self._oracle.outcomes.get(serial)}"
                )
            if is_shown and log.life not in self._cut:
                self._shown.setdefault(log.life, set()).add(serial)
