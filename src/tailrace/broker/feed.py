"""Records of one partition, one after the other, for whoever goes through it: a subscription, a live tail.

A feed has a position and gives the records from there on, decoded as they are asked for. What is hot comes at
once; what is cold is loaded beside everything else, and `wake` is called when it is there. Offsets that hold
no record for anybody (control batches, what compaction removed) and offsets that are gone from the log are
told apart: the first are nothing, the second are messages that nobody will get. A batch whose records make
no sense, which a producer can send with a correct checksum, counts among the second: it must not hold up the
rest.

A feed ends at the high watermark, or at `limit` if it has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from tailrace.broker.partition import Partition
from tailrace.model import BrokerError, Offset, OffsetOutOfRange, StorageError
from tailrace.records import Batch, BatchError, Record, iter_batches
from tailrace.runtime import Supervisor
from tailrace.storage.api import Slice

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
        "_next_slice_at",
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
        self.limit = limit  # exclusive; None: as far as the partition goes
        self.skipped = 0  # offsets that were gone before anybody got them; taken by the owner
        self.error: BrokerError | None = None  # why it does not go on, until it does
        self._batches: Iterator[Batch] = iter(())  # of the slice that is being given
        self._batch: Batch | None = None
        self._records: Iterator[Record] | None = None  # of that batch
        self._next_slice_at = position
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
        self.position = self._next_slice_at = position

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
                        if record.offset >= self.position:
                            return self._give(record)
                except BatchError as error:
                    self._pass_batch(error)
            if not self._next_batch() and (self._loading is not None or not self._open_slice()):
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
        found = await self._partition.read(Offset(offset), bytes_max=1)
        data = await found.load()
        self.end_fetching()  # nothing waits between here and whoever takes the record
        for batch in iter_batches(data):
            if batch.base_offset <= offset < batch.next_offset:
                self._fetched = batch.records()
                self._fetch_from, self._fetch_end = batch.base_offset, batch.next_offset
                return

    # ---- inside

    def _give(self, record: Record) -> Record | None:
        if self.limit is not None and record.offset >= self.limit:
            self.move_to(self.limit)  # what is below it is over
            return None
        self.position = record.offset + 1
        return record

    def _next_batch(self) -> bool:
        """Go on with the next batch of the slice, if there is one."""
        self._records = None
        for batch in self._batches:
            if not batch.is_control:
                self._batch, self._records = batch, batch.records()
                return True
        self.position = max(self.position, self._next_slice_at)
        return False

    def _pass_batch(self, error: BatchError) -> None:
        assert self._batch is not None
        logger.warning("records passed over: %s offset=%d %s", self._partition.name, self.position, error)
        self.skipped += self._batch.next_offset - max(self.position, self._batch.base_offset)
        self.position = self._batch.next_offset

    def _open_slice(self) -> bool:
        """Begin with the next batches; whether some are there."""
        self.error = None
        try:
            self._partition.check_led()
            end = self._partition.high_watermark if self.limit is None else self.limit
            if self.position >= end:
                return False
            found = self._partition.read_nowait(Offset(self.position), bytes_max=_READ_BYTES)
        except OffsetOutOfRange as gone:
            return self._skip_to(gone.start)
        except BrokerError as error:
            self.error = error
            return False
        if found is not None and (data := _load_nowait(found)) is not None:
            return self._begin(found, data)
        self._loading = self._tasks.start(f"read {self._partition.name}", self._load())
        return False

    def _skip_to(self, start: int) -> bool:
        if start <= self.position:
            return False  # it lies past the end: the log was cut, and grows again
        self.skipped += start - self.position
        self.position = self._next_slice_at = start
        return self._open_slice()

    def _begin(self, found: Slice, data: bytes) -> bool:
        self._batches = iter_batches(data)
        self._next_slice_at = found.next_offset
        return found.size > 0

    async def _load(self) -> None:
        try:
            found = await self._partition.read(Offset(self.position), bytes_max=_READ_BYTES)
            self._begin(found, await found.load())
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


def _load_nowait(found: Slice) -> bytes | None:
    """The bytes of a slice if all are in memory. Copied: decoding is lazy and buffers are pooled."""
    parts = []
    for extent in found.extents:
        view = extent.load_nowait()
        if view is None:
            return None
        parts.append(bytes(view))
        extent.release()
    return parts[0] if len(parts) == 1 else b"".join(parts)
