"""Records out of fetched bytes: from a position on, in order, as the isolation level allows.

`records.Walk` decides which batches are visible. For read_committed it leaves out the transactions that the
broker lists as aborted. Here the position follows the records that were taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tailrace.client.transfer import Fetched
from tailrace.records import BatchError, Record, Walk


class RecordReader:
    """The records of one partition's part of a reply; `position` is the next offset to be read."""

    __slots__ = ("_batches", "_damage", "_records", "_walk", "high_watermark", "position")

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
        self._walk = Walk(position)
        self._batches = self._walk.over(
            fetched.records,
            aborted=fetched.aborted if read_committed else (),
            check_crcs=check_crcs,
            may_be_cut=True,
        )
        self._records: Iterator[Record] | None = None  # of the batch that is being taken
        self._damage: BatchError | None = None  # what cannot be passed

    def take(self, count_max: int) -> list[Record]:
        """The next records, at most `count_max`; fewer, or none, at the end.

        Raises BatchError at damage, once every record before it was taken: `position` stays there.
        """
        taken: list[Record] = []
        if self._damage is None:
            try:
                self._take_into(taken, count_max)
            except BatchError as error:
                self._damage = error
            passed = self._walk.next_offset
            self.position = max(self.position, passed, taken[-1].offset + 1 if taken else passed)
        if self._damage is not None and not taken:
            raise self._damage
        return taken

    def _take_into(self, taken: list[Record], count_max: int) -> None:
        while len(taken) < count_max:
            if self._records is None:
                visible = next(self._batches, None)
                if visible is None:
                    break
                self._records = visible.records()
            # What comes before damage within a batch stays taken: a list keeps what it was extended by.
            taken.extend(islice(self._records, count_max - len(taken)))
            if len(taken) < count_max:
                self._records = None
