"""Records out of fetched bytes: whole batches in order, from a position on, as the isolation level allows.

A broker may send records before the position (batches come whole) and the beginning of a batch at the end
(replies are cut by size): the former are passed over, the latter is fetched again. Control batches are never
shown. For read_committed, batches of the transactions that the broker lists as aborted are left out, from
their first offset to their abort marker (KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tailrace.client.transfer import Fetched
from tailrace.model import ErrorCode
from tailrace.records import LOG_OVERHEAD_BYTES, Batch, BatchError, Record, read_batch

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


class RecordReader:
    """The records of one partition's part of a reply; `position` is the next offset to be read."""

    __slots__ = (
        "_aborted",
        "_aborting",
        "_batches",
        "_check_crcs",
        "_damage",
        "_records",
        "high_watermark",
        "position",
    )

    def __init__(
        self,
        fetched: Fetched,
        position: int,
        *,
        read_committed: bool = False,
        check_crcs: bool = True,
    ) -> None:
        self.position = position
        self.high_watermark = fetched.high_watermark
        self._check_crcs = check_crcs
        self._batches = whole_batches(fetched.records)
        self._records: Iterator[Record] | None = None
        self._damage: BatchError | None = None  # what cannot be passed
        aborted = fetched.aborted if read_committed else []
        self._aborted = sorted(aborted, key=lambda each: each[1], reverse=True)  # the earliest last
        self._aborting: set[int] = set()  # producers whose current transaction is one of the aborted

    def take(self, count_max: int) -> list[Record]:
        """The next records, at most so many; fewer, or none, at the end.

        BatchError at what makes no sense, once everything before it was taken: `position` stays there.
        """
        taken: list[Record] = []
        if self._damage is None:
            try:
                self._take_into(taken, count_max)
            except BatchError as error:
                self._damage = error
        if self._damage is not None and not taken:
            raise self._damage
        return taken

    def _take_into(self, taken: list[Record], count_max: int) -> None:
        while len(taken) < count_max:
            if self._records is None and not self._next_batch():
                break
            assert self._records is not None
            for record in self._records:
                if record.offset >= self.position:
                    taken.append(record)
                    self.position = record.offset + 1
                    if len(taken) == count_max:
                        break
            else:
                self._records = None

    def _next_batch(self) -> bool:
        """Start on the next batch that has something to show."""
        for batch in self._batches:
            if batch.next_offset <= self.position:
                continue
            if self._check_crcs and not batch.check_crc():
                raise BatchError(
                    f"the CRC of the batch at offset {batch.base_offset} is wrong",
                    code=ErrorCode.CORRUPT_MESSAGE,
                )
            if not self._hidden(batch):
                self._records = self._of(batch)
                return True
            self.position = batch.next_offset
        return False

    def _of(self, batch: Batch) -> Iterator[Record]:
        yield from batch.records()
        # Compaction may have taken the last records of a batch; its offsets are passed all the same.
        self.position = max(self.position, batch.next_offset)

    def _hidden(self, batch: Batch) -> bool:
        while self._aborted and self._aborted[-1][1] <= batch.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        if batch.is_control:
            # Either marker ends the transaction, and a committed one is not among the aborted.
            self._aborting.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborting


def whole_batches(data: memoryview) -> Iterator[Batch]:
    """The batches that lie in `data` as a whole; one that is cut off at the end is left for the next fetch.

    A first batch that is cut off would be so for ever: brokers send at least one whole (KIP-74).
    """
    position = 0
    while len(data) - position >= LOG_OVERHEAD_BYTES:
        (length,) = _LENGTH.unpack_from(data, position + _LENGTH_AT)
        if length >= 0 and position + LOG_OVERHEAD_BYTES + length > len(data) and position > 0:
            return
        batch = read_batch(data, position)
        yield batch
        position += batch.size
