"""Moves messages that are due into their topics, each exactly once over crashes.

A round takes what is due, earliest first, and does for all its targets together:

    intent      which messages go to which partition, and where that ended: durable before anything moves
    move        the messages, with their id in the header `_delayed_id`: durable before anything is forgotten
    tombstones  of the messages and the intent, in one batch; mostly together with the next round's intents

Whoever finds an intent without its tombstone looks for the ids in the target, from the end that the intent
names. What is there was moved; what is not waits still. That is a start after a crash, and it is also a round
that could not be finished because of its target: its messages are *held*, and with them whatever else becomes
due for that target, until it can be asked. Other targets go on.

A message whose topic is gone, or does not take it any more, is dropped, and that is counted and logged.
Messages of one target arrive in the order of their due times, but for what was held.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from tailrace.broker.delayed.held import Held
from tailrace.broker.delayed.index import DueIndex
from tailrace.broker.delayed.loading import Loaded
from tailrace.broker.delayed.log import DelayedLog, find_delayed_ids
from tailrace.broker.delayed.reading import Due, read_due
from tailrace.broker.delayed.stored import (
    CHOSEN_WHEN_DUE,
    Intent,
    intent_key,
    message_key,
    write_intent,
    write_tombstones,
)
from tailrace.broker.partition import Partition
from tailrace.broker.publishing import NewMessage, Publisher, check_message
from tailrace.broker.topics import Topics
from tailrace.model import (
    BrokerError,
    ErrorCode,
    Offset,
    PartitionId,
    StorageError,
)
from tailrace.records import NewRecord
from tailrace.runtime import Clock

_logger = logging.getLogger(__name__)

DELAYED_ID = "_delayed_id"

ROUND_MESSAGES = 256  # a few milliseconds of the loop
_NEAR_MESSAGES = 10_000  # brought near before others get a turn
_TRIM_MESSAGES = 10_000
_TRIM_BYTES_MIN = 8 << 20


class _Move:
    """The part of a round that goes to one partition."""

    __slots__ = ("due", "end_offset", "messages", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.end_offset = partition.end_offset  # BrokerError if it is not served
        self.due: list[Due] = []
        self.messages: list[NewMessage] = []


class Mover:
    """The index of what waits, and the one who moves what is due."""

    def __init__(self, log: DelayedLog, *, topics: Topics, publisher: Publisher, clock: Clock) -> None:
        self.index = DueIndex()
        self.moved = 0
        self.dropped = 0
        self.lost = 0  # could not be read back
        self.is_stopping = False  # the round that is under way is the last
        self._log = log
        self._topics = topics
        self._publisher = publisher
        self._clock = clock
        self._in_round = 0
        self._held: dict[PartitionId, Held] = {}
        self._owed: dict[bytes, NewRecord] = {}  # tombstones that are not stored yet, by key
        self._moved_since_trim = 0
        self._moving = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Mover of {self.pending} messages, {self.held} held, {self.moved} moved>"

    @property
    def pending(self) -> int:
        return len(self.index) + self._in_round + self.held

    @property
    def held(self) -> int:
        return sum(len(held) for held in self._held.values())

    def wait_ms(self) -> int | None:
        """How long until there is something to do; None: until a message comes."""
        waits = [held.retry_ms - self._clock.steady_ms() for held in self._held.values()]
        if (next_ms := self.index.next_ms()) is not None:
            waits.append(next_ms - self._clock.now_ms())
        return max(min(waits), 0) if waits else None

    async def take_over(self, loaded: Loaded) -> None:
        """Begin with what a start found. Intents are resolved first of all."""
        for target, intent in loaded.intents.items():
            held = self._held[target] = Held(end_offset=Offset(intent.end_offset), retry_ms=0)
            for offset in intent.offsets:
                if (due_ms := loaded.take(offset)) is not None:
                    held.add(due_ms, offset)
            held.intended = len(held)
        for count, (due_ms, offset) in enumerate(loaded, start=1):
            self.index.add(due_ms, offset)
            if count % _NEAR_MESSAGES == 0:
                await asyncio.sleep(0)

    async def move_due(self) -> None:
        """Move what is due by now. BrokerError if the delayed topic cannot be used: try again later."""
        async with self._moving:
            await self._release_held()
            while not self.is_stopping and (due := await self._take_due()):
                self._in_round = len(due)
                try:
                    await self._move(await self._read(due))
                finally:
                    self._in_round = 0
            await self._settle({})
            await self._trim()

    # ---- a round

    async def _take_due(self) -> list[tuple[int, int]]:
        now_ms = self._clock.now_ms()
        while not self.index.bring_near(now_ms, count_max=_NEAR_MESSAGES):  # noqa: ASYNC110 - it is work
            await asyncio.sleep(0)
        return self.index.take_due(now_ms, count_max=ROUND_MESSAGES)

    async def _read(self, due: list[tuple[int, int]]) -> list[Due]:
        """The first of the messages, as many as may be in memory at once; the others go back."""
        try:
            read = await read_due(self._log.known(), due)
        except BrokerError:
            self._put_back(due)
            raise
        self._put_back(due[read.taken :])
        self._in_round = read.taken
        self.lost += read.lost
        return read.messages

    async def _move(self, messages: list[Due]) -> None:
        moves = self._plan(messages)
        now_ms = self._clock.now_ms()
        intents = {}
        for target, move in moves.items():
            intent = Intent(move.end_offset, [each.offset for each in move.due])
            intents[intent_key(target)] = write_intent(target, intent, time_ms=now_ms)
        try:
            await self._settle(intents)
        except BrokerError:
            self._put_back((each.due_ms, each.offset) for move in moves.values() for each in move.due)
            raise
        await self._carry_out(moves)

    def _plan(self, messages: list[Due]) -> dict[PartitionId, _Move]:
        """Which messages go where; those of a target that cannot be asked are held."""
        moves: dict[PartitionId, _Move] = {}
        dropped: Counter[str] = Counter()
        prefix = self._log.id_prefix
        for each in messages:
            try:
                target, message = self._address(each, prefix)
            except BrokerError as error:
                dropped[str(error)] += 1
                self._owe([message_key(each.offset)])
                continue
            if target in self._held:
                self._held[target].add(each.due_ms, each.offset)
            elif (move := self._move_to(target, moves)) is not None:
                move.due.append(each)
                move.messages.append(message)
            else:
                self._held[target].add(each.due_ms, each.offset)
        self.dropped += dropped.total()
        for reason, count in dropped.items():
            _logger.warning("delayed messages dropped: count=%d %s", count, reason)
        return moves

    def _address(self, due: Due, prefix: str) -> tuple[PartitionId, NewMessage]:
        """Where a message goes, and what is delivered there; BrokerError if it cannot be delivered."""
        stored = due.stored
        topic, index = self._topics.by_id(stored.target.topic_id), stored.target.partition
        if topic is None:
            raise BrokerError(
                f"topic {stored.target.topic_id} is gone", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if index == CHOSEN_WHEN_DUE:
            index = self._publisher.choose(topic, stored.message.key)
        if not 0 <= index < len(topic.partitions):
            raise BrokerError(
                f"{topic.name} has no partition {index}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        message = delivered(stored.message, f"{prefix}{due.offset}")
        check_message(message, topic.settings)
        return PartitionId(topic.id, index), message

    def _move_to(self, target: PartitionId, moves: dict[PartitionId, _Move]) -> _Move | None:
        move = moves.get(target)
        if move is None:
            topic = self._topics.by_id(target.topic_id)
            assert topic is not None
            try:
                move = moves[target] = _Move(topic.partitions[target.partition])
            except BrokerError as error:
                self._hold(target, error, end_offset=None)
        return move

    async def _carry_out(self, moves: Mapping[PartitionId, _Move]) -> None:
        """Publish, all targets before the first wait, so that they share a sync."""
        ends: dict[PartitionId, Offset] = {}
        for target, move in moves.items():
            try:
                ends[target] = self._publisher.publish(move.partition, move.messages).end_offset
            except (BrokerError, StorageError) as error:
                self._hold_move(target, move, error)
        for target, end in ends.items():
            move = moves[target]
            try:
                await move.partition.wait_acknowledged(end)
            except (BrokerError, StorageError) as error:
                self._hold_move(target, move, error)
            else:
                self._note_moved([each.offset for each in move.due])
                self._owe([intent_key(target)])

    # ---- targets that cannot be asked

    def _hold_move(self, target: PartitionId, move: _Move, error: Exception) -> None:
        self._check_its_own(target, error)
        held = self._hold(target, error, end_offset=move.end_offset)
        for each in move.due:
            held.add(each.due_ms, each.offset)
        held.intended = len(held)

    def _hold(self, target: PartitionId, error: Exception, *, end_offset: Offset | None) -> Held:
        _logger.warning("delayed messages are held: target=%s %s", target, error)
        held = self._held[target] = Held(end_offset=end_offset, retry_ms=0)
        held.postpone(self._clock.steady_ms())
        return held

    async def _release_held(self) -> None:
        now_ms = self._clock.steady_ms()
        for target, held in list(self._held.items()):
            if held.retry_ms > now_ms:
                continue
            try:
                arrived = await self._arrived(target, held)
            except (BrokerError, StorageError) as error:
                self._check_its_own(target, error)
                held.postpone(now_ms)
                continue
            del self._held[target]
            self._note_moved([offset for _, offset in held if offset in arrived])
            self._put_back((due_ms, offset) for due_ms, offset in held if offset not in arrived)
            if held.end_offset is not None:
                self._owe([intent_key(target)])

    async def _arrived(self, target: PartitionId, held: Held) -> Collection[int]:
        """Which of the held messages are in the target; BrokerError if it still cannot be asked."""
        topic = self._topics.by_id(target.topic_id)
        if topic is None or target.partition >= len(topic.partitions):
            return ()
        partition = topic.partitions[target.partition]
        end = partition.end_offset
        if held.end_offset is None:
            return ()
        await partition.wait_acknowledged(end)  # what is on its way counts as well
        prefix = self._log.id_prefix
        ids = {f"{prefix}{offset}": offset for _, offset in islice(held, held.intended)}
        found = await find_delayed_ids(partition, start=held.end_offset, end=end, header=DELAYED_ID, ids=ids)
        return {ids[each] for each in found}

    def _check_its_own(self, target: PartitionId, error: Exception) -> None:
        """The log of a deleted topic ends with a StorageError, which is nobody's trouble; any other is."""
        topic = self._topics.by_id(target.topic_id)
        if isinstance(error, StorageError) and topic is not None:
            raise error

    # ---- what is over

    def _note_moved(self, offsets: Collection[int]) -> None:
        self.moved += len(offsets)
        self._moved_since_trim += len(offsets)
        self._owe([message_key(offset) for offset in offsets])

    def _put_back(self, pairs: Iterable[tuple[int, int]]) -> None:
        for due_ms, offset in pairs:
            self.index.add(due_ms, offset)

    def _owe(self, keys: Collection[bytes]) -> None:
        for record in write_tombstones(keys, time_ms=self._clock.now_ms()):
            key = record[1]
            assert isinstance(key, bytes)
            self._owed[key] = record

    async def _settle(self, intents: Mapping[bytes, NewRecord]) -> None:
        """Store what is owed, and intents with it, in one batch. A new intent takes an old one's place."""
        records = {**self._owed, **intents}
        if records:
            await self._log.append(list(records.values()))
            self._owed.clear()

    async def _trim(self) -> None:
        """Let go of what lies below the oldest message that waits. To find that one costs as many as wait."""
        waiting, moved = len(self.index), self._moved_since_trim
        if not moved or self._held or (waiting and moved < max(_TRIM_MESSAGES, waiting // 4)):
            return
        partition = self._log.known()
        if partition.size_bytes < _TRIM_BYTES_MIN:
            return
        self._moved_since_trim = 0
        oldest = self.index.oldest_offset()
        await partition.delete_records(partition.high_watermark if oldest is None else oldest)


def delivered(message: NewMessage, delayed_id: str) -> NewMessage:
    """The message as it arrives."""
    return message._replace(headers=(*message.headers, (DELAYED_ID, delayed_id.encode())))
