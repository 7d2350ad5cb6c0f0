"""The subscriptions of this node: how they come, are found again at a start, and go.

Definitions and cursors are records in `__tailrace_cursors`; a subscription's records are all in the partition
that its name picks, and it is served by whoever leads that. Until the partition has been read nobody is told
that a subscription does not exist. A subscription goes with its topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.broker.feed import Feed
from tailrace.broker.internal import ErrorMap, InternalLog, StateWriter, partition_for
from tailrace.broker.partition import Partition
from tailrace.broker.publishing import id_prefix
from tailrace.broker.subscriptions.acknowledging import LockedMessages, TransactionalAcks
from tailrace.broker.subscriptions.cursor import Cursor
from tailrace.broker.subscriptions.cursor_writer import CursorWriter
from tailrace.broker.subscriptions.dead_letter import DeadLetters
from tailrace.broker.subscriptions.definition import Start, SubscriptionConfig
from tailrace.broker.subscriptions.delivery import Notice, Source
from tailrace.broker.subscriptions.description import list_dead_letters
from tailrace.broker.subscriptions.journal import (
    CursorRecords,
    acks_tombstone,
    definition_record,
    definition_tombstone,
)
from tailrace.broker.subscriptions.latency import Latencies
from tailrace.broker.subscriptions.loading import LoadedCursors, load_cursors
from tailrace.broker.subscriptions.machine import PartitionMachine, Rules
from tailrace.broker.subscriptions.message_memory import SUBSCRIPTION_BYTES_MAX, MessageMemory
from tailrace.broker.subscriptions.retained import Retained
from tailrace.broker.subscriptions.start import resolve_start
from tailrace.broker.subscriptions.stored import CURSORS_TOPIC, CursorKey, CursorSnapshot, StoredSubscription
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.broker.topic import Topic, unknown_topic
from tailrace.broker.topics import Topics
from tailrace.model import BrokerError, ErrorCode, StorageError, TopicPartition
from tailrace.model.ranges import Ranges
from tailrace.records import NewRecord
from tailrace.runtime import Clock, Supervisor

if TYPE_CHECKING:
    from tailrace.broker.transactions.atomic import AtomicAppender

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_APPEND_BYTES_MAX = 512 * 1024
_QUEUED_BYTES_MAX = 32 << 20
_WRITE_TIMEOUT_S = 30.0
SUBSCRIPTIONS_MAX = 10_000

_ERRORS = ErrorMap(
    codes={
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    },
    otherwise=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    stopped=ErrorCode.NOT_COORDINATOR,
)


class Subscriptions:
    """Every subscription that this node serves, by name."""

    def __init__(
        self,
        log: InternalLog,
        topics: Topics,
        *,
        clock: Clock,
        storage_is_durable: bool,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._topics = topics
        self._clock = clock
        self._durable = storage_is_durable
        self._on_failure = on_failure
        self._tasks = Supervisor(on_failure)
        self.latencies = Latencies()
        self.memory = MessageMemory()
        self._subscriptions: dict[str, Subscription] = {}
        self._writers: dict[int, StateWriter] = {}
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()  # under way, or waiting for their turn
        self._acks = TransactionalAcks(
            partition_of=self._partition_of, writer_of=self._writer_of, clock=clock
        )
        self._dead_letters = DeadLetters(topics, acks=self._acks, home_of=self.home_of)
        self._ended_meanwhile: list[tuple[int, int, bool]] = []  # transactions, while cursors are being read
        self._loaded = asyncio.Event()
        self._reading = asyncio.Lock()
        self._reading_again: asyncio.Task[None] | None = None
        self._read: set[int] = set()  # partitions whose subscriptions are known
        self._failed: set[int] = set()  # partitions that could not be read
        self._first_epoch = 0  # above those of what was deleted, for which somebody may still work
        self._closed = False

    def __repr__(self) -> str:
        return f"<Subscriptions {len(self._subscriptions)}>"

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __iter__(self) -> Iterator[Subscription]:
        """By name."""
        return iter([each for _, each in sorted(self._subscriptions.items())])

    def get(self, name: str) -> Subscription | None:
        """The subscription, if there is one; BrokerError while that is not known."""
        self._check_loaded(name)
        return self._subscriptions.get(name)

    def known(self, name: str) -> Subscription:
        """The subscription, or RESOURCE_NOT_FOUND."""
        found = self.get(name)
        if found is None:
            raise BrokerError(
                f"subscription {name!r} does not exist. Create it first, with the topic it reads",
                code=ErrorCode.RESOURCE_NOT_FOUND,
            )
        return found

    # ---- start and end

    def start(self) -> None:
        """Begin to read what is stored."""
        self._topics.waiters.add(self._topics_changed)
        self._tasks.start(f"load {CURSORS_TOPIC}", self._load())

    def read_again(self) -> None:
        """The topic of cursors is served again: read the partitions that could not be read."""
        self._reading_again = self._tasks.start(f"load {CURSORS_TOPIC} again", self._load())

    def bury_with(self, appender: AtomicAppender) -> None:
        """Have dead letters written by this one; before `start`."""
        self._dead_letters.appender = appender

    async def wait_loaded(self) -> None:
        """Return when no partition is being read."""
        await self._loaded.wait()
        if self._reading_again is not None:
            await asyncio.wait({self._reading_again})

    async def close(self) -> None:
        """Deliver nothing more, and make the cursors durable as they are."""
        if self._closed:
            return
        self._closed = True
        self._topics.waiters.discard(self._topics_changed)
        await asyncio.gather(*self._changes, return_exceptions=True)
        writers = [each.writer.wait() for each in self if each.writer is not None]
        for each in self:
            each.close()
        if writers:
            await asyncio.wait(writers, timeout=_WRITE_TIMEOUT_S)
        for future in writers:
            if future.done() and not future.cancelled():
                future.exception()  # what could not be stored is delivered again
        for state_writer in self._writers.values():
            await state_writer.wait_idle()
        await self._tasks.stop()

    async def dead_letters(self, name: str, count: int) -> list[dict[str, Any]]:
        """The oldest dead letters of a subscription that were not redriven yet."""
        subscription = self.known(name)
        partition = self._dead_letters.partition(subscription.config.dead_letter_topic)
        return [] if partition is None else await list_dead_letters(subscription, partition, count)

    # ---- transactions

    def pend(self, messages: Iterable[LockedMessages], *, producer_id: int, producer_epoch: int) -> None:
        """A transaction acknowledges these messages (`acknowledging`); its coordinator knows of them."""
        self._acks.pend(messages, producer_id=producer_id, producer_epoch=producer_epoch)

    def home_of(self, name: str) -> TopicPartition:
        """Where the acknowledgements of a subscription are stored."""
        return TopicPartition(CURSORS_TOPIC, self._partition_of(name))

    def transaction_ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """A marker was sequenced in a partition of the cursors topic: what was pending is done, or ready.

        While the partition is being read that waits: the marker may be behind what is read.
        """
        if partition in self._read or (self._loaded.is_set() and partition not in self._failed):
            self._acks.ended(partition, producer_id, commit=commit)
        else:
            self._ended_meanwhile.append((partition, producer_id, commit))

    # ---- changes

    async def create(self, config: SubscriptionConfig, start: Start) -> Subscription:
        """Make a subscription, or find it with the same settings; it exists once it is durable."""
        return await self._alone(self._create(config, start))

    async def delete(self, name: str) -> None:
        """End a subscription and forget its cursors; its dead letters stay."""
        await self._alone(self._delete(name, reason="the subscription was deleted"))

    async def topic_deleted(self, name: str) -> None:
        """End the subscriptions of a topic that is gone, also one that is just being made."""
        if self._loaded.is_set() and not self._closed:  # else the next one to read the log sees to it
            await self._alone(self._end_those_of(name))

    async def _alone(self, work: Coroutine[Any, Any, _T]) -> _T:
        """One change at a time; a caller who is cancelled leaves it running, never half done."""
        task = asyncio.get_running_loop().create_task(self._locked(work), name="subscription change")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _locked(self, work: Coroutine[Any, Any, _T]) -> _T:
        async with self._changing:
            return await work

    async def _create(self, config: SubscriptionConfig, start: Start) -> Subscription:
        await self._log.ensure()
        existing = self.get(config.name)
        if existing is not None:
            if existing.closed:
                raise BrokerError(
                    f"subscription {config.name} is deleted, but that is not stored yet. Delete it again",
                    code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                )
            if existing.config == config:
                return existing
            raise _differs(existing.config, config)
        if len(self) >= SUBSCRIPTIONS_MAX:
            raise BrokerError(
                f"this node has its {SUBSCRIPTIONS_MAX} subscriptions", code=ErrorCode.POLICY_VIOLATION
            )
        topic = self._topics.get(config.topic)
        if topic is None:
            raise unknown_topic(config.topic)
        stored = StoredSubscription(
            name=config.name,
            topic=config.topic,
            topic_id=topic.id,
            settings=config.settings(),
            created_ms=self._clock.now_ms(),
        )
        positions = [(each, await resolve_start(start, each)) for each in list(topic.partitions)]
        subscription = self._new(config, stored.created_ms)
        partitions = [
            self._subscribe(subscription, topic, partition, place, _fresh(position, epoch=self._first_epoch))
            for place, (partition, position) in enumerate(positions)
        ]
        now_ms = self._clock.now_ms()
        records = [definition_record(stored, time_ms=now_ms)]
        records.extend(partition.write_snapshot(now_ms) for partition in partitions)
        await self._write(config.name, records)
        self._open(subscription, partitions)
        self._topics_changed()  # while this was written, perhaps
        logger.info("subscription created: %s of %s", config.name, config.topic)
        return subscription

    async def _delete(self, name: str, *, reason: str) -> None:
        """It ends at once and is forgotten when that is stored: who is told that it was not may try again."""
        subscription = self.known(name)
        now_ms = self._clock.now_ms()
        records = [definition_tombstone(name, time_ms=now_ms)]
        for partition in subscription.partitions:
            records.extend(partition.records.tombstones(time_ms=now_ms))
        assert subscription.writer is not None
        records.extend(acks_tombstone(key, time_ms=now_ms) for key in subscription.writer.acks_keys())
        self._first_epoch = max(self._first_epoch, _next_epoch(subscription.partitions))
        subscription.close(notice=Notice(event="deleted", reason=reason))
        subscription.writer.end()  # no write of its own may come after the tombstones
        await self._write(name, records)
        del self._subscriptions[name]
        logger.info("subscription deleted: %s: %s", name, reason)

    async def _end_those_of(self, topic: str) -> None:
        for each in list(self):
            if each.config.topic != topic or self._topic_of(each) is not None:
                continue
            try:
                await self._delete(each.config.name, reason=f"its topic {topic} was deleted")
            except BrokerError as error:
                # Its topic is gone, and so is it; the next start sees to what is stored.
                self._subscriptions.pop(each.config.name, None)
                logger.warning("deleted subscription is not cleared away yet: %s: %s", each, error)

    # ---- loading

    async def _load(self) -> None:
        async with self._reading:
            for partition in range(self._log.partitions):
                if self._log.leads(partition) and partition not in self._read:
                    await self._load_partition(partition)
            self._loaded.set()
        for topic in {each.config.topic for each in self if self._topic_of(each) is None}:
            await self.topic_deleted(topic)  # while this was read

    async def _load_partition(self, partition: int) -> None:
        try:
            loaded = await load_cursors(self._log, partition)
        except (BrokerError, StorageError) as error:
            self._failed.add(partition)
            logger.error("subscriptions cannot be served: %s-%d %s", CURSORS_TOPIC, partition, error)
            return
        self._failed.discard(partition)
        self._read.add(partition)
        self._clear_away(loaded, partition)
        for stored in loaded.definitions.values():
            self._restore(stored, loaded)
        ended, self._ended_meanwhile = self._ended_meanwhile, []
        for home, producer_id, commit in ended:
            self.transaction_ended(home, producer_id, commit=commit)

    def _clear_away(self, loaded: LoadedCursors, partition: int) -> None:
        """Forget what a crash has left: subscriptions whose topic is gone, cursors without either."""
        gone = {
            each.name for each in loaded.definitions.values() if self._topics.by_id(each.topic_id) is None
        }
        cursors = [
            key
            for key in loaded.cursors
            if key.subscription in gone or self._topics.by_id(key.topic_id) is None
        ]
        now_ms = self._clock.now_ms()
        records = [definition_tombstone(name, time_ms=now_ms) for name in sorted(gone)]
        for key in (*loaded.orphans, *cursors):
            records.extend(CursorRecords(key).tombstones(time_ms=now_ms))
        known = [*loaded.undecided, *(key for keys in loaded.committed.values() for key in keys)]
        void = [
            key
            for key in known
            if key.cursor.subscription in gone or self._topics.by_id(key.cursor.topic_id) is None
        ]
        records.extend(acks_tombstone(key, time_ms=now_ms) for key in (*loaded.orphan_acks, *void))
        for name in gone:
            logger.warning(
                "subscription ended: %s: its topic %s is gone", name, loaded.definitions[name].topic
            )
            del loaded.definitions[name]
        if records:
            self._writer_of(partition).put(records, lambda _code: None)  # the next start tries again

    def _restore(self, stored: StoredSubscription, loaded: LoadedCursors) -> None:
        topic = self._topics.by_id(stored.topic_id)
        if topic is None:
            return
        try:
            config = SubscriptionConfig.read(stored.name, stored.topic, stored.settings)
        except BrokerError as error:
            logger.error("subscription cannot be served: %s: %s", stored.name, error)
            return
        subscription = self._new(config, stored.created_ms)
        places = [(topic, partition) for partition in topic.partitions]
        letters = self._topics.get(config.dead_letter_topic)
        if letters is not None and CursorKey(config.name, letters.id, 0) in loaded.cursors:
            places.append((letters, letters.partitions[0]))
        partitions = []
        for place, (home, partition) in enumerate(places):
            snapshot = loaded.cursors.get(CursorKey(config.name, home.id, partition.index))
            snapshot = snapshot or _fresh(0)  # added later, and nothing of it is done
            restored = self._subscribe(subscription, home, partition, place, snapshot)
            restored.machine.expect_earlier(end=restored.end, count_max=config.unacked_max)
            partitions.append(restored)
        self._open(subscription, partitions)
        self._restore_acks(subscription, loaded)

    def _restore_acks(self, subscription: Subscription, loaded: LoadedCursors) -> None:
        """Go on with the acknowledgements of transactions."""
        partitions = {each.records.key: each for each in subscription.partitions}
        for key, acks in loaded.undecided.items():
            if key.cursor in partitions:
                self._acks.restore(subscription, partitions[key.cursor], key, acks)
        committed = [key for cursor in partitions for key in loaded.committed.get(cursor, ())]
        if committed:
            assert subscription.writer is not None
            subscription.writer.need_snapshots()  # no record of the cursor holds them yet
            subscription.writer.acks_committed(committed)

    # ---- inside

    def _new(self, config: SubscriptionConfig, created_ms: int) -> Subscription:
        return Subscription(
            config,
            created_ms=created_ms,
            clock=self._clock,
            tasks=self._tasks,
            dead_letters=self._dead_letters,
            retained=Retained(bytes_max=SUBSCRIPTION_BYTES_MAX, required=not self._durable),
            memory=self.memory,
            on_redrive=self._add_dead_letters,
            latencies=self.latencies,
        )

    def _open(self, subscription: Subscription, partitions: list[SubscribedPartition]) -> None:
        name = subscription.config.name
        writer = CursorWriter(
            subscription.partitions,
            write_soon=self._writer(name).write_soon,
            clock=self._clock,
        )
        subscription.open(partitions, writer)
        self._subscriptions[name] = subscription

    def _subscribe(
        self,
        subscription: Subscription,
        topic: Topic,
        partition: Partition,
        place: int,
        snapshot: CursorSnapshot,
    ) -> SubscribedPartition:
        config = subscription.config
        beyond = Ranges()
        for start, end in snapshot.ranges:
            beyond.add(start, end)
        machine = PartitionMachine(
            Cursor(snapshot.position, beyond),
            rules=Rules.of(config),
            epoch=snapshot.epoch,
            failures=snapshot.failures,
        )
        key = CursorKey(config.name, topic.id, partition.index)
        return SubscribedPartition(
            place,
            Source(topic.name, partition.index, id_prefix=id_prefix(topic.id, partition.index)),
            partition,
            machine=machine,
            feed=Feed(
                partition,
                machine.cursor.position,
                tasks=self._tasks,
                wake=subscription.wake,
                limit=snapshot.limit,
            ),
            records=CursorRecords(key, version=snapshot.version),
            letters_of=config.name if topic.name == config.dead_letter_topic else None,
        )

    def _add_dead_letters(self, subscription: Subscription) -> SubscribedPartition | None:
        topic = self._topics.get(subscription.config.dead_letter_topic)
        if topic is None:
            return None
        partition = topic.partitions[0]
        before = [each for each in subscription.partitions if each.source.topic == topic.name]
        start = _fresh(partition.start_offset, epoch=max(self._first_epoch, _next_epoch(before)))
        snapshot = replace(start, limit=partition.start_offset)
        added = self._subscribe(subscription, topic, partition, len(subscription.partitions), snapshot)
        subscription.add_partition(added)
        return added

    def _topics_changed(self) -> None:
        """Partitions were added to topics, perhaps: what is new is delivered from its beginning."""
        for subscription in self:
            topic = self._topic_of(subscription)
            if topic is None or subscription.closed:
                continue
            known = sum(each.source.topic == topic.name for each in subscription.partitions)
            for partition in topic.partitions[known:]:
                added = self._subscribe(
                    subscription, topic, partition, len(subscription.partitions), _fresh(0)
                )
                subscription.add_partition(added)

    def _topic_of(self, subscription: Subscription) -> Topic | None:
        """The topic that it was made for, unless that is gone; another of the same name is another."""
        return self._topics.by_id(subscription.partitions[0].records.key.topic_id)

    async def _write(self, name: str, records: list[NewRecord]) -> None:
        """Append and wait; BrokerError if that did not succeed, or not in time."""
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(code: ErrorCode) -> None:
            if not answer.done():
                answer.set_result(code)

        self._writer(name).put(records, done)
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_S):
                code = await answer
        except TimeoutError:
            code = ErrorCode.REQUEST_TIMED_OUT
        if code:
            raise BrokerError(f"{CURSORS_TOPIC} cannot be written now; try again", code=code)

    def _partition_of(self, name: str) -> int:
        return partition_for(name, self._log.partitions)

    def _writer(self, name: str) -> StateWriter:
        return self._writer_of(self._partition_of(name))

    def _writer_of(self, partition: int) -> StateWriter:
        writer = self._writers.get(partition)
        if writer is None:
            writer = self._writers[partition] = StateWriter(
                self._log,
                partition,
                topic=CURSORS_TOPIC,
                errors=_ERRORS,
                on_failure=self._on_failure,
                append_bytes_max=_APPEND_BYTES_MAX,
                queued_bytes_max=_QUEUED_BYTES_MAX,
            )
        return writer

    def _check_loaded(self, name: str) -> None:
        if self._closed:
            raise BrokerError("this node is shutting down", code=ErrorCode.NOT_COORDINATOR)
        if not self._loaded.is_set():
            raise BrokerError(
                "subscriptions are being read; try again soon", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            )
        if self._failed and self._partition_of(name) in self._failed:
            raise BrokerError(
                f"the cursors of {name} could not be read; the log of this node says why",
                code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )


def _fresh(position: int, *, epoch: int = 0) -> CursorSnapshot:
    """The state of a partition of which nothing was delivered from `position` on."""
    return CursorSnapshot(version=0, epoch=epoch, position=position)


def _next_epoch(partitions: Iterable[SubscribedPartition]) -> int:
    """One that nobody was delivered anything in; 0 where there was nothing."""
    return max((each.machine.epoch + 1 for each in partitions), default=0)


def _differs(existing: SubscriptionConfig, wanted: SubscriptionConfig) -> BrokerError:
    before, after = existing.settings(), wanted.settings()
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    if existing.topic != wanted.topic:
        names.insert(0, "topic")
    return BrokerError(
        f"subscription {existing.name} exists with another {', '.join(names)}. Delete it first, or use its "
        "settings",
        code=ErrorCode.DUPLICATE_RESOURCE,
    )
