"""An internal topic in memory, with gates: appends and reads wait, or fail, when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from tailrace.model import Epoch, Offset
from tailrace.records import (
    BytesLike,
    NewRecord,
    Record,
    Visible,
    Walk,
    build_batch,
    read_batch,
    write_marker,
)
from tailrace.storage.api import Waiter


class MemoryLog:
    """Implements `InternalLog`. What is in `batches` outlives whoever wrote it; another one may read it."""

    def __init__(self, partitions: int = 4, *, exists: bool = True) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.led = set(range(partitions))
        self.appends = 0
        self.ensured = 0
        self.append_error: Exception | None = None  # of every append
        self.next_append_error: Exception | None = None  # of the next one only
        self.read_error: Exception | None = None
        self.ensure_error: Exception | None = None
        self._is_held = False
        self._waiting: list[Waiter] = []  # for durability
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.appending = asyncio.Event()  # a batch is in flight, and held there
        self._wanted = partitions
        self._exists = exists

    @property
    def partitions(self) -> int:
        return self._wanted if self._exists else 0

    def leads(self, partition: int) -> bool:
        return partition in self.led

    async def ensure(self) -> None:
        self.ensured += 1
        await asyncio.sleep(0)
        if self.ensure_error is not None:
            raise self.ensure_error
        self._exists = True

    def sequence(self, partition: int, records: Sequence[NewRecord]) -> Offset:
        error, self.next_append_error = self.next_append_error or self.append_error, None
        if error is not None:
            raise error
        self.appends += 1
        return self._append(partition, build_batch(records, base_offset=self.end_offset(partition)))

    def sequence_transactional(
        self, partition: int, records: Sequence[NewRecord], *, producer_id: int, producer_epoch: int
    ) -> Offset:
        error, self.next_append_error = self.next_append_error or self.append_error, None
        if error is not None:
            raise error
        self.appends += 1
        batch = build_batch(
            records,
            base_offset=self.end_offset(partition),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
        )
        return self._append(partition, batch)

    def mark(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Append the marker that ends the transaction of a producer."""
        marker = write_marker(producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=0)
        marker.assign(Offset(self.end_offset(partition)), leader_epoch=Epoch(0))
        self._append(partition, marker.data)

    def end_offset(self, partition: int) -> Offset:
        batches = self.batches.get(partition)
        return Offset(read_batch(batches[-1]).next_offset if batches else 0)

    def _append(self, partition: int, data: BytesLike) -> Offset:
        self.batches.setdefault(partition, []).append(bytes(data))
        return self.end_offset(partition)

    def acknowledged(self, partition: int, end: Offset, waiter: Waiter) -> None:
        if self._is_held:
            self._waiting.append(waiter)
            self.appending.set()
        else:
            asyncio.get_running_loop().call_soon(self._tell, waiter)

    def fail_appends(self, error: Exception) -> None:
        """What is in flight will never be durable."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.set_exception(error)

    @staticmethod
    def _tell(waiter: Waiter) -> None:
        if not waiter.done():
            waiter.set_result(None)

    async def read(self, partition: int, *, shows_control: bool = False) -> AsyncIterator[Visible]:
        for raw in list(self.batches.get(partition, [])):
            await self._may_read.wait()
            if self.read_error is not None:
                raise self.read_error
            for visible in Walk(0).over(raw, shows_control=shows_control):
                yield visible

    def hold_appends(self) -> None:
        """From now on nothing becomes durable."""
        self._is_held = True
        self.appending.clear()

    def release_appends(self) -> None:
        """What is in flight becomes durable, and what comes after it."""
        self._is_held = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            self._tell(waiter)

    def hold_reads(self) -> None:
        self._may_read.clear()

    def release_reads(self) -> None:
        self._may_read.set()

    def records(self) -> list[Record]:
        """Everything appended, partition by partition."""
        return [
            record
            for partition in sorted(self.batches)
            for raw in self.batches[partition]
            for record in read_batch(raw).records()
            if not read_batch(raw).is_control
        ]
