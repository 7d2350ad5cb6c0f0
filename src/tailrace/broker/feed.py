"""The visible records of one partition, one after the other, for a subscription or a live tail.

A feed has a position and gives the records from there on, decoded as they are asked for. Hot records come at
once; cold ones are loaded beside everything else, and `wake` is called when they are there. Two kinds of
offsets are told apart. Those that hold no visible record (control batches, what compaction removed) are
passed. Those that are gone from the log are messages that are never delivered: they are counted in `skipped`.
A batch whose records make no sense, which a producer can send with a correct checksum, counts among the
second: it must not hold up the rest.

A feed ends at the last stable offset, or at `limit` if it has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from tailrace.broker.partition import Partition
from tailrace.broker.visible_records import Portion, read, read_nowait
from tailrace.model import BrokerError, OffsetOutOfRange, StorageError
from tailrace.records import NO_END, BatchError, Record, Visible
from tailrace.runtime import Supervisor

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_RETRY_S = 1.0


class Feed:
    """Reads one partition forwards; the next record that `take_nowait` gives is at `position` or after."""

    __slots__ = (
        "_batch",
        "_batches",
        "_fetch_end",
        "_fetch_from",
        "_fetched",
        "_loading",
        "_next_portion_at",
        "_partition",
        "_records",
        "_tasks",
        "_wake",
        "error",
        "limit",
        "position",
        "skipped",
    )

    def __init__(
        self,
        partition: Partition,
        position: int,
        *,
        tasks: Supervisor,
        wake: Callable[[], None],
        limit: int | None = None,
    ) -> None:
        self._partition = partition
        self._tasks = tasks
        self._wake = wake
        self.position = position
        self.limit = limit  # exclusive, and only ever raised; None: as far as the partition goes
        self.skipped = 0  # offsets that were gone before anybody got them; taken by the owner
        self.error: BrokerError | None = None  # why it does not go on, until it does
        self._batches: Iterator[Visible] = iter(())  # of the portion that is being given
        self._batch: Visible | None = None
        self._records: Iterator[Record] | None = None  # of that batch
        self._next_portion_at = position
        self._loading: asyncio.Task[None] | None = None
        self._fetched: Iterator[Record] = iter(())  # of the batch that was last fetched from
        self._fetch_from = self._fetch_end = 0  # the offsets that it still has

    def __repr__(self) -> str:
        return f"<Feed of {self._partition.name} at {self.position}>"

    @property
    def is_loading(self) -> bool:
        """Whether its next record comes from the disk, and `wake` will be called."""
        return self._loading is not None

    def move_to(self, position: int) -> None:
        """Go on from elsewhere; what was being loaded is forgotten."""
        self.close()
        self.position = self._next_portion_at = position

    def close(self) -> None:
        """Load nothing more."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self._batches, self._records = iter(()), None

    def take_nowait(self) -> Record | None:
        """The next record; None if there is none, or none yet: then `wake` is called once there may be."""
        while True:
            if self._records is not None:
                try:
                    for record in self._records:
                        self.position = record.offset + 1
                        return record
                except BatchError as error:
                    self._pass_batch(error)
            for batch in self._batches:
                self._batch = batch
                try:
                    self._records = batch.records()
                except BatchError as error:
                    self._pass_batch(error)
                break
            else:
                self._records = None
                if self.position < self._next_portion_at:
                    self.position = self._next_portion_at
                if self._loading is not None or not self._open_portion():
                    return None

    async def fetch(self, offset: int) -> Record | None:
        """The record at one offset, for delivering it again; None if it is gone, BrokerError if not.

        Who fetches many in ascending order has each batch decoded once. `end_fetching` lets go of the last.
        """
        try:
            if not self._fetch_from <= offset < self._fetch_end:
                await self._open_batch(offset)
            for record in self._fetched:
                if record.offset >= offset:
                    self._fetch_from = record.offset + 1
                    return record if record.offset == offset else None
        except (OffsetOutOfRange, BatchError):
            self.end_fetching()
        except (BrokerError, StorageError):
            if self._partition.log is not None:
                raise
            # Else the topic is gone.
        return None

    def end_fetching(self) -> None:
        """Keep nothing of what was fetched."""
        self._fetched, self._fetch_end = iter(()), 0

    async def _open_batch(self, offset: int) -> None:
        portion = await read(self._partition, offset, bytes_max=1)
        self.end_fetching()  # nothing waits between here and whoever takes the record
        for batch in portion.batches():
            self._fetched = batch.records()
            self._fetch_from, self._fetch_end = batch.first, batch.end
            return

    # ---- inside

    def _pass_batch(self, error: BatchError) -> None:
        assert self._batch is not None
        logger.warning("records passed over: %s offset=%d %s", self._partition.name, self.position, error)
        self._records = None
        self.skipped += self._batch.end - max(self.position, self._batch.first)
        self.position = self._batch.end

    def _open_portion(self) -> bool:
        """Begin with the next batches; whether some are there."""
        self.error = None
        try:
            self._partition.check_led()
            end: int = self._partition.last_stable_offset
            if self.limit is not None and self.limit < end:
                end = self.limit
            if self.position >= end:
                return False
            portion = read_nowait(self._partition, self.position, bytes_max=_READ_BYTES, end=end)
        except OffsetOutOfRange as gone:
            return self._skip_to(gone.start)
        except BrokerError as error:
            self.error = error
            return False
        if portion is not None:
            return self._begin(portion)
        self._loading = self._tasks.start(f"read {self._partition.name}", self._load())
        return False

    def _skip_to(self, start: int) -> bool:
        if start <= self.position:
            return False  # it lies past the end: the log was cut, and grows again
        self.skipped += start - self.position
        self.position = self._next_portion_at = start
        return self._open_portion()

    def _begin(self, portion: Portion) -> bool:
        self._batches = portion.batches()
        self._next_portion_at = portion.next_offset
        return portion.next_offset > self.position

    async def _load(self) -> None:
        try:
            end = NO_END if self.limit is None else self.limit
            self._begin(await read(self._partition, self.position, bytes_max=_READ_BYTES, end=end))
        except OffsetOutOfRange:
            pass  # trimmed meanwhile: the next look finds out
        except BrokerError as error:
            self.error = error
        except Exception as error:
            self._loading = None
            if isinstance(error, StorageError) and self._partition.log is None:
                return  # the topic was deleted while it was read
            raise
        self._loading = None
        if self.error is None:
            self._wake()
        else:  # what cannot be read now hardly can in a moment
            asyncio.get_running_loop().call_later(_RETRY_S, self._wake)
