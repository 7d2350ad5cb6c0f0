"""Makes the cursors of one subscription durable.

The writer of the cursors' partition asks for what changed when it makes its next batch (`internal.Source`).
So acknowledgements that come together share a record, and no write waits for the one before it. A waiter is
told when the write that holds its acknowledgement is durable; after a write that failed the next one is a
snapshot. A subscription that is deleted writes nothing after its tombstones: the next one of its name must
not find anything of it.

The acknowledgements of a transaction that committed are a record of their own (`journal`). Its tombstone goes
with the first write after the one that holds them is durable; no write is made for tombstones alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tailrace.broker.internal import Done, Source
from tailrace.broker.subscriptions.journal import acks_tombstone
from tailrace.broker.subscriptions.stored import AcksKey
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
        self._acks: dict[AcksKey, None] = {}  # of transactions that committed, without a durable tombstone
        self._to_move: list[AcksKey] = []  # those that the next write holds
        self._moved: list[AcksKey] = []  # those that a durable write holds: their tombstones are due
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

    def acks_committed(self, keys: Iterable[AcksKey]) -> None:
        """The machines know that the transactions of these have committed; have them moved to the cursor."""
        keys = list(keys)
        self._acks.update(dict.fromkeys(keys))
        self._to_move += keys
        self.flush_soon()

    def acks_keys(self) -> list[AcksKey]:
        """Acknowledgements of transactions that are stored and have no durable tombstone."""
        return [key for partition in self._partitions for key in partition.undecided_acks] + list(self._acks)

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
        records = self._take_records()
        moving, self._to_move = self._to_move, []
        moved, self._moved = self._moved, []
        if moved:
            now_ms = self._clock.now_ms()
            records += [acks_tombstone(key, time_ms=now_ms) for key in moved]
        return records, partial(self._done, waiters, moving, moved)

    def _take_records(self) -> list[NewRecord]:
        now_ms = self._clock.now_ms()
        anew, self._anew = self._anew, False
        if anew:
            return [partition.write_snapshot(now_ms) for partition in self._partitions]
        changed = (partition.write_changes(now_ms) for partition in self._partitions)
        return [record for record in changed if record is not None]

    def _done(
        self, waiters: list[Waiter], moving: list[AcksKey], tombstoned: list[AcksKey], code: ErrorCode
    ) -> None:
        if code:
            self._anew = True
            self._to_move = moving + self._to_move  # the snapshot holds them
            self._moved = tombstoned + self._moved
        else:
            self._moved += moving
            for key in tombstoned:
                del self._acks[key]
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
