"""What becomes of a message that was not settled: it is delivered again, or written off (`burial`).

A delivery needs the content of the message, which is kept in the retry buffer or read from the log once more.
That is one task at a time, over a queue that is no longer than what the subscription may have under way. No
more is read than a few messages that wait for a member: one that leaves may have had gigabytes. What cannot
be read is tried again later. While a subscription has no members nothing is read again; `forget` drops what
was read before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tailrace.broker.subscriptions.burial import Burials, Grave
from tailrace.broker.subscriptions.dead_letter import DeadLetters
from tailrace.broker.subscriptions.definition import SubscriptionConfig
from tailrace.broker.subscriptions.message_memory import SUBSCRIPTION_BYTES_MAX
from tailrace.broker.subscriptions.retained import Retained, size_of
from tailrace.broker.subscriptions.stored import AcksKey
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.model import BrokerError
from tailrace.records import Record
from tailrace.runtime import Clock, Supervisor

logger = logging.getLogger(__name__)

_RETRY_S = 5.0
_FETCHED_AT_ONCE = 64
_AHEAD_MAX = 1_000  # messages that were read and that no member has taken yet


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
        on_stored: Callable[[Iterable[AcksKey]], None],
        on_caught_up: Callable[[], None],
    ) -> None:
        """`on_record` is given what may be delivered again, `on_done` what never will be.

        `on_stored` is that of `Burials`. `on_caught_up` is called when `is_behind` may have become false.
        """
        self._config = config
        self._tasks = tasks
        self._retained = retained
        self._on_record = on_record
        self._on_done = on_done
        self._on_caught_up = on_caught_up
        self._to_fetch: deque[_Fetch] = deque()
        self._fetching: asyncio.Task[None] | None = None
        self._ahead: dict[_Fetch, int] = {}  # read, and not known to be with a member; with its bytes
        self.ahead_bytes = 0
        self.ahead_bytes_max = SUBSCRIPTION_BYTES_MAX  # but for the last message
        self._retries: set[asyncio.TimerHandle] = set()  # of messages that could not be read
        self._round = 0  # raised by `forget`: what was read for an earlier one is dropped
        self._closed = False
        self._burials = Burials(
            config,
            clock=clock,
            tasks=tasks,
            retained=retained,
            dead_letters=dead_letters,
            on_done=on_done,
            on_stored=on_stored,
        )

    @property
    def dead(self) -> int:
        """Dead letters that were written."""
        return self._burials.written

    def deliver_again(self, partition: SubscribedPartition, offset: int) -> None:
        """A message is ready: have its content here."""
        fetch = _Fetch(partition, offset, partition.machine.epoch)
        self.ahead_bytes -= self._ahead.pop(fetch, 0)  # it was with a member since
        record = self._retained.get(partition.place, offset)
        if record is not None:
            self._on_record(partition, record)
            return
        self._fetch_soon(fetch)

    @property
    def is_behind(self) -> bool:
        """Whether messages are still to be read again."""
        return bool(self._to_fetch or self._retries) or self._fetching is not None

    def forget(self) -> None:
        """Read nothing again, and keep nothing of what was read; dead letters are still written."""
        self._round += 1
        self._to_fetch.clear()
        self._ahead.clear()
        self.ahead_bytes = 0
        for retry in self._retries:
            retry.cancel()
        self._retries.clear()

    def go_on(self) -> None:
        """Members may have taken what was read: read more, if there is more."""
        if self._to_fetch and self._fetching is None:
            if self._is_full():
                for fetch in [fetch for fetch in self._ahead if not fetch.is_due()]:
                    self.ahead_bytes -= self._ahead.pop(fetch)
            self._start_fetching()

    def bury(self, partition: SubscribedPartition, offset: int, reason: str) -> None:
        """A message is dead: write its dead letter."""
        self._burials.bury(Grave(partition, offset, reason))

    def close(self) -> None:
        """Do nothing more."""
        self._closed = True
        self.forget()
        self._burials.close()
        if self._fetching is not None:
            self._fetching.cancel()

    # ---- inside

    def _fetch_soon(self, fetch: _Fetch) -> None:
        if self._closed:
            return
        self._to_fetch.append(fetch)
        self._start_fetching()

    def _fetch_later(self, fetch: _Fetch) -> None:
        def fetch_again() -> None:
            self._retries.discard(retry)
            self._to_fetch.append(fetch)
            self.go_on()  # no other may follow that looks whether there is room

        retry = asyncio.get_running_loop().call_later(_RETRY_S, fetch_again)
        self._retries.add(retry)

    def _start_fetching(self) -> None:
        if self._fetching is None and not self._is_full() and not self._closed:
            self._fetching = self._tasks.start(f"{self._config.name} refetch", self._fetch_all())

    def _is_full(self) -> bool:
        return len(self._ahead) >= _AHEAD_MAX or self.ahead_bytes >= self.ahead_bytes_max

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
            self._on_caught_up()

    async def _fetch_one(self, fetch: _Fetch) -> None:
        partition, offset, _ = fetch
        if not fetch.is_due():
            return
        asked_in = self._round
        try:
            record = await partition.feed.fetch(offset)
        except BrokerError as error:
            logger.warning(
                "message not read, tried again in %d s: %s offset=%d %s", _RETRY_S, partition, offset, error
            )
            if asked_in == self._round:
                self._fetch_later(fetch)
            return
        if asked_in != self._round or not fetch.is_due():
            return
        if record is not None:
            size = size_of(record)
            self.ahead_bytes += size - self._ahead.get(fetch, 0)
            self._ahead[fetch] = size
            self._on_record(partition, record)
        elif partition.machine.lost(offset):
            partition.feed.skip(offset, 1)
            self._on_done(partition, offset)
