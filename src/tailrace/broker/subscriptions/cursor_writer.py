"""Makes the cursors of one subscription durable.

One write is on its way at a time. What is acknowledged meanwhile shares the next one, so that the busier a
subscription is the fewer records it writes per message. Whoever waits is told when the write that holds his
acknowledgement is durable; after a write that failed the next one tells everything anew. A subscription
that is deleted writes nothing after its tombstones: the next one of its name must not find anything of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tailrace.broker.internal import Done
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import NewRecord
from tailrace.runtime import Clock
from tailrace.storage.api import Waiter

Put = Callable[[Sequence[NewRecord], Done], None]


class CursorWriter:
    """The durable side of a subscription's progress."""

    def __init__(self, partitions: Sequence[SubscribedPartition], *, put: Put, clock: Clock) -> None:
        self._partitions = partitions  # the subscription's own list, which may grow
        self._put = put
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Waiter] = []  # for the next write
        self._busy = False
        self._planned = False
        self._wanted = False  # something changed while a write was on its way
        self._anew = False  # the last write failed, or something changed that only a snapshot tells
        self._ended = False

    def tell(self, waiter: Waiter) -> None:
        """Tell when everything that changed so far is durable."""
        if self._ended:
            _tell([waiter], ErrorCode.RESOURCE_NOT_FOUND)
            return
        self._waiting.append(waiter)
        self.flush_soon()

    def wait(self) -> asyncio.Future[None]:
        """Done when everything that changed so far is durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.tell(future)
        return future

    def need_snapshots(self) -> None:
        """The next write tells everything anew."""
        self._anew = True

    def end(self) -> None:
        """Write nothing more, for the subscription is deleted. Whoever waits for the next write is told."""
        self._ended = True
        waiters, self._waiting = self._waiting, []
        _tell(waiters, ErrorCode.RESOURCE_NOT_FOUND)

    def flush_soon(self) -> None:
        """Write what changed, once this turn of the loop is over and no write is on its way."""
        if self._busy:
            self._wanted = True
        elif not self._planned:
            self._planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._planned = self._wanted = False
        if self._busy or self._ended:
            return
        records = self._take_records()
        waiters, self._waiting = self._waiting, []
        if not records:
            _tell(waiters, ErrorCode.NONE)
            return
        self._busy = True
        try:
            self._put(records, lambda code: self._done(waiters, code))
        except BrokerError as refused:
            self._done(waiters, refused.code)

    def _take_records(self) -> list[NewRecord]:
        now_ms = self._clock.now_ms()
        anew, self._anew = self._anew, False
        if anew:
            return [partition.write_snapshot(now_ms) for partition in self._partitions]
        changed = (partition.write_changes(now_ms) for partition in self._partitions)
        return [record for record in changed if record is not None]

    def _done(self, waiters: list[Waiter], code: ErrorCode) -> None:
        self._busy = False
        if code:
            self._anew = True
        _tell(waiters, code)
        if self._wanted:
            self.flush_soon()


def _tell(waiters: list[Waiter], code: ErrorCode) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if code == ErrorCode.RESOURCE_NOT_FOUND:
            waiter.set_exception(BrokerError("the subscription was deleted", code=code))
        elif code:
            waiter.set_exception(BrokerError("the cursor could not be stored; try again", code=code))
        else:
            waiter.set_result(None)
