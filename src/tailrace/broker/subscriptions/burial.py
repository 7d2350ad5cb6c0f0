"""Writing off messages: each becomes a dead letter, and is done when that is durable.

What one turn of the loop gives up is written together, as one batch unless it is very much. The letters and a
record that has a start pass their messages are one transaction, sequenced in one turn. So a crash leaves both
or neither: no message has two letters. Nothing waits for the durability of the transaction before it: each
knows its messages, and is told when it is durable. Only then may the cursor pass them.

A dead letter needs the content of its message, which is kept in the retry buffer or read from the log once
more. What cannot be read or written is tried again later. A letter that the topic never takes (too large)
does not hold up the others. The queue is no longer than what the subscription may have under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from tailrace.broker.partition import Partition
from tailrace.broker.subscriptions.dead_letter import (
    Burial,
    DeadLetters,
    StoredKeys,
    write_dead_letter,
)
from tailrace.broker.subscriptions.definition import SubscriptionConfig
from tailrace.broker.subscriptions.retained import Retained, size_of
from tailrace.broker.subscriptions.stored import AcksKey
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import NewRecord, Record
from tailrace.runtime import Clock, Supervisor

logger = logging.getLogger(__name__)

_RETRY_S = 5.0
_PORTION_MAX = 512  # letters that are written together,
_PORTION_BYTES_MAX = 512 << 10  # and what their messages may take, but for the last one
_NEVER_TAKEN = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD)


class Grave(NamedTuple):
    """A message that was given up."""

    partition: SubscribedPartition
    offset: int
    reason: str

    @property
    def is_due(self) -> bool:
        """Whether its dead letter is still to be written: not after a seek."""
        return self.partition.machine.is_dead(self.offset)


class Burials:
    """The dead messages of one subscription."""

    def __init__(
        self,
        config: SubscriptionConfig,
        *,
        clock: Clock,
        tasks: Supervisor,
        retained: Retained,
        dead_letters: DeadLetters,
        on_done: Callable[[SubscribedPartition, int], None],
        on_stored: Callable[[Iterable[AcksKey]], None],
    ) -> None:
        """`on_done` is given each message that the cursor may pass.

        `on_stored` is given, after these, the records that had a start pass them before the cursor did.
        """
        self.written = 0  # dead letters that are durable
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._retained = retained
        self._dead_letters = dead_letters
        self._on_done = on_done
        self._on_stored = on_stored
        self._queue: deque[Grave] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def bury(self, grave: Grave) -> None:
        """Write the dead letter of a message, with the others of this turn."""
        self._queue.append(grave)
        self._start()

    def close(self) -> None:
        """Write nothing more; what is not buried is found again after a start."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    # ---- inside

    def _start(self) -> None:
        if self._task is None and not self._closed:
            self._task = self._tasks.start(f"{self._config.name} dead letters", self._bury_all())

    async def _bury_all(self) -> None:
        try:
            while self._queue:
                portion = [self._queue.popleft() for _ in range(min(len(self._queue), _PORTION_MAX))]
                try:
                    await self._bury(portion)
                except BrokerError as error:
                    self._log(error)
                    self._queue.extend(portion)
                    await asyncio.sleep(_RETRY_S)
                except BaseException:
                    self._queue.extendleft(reversed(portion))
                    raise
                await asyncio.sleep(0)  # what is hot is there at once, and others want their turn
        finally:
            self._task = None

    async def _bury(self, portion: list[Grave]) -> None:
        """Sequence the dead letters of these; what is sequenced, or has none, leaves the list."""
        portion.sort(key=lambda grave: (grave.partition.place, grave.offset))  # each batch is decoded once
        feeds = {grave.partition.feed for grave in portion}
        try:
            while portion:
                graves, letters = await self._write(portion)
                if letters:
                    topic = await self._dead_letters.ensure(self._config.dead_letter_topic)
                    await self._sequence(topic, graves, letters)
                del portion[: len(graves)]
        finally:
            for feed in feeds:
                feed.end_fetching()

    async def _write(self, portion: list[Grave]) -> tuple[list[Grave], list[NewRecord]]:
        """The letters of the first of these; those that need none are taken out of the list."""
        found: list[tuple[Grave, Record]] = []
        size = 0
        for grave in list(portion):
            record = await self._read(grave) if grave.is_due else None
            if record is None:
                portion.remove(grave)
                continue
            found.append((grave, record))
            size += size_of(record)
            if size >= _PORTION_BYTES_MAX:
                break
        now_ms = self._clock.now_ms()
        return [grave for grave, _ in found], [self._letter(*each, now_ms=now_ms) for each in found]

    async def _read(self, grave: Grave) -> Record | None:
        """The content of a message; None, and done with it, if that is gone."""
        partition, offset, _ = grave
        record = self._retained.get(partition.place, offset)
        if record is None:
            record = await partition.feed.fetch(offset)
        if record is None:
            partition.feed.skip(offset, 1)
            self._finish(grave)
        return record

    def _letter(self, grave: Grave, record: Record, *, now_ms: int) -> NewRecord:
        return write_dead_letter(
            record,
            grave.partition.source,
            subscription=self._config.name,
            reason=grave.reason,
            deliveries=grave.partition.machine.failures.get(grave.offset, 0),
            now_ms=now_ms,
        )

    async def _sequence(
        self, topic: Partition, graves: Sequence[Grave], letters: Sequence[NewRecord]
    ) -> None:
        """Append letters together; those that the topic never takes are found by halves, and tried later."""

        def plan() -> Burial | None:
            """Those that are still due: the wait for the topic and for a transaction may have been long."""
            due = [pair for pair in zip(graves, letters, strict=True) if pair[0].is_due]
            if self._closed or not due:
                return None
            dead: dict[SubscribedPartition, list[int]] = {}
            for grave, _ in due:
                dead.setdefault(grave.partition, []).append(grave.offset)
            return Burial(
                self._config.name,
                [letter for _, letter in due],
                {partition: sorted(offsets) for partition, offsets in dead.items()},
                partial(_WhenDurable, self, [grave for grave, _ in due]),
            )

        try:
            await self._dead_letters.bury(topic, plan)
        except BrokerError as error:
            if error.code not in _NEVER_TAKEN:
                raise
            if len(letters) == 1:
                self._log(error)
                self._retry_later(graves)
                return
            middle = len(letters) // 2
            await self._sequence(topic, graves[:middle], letters[:middle])
            await self._sequence(topic, graves[middle:], letters[middle:])

    def durable(self, graves: Sequence[Grave], stored: StoredKeys) -> None:
        """The letters of these are durable."""
        self.written += len(graves)
        if self._closed:
            return  # nothing may be stored for this subscription any more
        for grave in graves:
            self._finish(grave)
        for partition, key in stored:
            del partition.undecided_acks[key]
        self._on_stored([key for _, key in stored])

    def failed(self, graves: Sequence[Grave], stored: StoredKeys, error: Exception) -> None:
        """The letters of these were sequenced, and never became durable."""
        if self._closed:
            return
        for partition, key in stored:
            del partition.undecided_acks[key]
        self._log(error)
        self._retry_later(graves)

    def _finish(self, grave: Grave) -> None:
        if grave.partition.machine.buried(grave.offset):
            self._on_done(grave.partition, grave.offset)

    def _retry_later(self, graves: Sequence[Grave]) -> None:
        asyncio.get_running_loop().call_later(_RETRY_S, self._retry, graves)

    def _retry(self, graves: Sequence[Grave]) -> None:
        self._queue.extend(graves)
        self._start()

    def _log(self, error: Exception) -> None:
        topic = self._config.dead_letter_topic
        logger.warning("dead letters not written, tried again in %d s: %s: %s", _RETRY_S, topic, error)


class _WhenDurable:
    """Waits for the durability of some dead letters (`storage.api.Waiter`)."""

    __slots__ = ("_burials", "_graves", "_stored", "_told")

    def __init__(self, burials: Burials, graves: Sequence[Grave], stored: StoredKeys) -> None:
        self._burials = burials
        self._graves = graves
        self._stored = stored
        self._told = False

    def done(self) -> bool:
        return self._told

    def set_result(self, result: None, /) -> None:  # noqa: ARG002
        self._told = True
        self._burials.durable(self._graves, self._stored)

    def set_exception(self, error: Exception, /) -> None:
        self._told = True
        self._burials.failed(self._graves, self._stored, error)
