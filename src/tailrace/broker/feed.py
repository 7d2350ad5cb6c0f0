"""The visible records of one partition, one after the other, for a subscription or a live tail.

A feed has a position and gives the records from there on, decoded as they are asked for. Hot records come at
once; cold ones are loaded beside everything else, and `wake` is called when they are there. Two kinds of
offsets are told apart. Those that hold no visible record (control batches, what compaction removed) are
passed. Those that are gone from the log are messages that are never delivered: each run of them is a `Skip`.
A batch that cannot be decoded, which a producer can send with a correct checksum, counts among the second: it
must not hold up the rest. Every skip says why (`Skip.fault`), and is logged once by each feed.

One call passes over a bounded number of such batches. Then the loop has its turn, and `wake` is called. A
large batch is opened beside everything else (`storage.opening`), like one that is loaded.

A feed ends at the last stable offset, or at `limit` if it has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.broker.partition import Partition
from tailrace.broker.visible_records import Portion, read, read_nowait
from tailrace.model import BrokerError, OffsetOutOfRange, StorageError
from tailrace.records import COMPRESSION_MASK, NO_END, BadSpan, BatchError, Record, Visible
from tailrace.runtime import Supervisor
from tailrace.storage.opening import find_from, open_nowait, open_records

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_RETRY_S = 1.0
_PASSES_MAX = 16  # batches that one call tries to decode in vain: each may take a while
_SKIPS_MAX = 64  # kept apart until the owner takes them; further ones are counted with the last


@dataclass(frozen=True, slots=True)
class Skip:
    """Messages in a row that are never delivered, and why."""

    offset: int
    """The offset of the first."""
    count: int
    fault: str
    """What is wrong with their batch; empty if they are gone from the log."""


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
        "_rest",
        "_tasks",
        "_wake",
        "error",
        "limit",
        "position",
        "skips",
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
        self.skips: list[Skip] = []  # what was never delivered; taken by the owner
        self.error: BrokerError | None = None  # why it does not go on, until it does
        self._batches: Iterator[Visible] = iter(())  # of the portion that is being given
        self._batch: Visible | None = None
        self._records: Iterator[Record] | None = None  # of that batch
        self._next_portion_at = position
        self._loading: asyncio.Task[None] | None = None
        self._rest: asyncio.Handle | None = None  # set while the loop has its turn between two passes
        self._fetched: Iterator[Record] = iter(())  # of the batch that was last fetched from
        self._fetch_from = self._fetch_end = 0  # the offsets that it still has

    def __repr__(self) -> str:
        return f"<Feed of {self._partition.name} at {self.position}>"

    @property
    def is_loading(self) -> bool:
        """Whether its next record is not here yet, and `wake` will be called."""
        return self._loading is not None or self._rest is not None

    def move_to(self, position: int) -> None:
        """Go on from elsewhere; what was being loaded is forgotten."""
        self.close()
        self.position = self._next_portion_at = position

    def close(self) -> None:
        """Load nothing more."""
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._batches, self._records = iter(()), None

    def take_nowait(self) -> Record | None:
        """The next record; None if there is none, or none yet: then `wake` is called once there may be."""
        passes = 0
        while self._rest is None and self._loading is None:
            try:
                if self._records is not None:
                    for record in self._records:
                        self.position = record.offset + 1
                        return record
                    self._records = None
                for batch in self._batches:
                    self._batch = batch
                    found = batch.batch
                    if found.attributes & COMPRESSION_MASK or batch.first > found.base_offset:
                        self._open(batch)
                    else:  # most are plain and read from their first record on
                        self._records = batch.records()
                    break
                else:
                    if self.position < self._next_portion_at:
                        self.position = self._next_portion_at
                    if not self._open_portion():
                        return None
            except BatchError as error:
                self._pass_batch(error)
                passes += 1
                if passes >= _PASSES_MAX:
                    self.rest()
        return None

    def rest(self) -> None:
        """Give nothing more in this turn of the loop; `wake` is called in the next one."""
        if self._rest is None:
            self._rest = asyncio.get_running_loop().call_soon(self._go_on)

    async def fetch(self, offset: int) -> Record | None:
        """The record at one offset, for delivering it again; None if it is gone, BrokerError if not.

        Who fetches many in ascending order has each batch decoded once. `end_fetching` lets go of the last.
        """
        records, start, end = self._fetched, self._fetch_from, self._fetch_end
        self.end_fetching()  # two may fetch at a time: what one of them reads from is its own
        try:
            if not start <= offset < end:
                records, end = await self._open_batch(offset)
            record = await find_from(records, offset)
            if record is not None:
                self._fetched, self._fetch_from, self._fetch_end = records, record.offset + 1, end
                return record if record.offset == offset else None
        except (OffsetOutOfRange, BatchError):
            pass
        except (BrokerError, StorageError):
            if self._partition.is_held_here or self._partition.withheld:
                raise
            # Else the topic is gone.
        return None

    def end_fetching(self) -> None:
        """Keep nothing of what was fetched."""
        self._fetched, self._fetch_end = iter(()), 0

    async def _open_batch(self, offset: int) -> tuple[Iterator[Record], int]:
        """The records from an offset on of the batch that holds it, and where they end."""
        portion = await read(self._partition, offset, bytes_max=1)
        for batch in portion.batches():
            opened = open_nowait(batch) or await open_records(batch)
            return opened.records, batch.end
        return iter(()), 0

    def skip(self, offset: int, count: int, fault: str = "") -> None:
        """Note messages that are never delivered."""
        if len(self.skips) < _SKIPS_MAX:
            self.skips.append(Skip(offset, count, fault))
        else:
            last = self.skips[-1]
            self.skips[-1] = Skip(last.offset, last.count + count, last.fault)

    def take_skips(self) -> list[Skip]:
        """What was skipped since the last call."""
        taken, self.skips = self.skips, []
        return taken

    # ---- inside

    def _pass_batch(self, error: BatchError) -> None:
        assert self._batch is not None
        self._records = None
        self._pass(max(self.position, self._batch.first), self._batch.end, str(error))

    def _pass_span(self, span: BadSpan) -> bool:
        """Go on behind damage that was found before a batch could be opened."""
        end = self._next_portion_at if span.next_offset is None else span.next_offset
        self._pass(max(self.position, span.first_offset), min(end, self._next_portion_at), span.reason)
        return True

    def _pass(self, first: int, end: int, fault: str) -> None:
        if end > first:
            name = self._partition.name
            logger.warning("records skipped: %s offset=%d count=%d %s", name, first, end - first, fault)
            self.skip(first, end - first, fault)
            self.position = end

    def _go_on(self) -> None:
        self._rest = None
        self._wake()

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
        self._start_loading(self._load())
        return False

    def _start_loading(self, load: Coroutine[Any, Any, None]) -> None:
        self._loading = self._tasks.start(f"read {self._partition.name}", load)

    def _skip_to(self, start: int) -> bool:
        if start <= self.position:
            return False  # it lies past the end: the log was cut, and grows again
        self.skip(self.position, start - self.position)
        self.position = self._next_portion_at = start
        return self._open_portion()

    def _begin(self, portion: Portion) -> bool:
        self._batches = portion.batches(on_damage=self._pass_span)
        self._next_portion_at = portion.next_offset
        return portion.next_offset > self.position

    def _open(self, batch: Visible) -> None:
        opened = open_nowait(batch)
        if opened is None:
            self._start_loading(self._open_large(batch))
        else:
            self._records = opened.records

    async def _open_large(self, batch: Visible) -> None:
        try:
            self._records = (await open_records(batch)).records
        except BatchError as error:
            self._pass_batch(error)
        self._loading = None
        self._wake()

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
            if isinstance(error, StorageError) and not self._partition.is_held_here:
                return  # the topic was deleted while it was read
            raise
        self._loading = None
        if self.error is None:
            self._wake()
        else:  # what cannot be read now hardly can in a moment
            asyncio.get_running_loop().call_later(_RETRY_S, self._wake)
