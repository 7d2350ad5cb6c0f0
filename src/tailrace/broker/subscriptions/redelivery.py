"""What becomes of a message that was not settled: it is delivered again, or written off as a dead letter.

Both need its content, which is kept in the retry buffer or read from the log once more. Each kind of work is
one task at a time, over a queue that is no longer than what the subscription may have under way. No more is
read than a few messages that wait for a member: one that leaves may have had gigabytes. What cannot be read,
or written as a dead letter, is tried again later; until a dead letter is durable the cursor does not pass its
message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tailrace.broker.subscriptions.dead_letter import DeadLetters, write_dead_letter
from tailrace.broker.subscriptions.definition import SubscriptionConfig
from tailrace.broker.subscriptions.retained import Retained, size_of
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.model import BrokerError
from tailrace.records import Record
from tailrace.runtime import Clock, Supervisor

logger = logging.getLogger(__name__)

_RETRY_S = 5.0
_FETCHED_AT_ONCE = 64
_AHEAD_MAX = 1_000  # messages that were read and that no member has taken yet,
_AHEAD_BYTES_MAX = 8 << 20  # and what they may take, but for the last one


class _Fetch(NamedTuple):
    """A message whose content is wanted again."""

    partition: SubscribedPartition
    offset: int
    epoch: int

    def is_due(self) -> bool:
        """Whether it still is: not if it was settled, or a seek came between."""
        machine = self.partition.machine
        return machine.epoch == self.epoch and machine.can_deliver(self.offset)


class Redelivery:
    """The failed messages of one subscription."""

    def __init__(
        self,
        config: SubscriptionConfig,
        *,
        clock: Clock,
        tasks: Supervisor,
        retained: Retained,
        dead_letters: DeadLetters,
        on_record: Callable[[SubscribedPartition, Record], None],
        on_done: Callable[[SubscribedPartition, int], None],
    ) -> None:
        """`on_record` is given what may be delivered again, `on_done` what never will be."""
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._retained = retained
        self._dead_letters = dead_letters
        self._on_record = on_record
        self._on_done = on_done
        self._to_fetch: deque[_Fetch] = deque()
        self._to_bury: deque[tuple[SubscribedPartition, int, str]] = deque()
        self._fetching: asyncio.Task[None] | None = None
        self._burying: asyncio.Task[None] | None = None
        self._ahead: dict[_Fetch, int] = {}  # read, and not known to be with a member; with its bytes
        self._ahead_bytes = 0
        self._closed = False
        self.dead = 0  # dead letters that were written

    def deliver_again(self, partition: SubscribedPartition, offset: int) -> None:
        """A message is ready: have its content here."""
        fetch = _Fetch(partition, offset, partition.machine.epoch)
        self._ahead_bytes -= self._ahead.pop(fetch, 0)  # it was with a member since
        record = self._retained.get(partition.place, offset)
        if record is not None:
            self._on_record(partition, record)
            return
        self._fetch_soon(fetch)

    def go_on(self) -> None:
        """Members may have taken what was read: read more, if there is more."""
        if self._to_fetch and self._fetching is None:
            if self._is_full():
                for fetch in [fetch for fetch in self._ahead if not fetch.is_due()]:
                    self._ahead_bytes -= self._ahead.pop(fetch)
            self._start_fetching()

    def bury(self, partition: SubscribedPartition, offset: int, reason: str) -> None:
        """A message is dead: write its dead letter."""
        self._to_bury.append((partition, offset, reason))
        if self._burying is None:
            self._burying = self._tasks.start(f"{self._config.name} dead letters", self._bury_all())

    def close(self) -> None:
        """Do nothing more; what is not buried is found again after a start."""
        self._closed = True
        for task in (self._fetching, self._burying):
            if task is not None:
                task.cancel()

    # ---- inside

    def _fetch_soon(self, fetch: _Fetch) -> None:
        if self._closed:
            return
        self._to_fetch.append(fetch)
        self._start_fetching()

    def _fetch_again(self, fetch: _Fetch) -> None:
        """Its turn came by time, and no other may follow that looks whether there is room."""
        self._to_fetch.append(fetch)
        self.go_on()

    def _start_fetching(self) -> None:
        if self._fetching is None and not self._is_full() and not self._closed:
            self._fetching = self._tasks.start(f"{self._config.name} refetch", self._fetch_all())

    def _is_full(self) -> bool:
        return len(self._ahead) >= _AHEAD_MAX or self._ahead_bytes >= _AHEAD_BYTES_MAX

    async def _fetch_all(self) -> None:
        feeds, fetched = set(), 0
        try:
            while self._to_fetch and not self._is_full():
                fetch = self._to_fetch.popleft()
                feeds.add(fetch.partition.feed)
                await self._fetch_one(fetch)
                fetched += 1
                if fetched % _FETCHED_AT_ONCE == 0 or not self._to_fetch:
                    await asyncio.sleep(0)  # what is hot is there at once, and others want their turn
        finally:
            self._fetching = None
            for feed in feeds:
                feed.end_fetching()

    async def _fetch_one(self, fetch: _Fetch) -> None:
        partition, offset, _ = fetch
        if not fetch.is_due():
            return
        try:
            record = await partition.feed.fetch(offset)
        except BrokerError as error:
            logger.warning(
                "message not read, tried again in %d s: %s offset=%d %s", _RETRY_S, partition, offset, error
            )
            asyncio.get_running_loop().call_later(_RETRY_S, self._fetch_again, fetch)
            return
        if not fetch.is_due():
            return
        if record is not None:
            size = size_of(record)
            self._ahead_bytes += size - self._ahead.get(fetch, 0)
            self._ahead[fetch] = size
            self._on_record(partition, record)
        elif partition.machine.lost(offset):
            partition.feed.skip(offset, 1)
            self._on_done(partition, offset)

    async def _bury_all(self) -> None:
        try:
            while self._to_bury:
                try:
                    await self._bury_one(*self._to_bury[0])
                except BrokerError as error:
                    logger.warning(
                        "dead letter not written, tried again in %d s: %s: %s",
                        _RETRY_S,
                        self._config.dead_letter_topic,
                        error,
                    )
                    self._to_bury.rotate(-1)  # one that cannot be written does not hold up the others
                    await asyncio.sleep(_RETRY_S)
                else:
                    self._to_bury.popleft()
        finally:
            self._burying = None

    async def _bury_one(self, partition: SubscribedPartition, offset: int, reason: str) -> None:
        machine = partition.machine
        if not machine.is_dead(offset):  # a seek came between
            return
        record = self._retained.get(partition.place, offset)
        if record is None:
            record = await partition.feed.fetch(offset)
            partition.feed.end_fetching()
        if record is None:
            partition.feed.skip(offset, 1)
        else:
            letter = write_dead_letter(
                record,
                partition.source,
                subscription=self._config.name,
                reason=reason,
                deliveries=machine.failures.get(offset, 0),
                now_ms=self._clock.now_ms(),
            )
            await self._dead_letters.put(self._config.dead_letter_topic, letter)
            self.dead += 1
        if machine.buried(offset):
            self._on_done(partition, offset)
