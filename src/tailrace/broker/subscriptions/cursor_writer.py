"""Makes the cursors of one subscription durable.

The writer of the cursors' partition asks for what changed when it makes its next batch (`internal.Source`).
So acknowledgements that come together share a record, and no write waits for the one before it. A waiter is
told when the write that holds its acknowledgement is durable; after a write that failed the next one is a
snapshot. A subscription that is deleted writes nothing after its tombstones: the next one of its name must
not find anything of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailrace.broker.internal import Done, Source
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import NewRecord
from tailrace.runtime import Clock
from tailrace.storage.api import Waiter


class CursorWriter:
    """The durable side of a subscription's progress."""

    def __init__(
        self,
        partitions: Sequence[SubscribedPartition],
        *,
        write_soon: Callable[[Source], None],
        clock: Clock,
    ) -> None:
        self._partitions = partitions  # the subscription's own list, which may grow
        self._write_soon = write_soon
        self._clock = clock
        self._waiting: list[Waiter] = []  # for the next write
        self._anew = False  # the last write failed, or something changed that only a snapshot tells
        self._ended = False

    def tell(self, waiter: Waiter) -> None:
        """Tell when everything that changed so far is durable."""
        if self._ended:
            _tell([waiter], ErrorCode.RESOURCE_NOT_FOUND)
            return
        self._write_soon(self)  # also if a write is due already: it waits for further changes that follow
        self._waiting.append(waiter)

    def wait(self) -> asyncio.Future[None]:
        """Done when everything that changed so far is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tell(future)
        return future

    def need_snapshots(self) -> None:
        """The next write tells everything anew."""
        self._anew = True

    def end(self) -> None:
        """Write nothing more: the subscription is deleted. Those that wait for the next write are told."""
        self._ended = True
        waiters, self._waiting = self._waiting, []
        _tell(waiters, ErrorCode.RESOURCE_NOT_FOUND)

    def flush_soon(self) -> None:
        """Write what changed, soon."""
        if not self._ended:
            self._write_soon(self)

    def take(self) -> tuple[Sequence[NewRecord], Done] | None:
        """What changed since the last write (`internal.Source`)."""
        if self._ended:
            return None
        waiters, self._waiting = self._waiting, []
        return self._take_records(), partial(self._done, waiters)

    def _take_records(self) -> list[NewRecord]:
        now_ms = self._clock.now_ms()
        anew, self._anew = self._anew, False
        if anew:
            return [partition.write_snapshot(now_ms) for partition in self._partitions]
        changed = (partition.write_changes(now_ms) for partition in self._partitions)
        return [record for record in changed if record is not None]

    def _done(self, waiters: list[Waiter], code: ErrorCode) -> None:
        if code:
            self._anew = True
        _tell(waiters, code)


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
