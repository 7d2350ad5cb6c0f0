"""A subscription at work: chooses who gets which message, and takes back what becomes of it.

Every turn (`_run`), in plain code without an await: locks that ran out and back-offs that are over are seen
to, new messages are taken from the feeds as far as members have room, each is given to a member, and what was
chosen for a member leaves in one piece. A turn is planned when something changed: a message became durable, a
member got room, an acknowledgement came, a time has come. Nobody polls.

Rules:
- A message is with one member at a time, for as long as its lock holds (`machine`).
- The durable cursor moves only over what is acknowledged, dead-lettered or nobody's (`cursor_writer`).
- With at_most_once a message leaves when the cursor past it is durable.
- At `unacked_max` messages under way, and while the retry buffer of a log in memory is full, nothing new is
  taken; members are told.
- What all subscriptions of a node keep of their messages has one bound (`message_memory`). A subscription
  whose last member has left keeps no message that can be read again, and reads none until a member comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from tailrace.broker.subscriptions.acknowledging import LockedMessages
from tailrace.broker.subscriptions.at_most_once import SendWhenDurable
from tailrace.broker.subscriptions.cursor_writer import CursorWriter
from tailrace.broker.subscriptions.dead_letter import DeadLetters, find_letters
from tailrace.broker.subscriptions.definition import Guarantee, Mode, Start, SubscriptionConfig
from tailrace.broker.subscriptions.delivery import Delivery, Notice, Recipient
from tailrace.broker.subscriptions.dispatch import make_dispatch
from tailrace.broker.subscriptions.intake import Intake
from tailrace.broker.subscriptions.latency import Latencies, Stopwatch
from tailrace.broker.subscriptions.machine import Settled, Verdict
from tailrace.broker.subscriptions.member import Member, OffsetRanges
from tailrace.broker.subscriptions.message_memory import SUBSCRIPTION_BYTES_MAX, MessageMemory
from tailrace.broker.subscriptions.move import SeekPlan, plan_move
from tailrace.broker.subscriptions.redelivery import Redelivery
from tailrace.broker.subscriptions.retained import RECORD_BYTES, Retained, size_of
from tailrace.broker.subscriptions.start import resolve_start
from tailrace.broker.subscriptions.stored import AcksKey, StoredAcks
from tailrace.broker.subscriptions.subscribed_partition import (
    PRIORITY_DEFAULT,
    Pending,
    SubscribedPartition,
    is_expired,
    priority_of,
)
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import Record
from tailrace.runtime import Clock, Supervisor
from tailrace.storage.api import Waiter

_TURN_MESSAGES = 512
"""Delivered in one turn; then the others get theirs."""
_TURN_BYTES = 1 << 20
"""Taken from the feeds in one turn, but for the last message: a turn must not gather gigabytes."""
_LOOK_AHEAD = 1000
"""Messages at hand from which a key or a priority is chosen."""


@dataclass(slots=True)
class SubscriptionCounters:
    """What a subscription has done since it was loaded; grows only."""

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0


class Subscription:
    """One subscription of this node; made and ended by `Subscriptions`."""

    def __init__(
        self,
        config: SubscriptionConfig,
        *,
        created_ms: int,
        clock: Clock,
        tasks: Supervisor,
        dead_letters: DeadLetters,
        retained: Retained,
        memory: MessageMemory,
        on_redrive: Callable[[Subscription], SubscribedPartition | None],
        latencies: Latencies | None = None,
    ) -> None:
        self.config = config
        self.created_ms = created_ms
        self.counters = SubscriptionCounters()
        self.paused = ""  # why nothing new is taken
        self.partitions: list[SubscribedPartition] = []
        self.writer: CursorWriter | None = None
        self._clock = clock
        self._stopwatch = Stopwatch(latencies or Latencies(), clock, restart_ms=config.ack_timeout_ms)
        self._retained = retained
        self._memory = memory
        self._on_redrive = on_redrive  # gives the dead-letter topic as one more partition
        self._by_name: dict[tuple[str, int], SubscribedPartition] = {}
        self._members: dict[int, Member] = {}
        self._next_member_id = 1
        self._dispatch = make_dispatch(config)
        self._looks_ahead = config.priority or config.mode is Mode.KEY_SHARED
        self._keys: dict[
            tuple[int, int], bytes | None
        ] = {}  # of what the dispatch counts as out; key_shared only
        self._ahead_bytes = 0  # of messages in the dispatch that nobody had yet
        self._ahead_bytes_max = SUBSCRIPTION_BYTES_MAX
        self._keeps_order = False  # nothing new is taken before what members had earlier
        self._intake = Intake(self.partitions, order=config.order)
        self._loop = asyncio.get_running_loop()
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0  # of the steady clock, for which it is set
        self._closed = False
        self._deleted = False
        self._redelivery = Redelivery(
            config,
            clock=clock,
            tasks=tasks,
            retained=retained,
            dead_letters=dead_letters,
            on_record=self._put_again,
            on_done=self._settled,
            on_stored=self._acks_stored,
            on_caught_up=self.wake,
        )

    def __repr__(self) -> str:
        return f"<Subscription {self.config.name} of {self.config.topic}, {len(self._members)} members>"

    # ---- its partitions

    def open(self, partitions: Iterable[SubscribedPartition], writer: CursorWriter) -> None:
        """Begin; `partitions` may be added to later."""
        self.writer = writer
        for partition in partitions:
            self.add_partition(partition)

    def add_partition(self, partition: SubscribedPartition) -> None:
        """Deliver from this one too; it takes the place of one whose topic was deleted and made anew."""
        name = partition.source.topic, partition.source.partition
        if (gone := self._by_name.get(name)) is not None:  # nobody can settle what is left of it
            self._move(gone, gone.machine.cursor.position)
        self.partitions.append(partition)
        self._by_name[name] = partition
        partition.partition.waiters.add(self.wake)
        self.wake()

    def close(self, *, notice: Notice | None = None) -> None:
        """Deliver nothing more; members are told why, if there is a reason."""
        self._closed = True
        self._deleted = notice is not None
        if self._timer is not None:
            self._timer.cancel()
        self._redelivery.close()
        for partition in self.partitions:
            partition.partition.waiters.discard(self.wake)
            partition.feed.close()
        for member in list(self._members.values()):
            if notice is not None:
                member.recipient.notice(notice)
        self._members.clear()
        self._memory.report(self, 0)

    @property
    def closed(self) -> bool:
        """Whether it delivers nothing more."""
        return self._closed

    # ---- members

    @property
    def members(self) -> Collection[Member]:
        return self._members.values()

    @property
    def unacked(self) -> int:
        """Messages that were delivered and are not done."""
        return sum([partition.machine.unacked for partition in self.partitions])

    @property
    def dead(self) -> int:
        """Dead letters written since it was loaded."""
        return self._redelivery.dead

    @property
    def skipped(self) -> dict[str, int]:
        """Messages that were never delivered since it was loaded, by the reason."""
        unreadable = sum([each.unreadable for each in self.partitions])
        gone = sum([each.skipped for each in self.partitions]) - unreadable
        return {"gone": gone, "unreadable": unreadable}

    @property
    def redriven_to(self) -> int:
        """Up to where dead letters were put up for delivery again."""
        letters = self._letters()
        return 0 if letters is None else letters.feed.limit or 0

    @property
    def retained_bytes(self) -> int:
        return self._retained.bytes

    def join(self, recipient: Recipient, *, credit: int) -> Member:
        """A new member; it may hold `credit` messages at a time, and 0 means that it only pulls."""
        self._check_open()
        if self.config.mode is Mode.EXCLUSIVE and self._members:
            holder = next(iter(self._members.values())).recipient.name
            raise BrokerError(
                f"subscription {self.config.name} is exclusive and {holder} has it",
                code=ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
        member = Member(self._next_member_id, recipient, self, credit=credit)
        self._next_member_id += 1
        if not self._members:
            self._take_up()
        self._members[member.id] = member
        self._dispatch.add(member)
        self.wake()
        return member

    def leave(self, member: Member, *, failed: bool = True) -> None:
        """What the member holds is available again at once; where it was lost, it has failed with that."""
        if self._members.pop(member.id, None) is None:
            return
        self._dispatch.remove(member)
        for partition in self.partitions:
            ready, dead = partition.machine.release(member.id, failed=failed)
            if self._members:
                for offset in ready:
                    self._redelivery.deliver_again(partition, offset)
            for offset in dead:
                self._redelivery.bury(partition, offset, f"{member.recipient.name} left without settling it")
        if not self._members:
            self._rest()
        self._store_soon()
        self.wake()

    def _rest(self) -> None:
        """The last member has left: keep no message that can be read again."""
        self._redelivery.forget()
        back: dict[int, int] = {}  # place -> the first offset that was taken from its feed for nothing
        taken = [(each.partition, each.record) for each in self._dispatch.forget() if not each.again]
        for partition, record in (*taken, *self._intake.forget_all()):
            back[partition.place] = min(record.offset, back.get(partition.place, record.offset))
        self._ahead_bytes = 0
        for partition in self.partitions:
            feed = partition.feed
            feed.move_to(min(feed.position, back.get(partition.place, feed.position)))
            for offset in partition.machine.park():
                if (key := self._keys.pop((partition.place, offset), None)) is not None:
                    self._dispatch.settle(key)  # `_take_up` keeps the order of the key
        if not self._retained.required:
            self._retained.clear()
        self._report_memory()

    def _take_up(self) -> None:
        """The first member comes: have everything read again that is to be delivered again."""
        for partition in self.partitions:
            for offset in partition.machine.unpark():
                self._redelivery.deliver_again(partition, offset)
        self._keeps_order = self.config.mode is Mode.KEY_SHARED

    def forget_messages(self) -> None:
        """Drop the messages that can be read again, and without members also those that perhaps cannot."""
        if not self._members or not self._retained.required:
            self._retained.clear()
        self._report_memory()

    def _report_memory(self) -> None:
        self._memory.report(self, self._retained.bytes + self._ahead_bytes + self._redelivery.ahead_bytes)

    def has_room(self, member: Member) -> None:
        """A member may have got room."""
        if member.id in self._members:
            self._dispatch.ready(member)
            self.wake()

    # ---- settling

    def ack(self, topic: str, partition: int, epoch: int, ranges: OffsetRanges, waiter: Waiter) -> int:
        self._check_open()
        subscribed = self._find(topic, partition)
        settled = subscribed.machine.ack(ranges, epoch=epoch)
        self._settle_all(subscribed, settled)
        self._stopwatch.settled(subscribed.source, ranges)
        self.counters.acknowledged += len(settled)
        assert self.writer is not None
        self.writer.tell(waiter)
        if settled:
            self.wake()
        return len(settled)

    def nack(
        self,
        member: Member,
        topic: str,
        partition: int,
        epoch: int,
        ranges: OffsetRanges,
        *,
        delay_ms: int | None,
        reason: str,
    ) -> int:
        self._check_open()
        subscribed = self._find(topic, partition)
        now_ms, count = self._clock.steady_ms(), 0
        for offset in subscribed.machine.held_by(member.id, ranges):
            verdict = subscribed.machine.nack(
                offset, member=member.id, epoch=epoch, now_ms=now_ms, delay_ms=delay_ms
            )
            if verdict is None:
                continue
            count += 1
            self._free(member.id)
            if verdict is Verdict.DEAD:
                self._redelivery.bury(subscribed, offset, reason or f"refused by {member.recipient.name}")
        if count:
            self._store_soon()
            self.wake()
        return count

    def give_back(self, member: Member, topic: str, partition: int, epoch: int, ranges: OffsetRanges) -> int:
        """Harmless where nothing is delivered any more, as leaving is: what is not settled comes again."""
        if self._closed:
            return 0
        subscribed, count = self._find(topic, partition), 0
        for offset in subscribed.machine.held_by(member.id, ranges):
            if subscribed.machine.give_back(offset, member=member.id, epoch=epoch):
                count += 1
                self._free(member.id)
                self._redelivery.deliver_again(subscribed, offset)
        if count:
            self.wake()
        return count

    def extend(
        self,
        member: Member,
        topic: str,
        partition: int,
        epoch: int,
        ranges: OffsetRanges,
        *,
        extend_ms: int,
    ) -> int:
        self._check_open()
        machine = self._find(topic, partition).machine
        until_ms = self._clock.steady_ms() + extend_ms
        held = machine.held_by(member.id, ranges)
        return sum(
            machine.extend(offset, member=member.id, epoch=epoch, until_ms=until_ms) for offset in held
        )

    # ---- acknowledgements of transactions

    def find_locked(
        self, members: Sequence[Member], topic: str, partition: int, epoch: int, ranges: OffsetRanges
    ) -> LockedMessages | None:
        """The messages of these ranges; None unless each is in flight with one of the members."""
        self._check_open()
        subscribed = self._find(topic, partition)
        ids = [member.id for member in members]
        offsets = subscribed.machine.locked(ranges, members=ids, epoch=epoch)
        return None if offsets is None else LockedMessages(self, subscribed, offsets)

    def pend(self, partition: SubscribedPartition, offsets: Iterable[int]) -> None:
        """A transaction acknowledges these, which are in flight: no member has them until it has ended."""
        for _, member_id in partition.machine.pend(offsets):
            self._free(member_id)
        self.wake()

    def pending_committed(self, partition: SubscribedPartition, key: AcksKey, acks: StoredAcks) -> None:
        """The transaction has committed: its messages are done, unless a seek came between."""
        dead = partition.machine.count_dead(acks.offsets)
        settled = partition.machine.commit(acks.offsets, epoch=acks.epoch)
        self._settle_all(partition, settled)
        if not dead:
            self._stopwatch.settled(partition.source, acks.ranges)
            self.counters.acknowledged += len(settled)
        assert self.writer is not None
        self.writer.acks_committed([key])
        self.wake()

    def pending_aborted(self, partition: SubscribedPartition, acks: StoredAcks) -> None:
        """The transaction was aborted: its messages are delivered again, and no delivery has failed."""
        ready, dead = partition.machine.abort(acks.offsets, epoch=acks.epoch)
        for offset in ready:
            if self._members:  # else the next one to come has it delivered
                self._redelivery.deliver_again(partition, offset)
        for offset in dead:
            self._redelivery.bury(partition, offset, "given up before the broker was started again")
        self.wake()

    # ---- moving the cursor

    async def seek(self, start: Start, partition: int | None = None) -> int:
        """Go on from elsewhere, in one partition or in all; the new epoch, once that is durable."""
        return await self.apply_seek(await self.plan_seek(start, partition))

    async def plan_seek(self, start: Start, partition: int | None = None) -> SeekPlan:
        """What a seek would do now; nothing is changed."""
        chosen = [
            each
            for each in self.partitions
            if each.source.topic == self.config.topic and partition in (None, each.source.partition)
        ]
        if not chosen:
            raise _no_partition(self.config, self.config.topic, partition or 0)
        targets = [await resolve_start(start, each.partition) for each in chosen]
        moves = [plan_move(each, target) for each, target in zip(chosen, targets, strict=True)]
        return SeekPlan(partition=partition, moves=moves)

    async def apply_seek(self, plan: SeekPlan) -> int:
        """Move as planned; the new epoch, once that is durable."""
        self._check_open()
        for each in plan.moves:
            self._move(each.subscribed, each.after)
        assert self.writer is not None
        self.writer.need_snapshots()
        self._tell_members(Notice(event="seek", partition=-1 if plan.partition is None else plan.partition))
        self.wake()
        await self.writer.wait()
        return plan.epoch

    async def redrive(self, count: int | None = None) -> int:
        """Deliver dead letters again, the oldest first; how many, once that is durable."""
        self._check_open()
        letters = self._letters() or self._on_redrive(self)
        if letters is None:
            return 0
        limit = max(self.redriven_to, letters.partition.start_offset)
        target, redriven = await find_letters(letters.partition, limit, count)
        self._check_open()
        if not redriven or target <= self.redriven_to:
            return 0
        letters.feed.limit = target
        assert self.writer is not None
        self.writer.need_snapshots()
        self.wake()
        await self.writer.wait()
        return redriven

    # ---- a turn

    def wake(self) -> None:
        """Something may have changed: have a turn soon."""
        if not self._planned and not self._closed:
            self._planned = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._planned = False
        if self._closed:
            return
        now_ms = self._clock.steady_ms()
        self._see_to_times(now_ms)
        if self._members:
            self._heed_memory()
            waited = len(self._dispatch)  # they took room that is free again once they are given away
            expiry_ms = self._expiry_ms(now_ms)
            more = self._fill(expiry_ms)
            given = self._assign(now_ms, expiry_ms) if self._dispatch else 0
            if more or given >= _TURN_MESSAGES or (waited and given):
                self.wake()
            self._send()
            self._note_pause()
            self._report_memory()
        self._redelivery.go_on()
        self._report_skipped()
        self._set_timer(now_ms)

    def _see_to_times(self, now_ms: int) -> None:
        for partition in self.partitions:
            for expired in partition.machine.expire(now_ms):
                self._free(expired.member)
                if expired.verdict is Verdict.DEAD:
                    reason = f"not settled within {self.config.ack_timeout_ms} ms"
                    if expired.member is None:
                        reason = "given up before the broker was started again"
                    self._redelivery.bury(partition, expired.offset, reason)
                self._store_soon()
            for offset in partition.machine.take_due(now_ms):
                if self._members:  # else the next one to come has it delivered
                    self._redelivery.deliver_again(partition, offset)

    def _heed_memory(self) -> None:
        """Keep what the node has room for."""
        allowed = self._memory.allowance(self)
        self._retained.bytes_max = self._ahead_bytes_max = self._redelivery.ahead_bytes_max = allowed

    def _fill(self, expiry_ms: int) -> bool:
        """Take new messages from the feeds, as many as can be given away; whether to go on next turn."""
        wanted = _LOOK_AHEAD if self._looks_ahead else sum([each.room for each in self._members.values()])
        room = self.config.unacked_max - self.unacked
        missing = min(wanted, room) - len(self._dispatch)
        if missing <= 0 or self._retained.is_full or self._ahead_bytes >= self._ahead_bytes_max:
            return False
        if self._keeps_order and self._awaits_earlier():
            return False
        self._keeps_order = False
        prioritised = self.config.priority
        messages_left, bytes_max = _TURN_MESSAGES, min(_TURN_BYTES, self._ahead_bytes_max)
        before = self._ahead_bytes
        for partition, record in self._intake.take(min(missing, messages_left), expiry_ms):
            priority = priority_of(record) if prioritised else PRIORITY_DEFAULT
            size = size_of(record)
            pending = Pending(partition, record, again=False, priority=priority, size=size)
            self._dispatch.put(pending, again=False)
            messages_left -= 1
            self._ahead_bytes += size
            if self._ahead_bytes - before >= bytes_max:
                break
        return messages_left <= 0 or self._ahead_bytes - before >= bytes_max

    def _awaits_earlier(self) -> bool:
        """Whether messages that members had before are still to be read again, or undecided."""
        return self._redelivery.is_behind or any(each.undecided_acks for each in self.partitions)

    def _expiry_ms(self, now_ms: int) -> int:
        """Returns the earlier of the machine's clock and `now_ms` of the steady one.

        A wrong clock then expires less. Messages carry times of day: after the machine's clock was set back
        its time counts; after it jumped ahead the steady one does.
        """
        return min(self._clock.now_ms(), now_ms)

    def _assign(self, now_ms: int, expiry_ms: int) -> int:
        """Give messages to members until one of them runs out; how many messages wait no longer."""
        at_once = self.config.delivery is Guarantee.AT_MOST_ONCE
        keeps_keys = self.config.mode is Mode.KEY_SHARED
        taken = delivered = sent_bytes = 0
        choose, retain = self._dispatch.next, self._retained.put
        while taken < _TURN_MESSAGES and (pair := choose()) is not None:
            member, pending = pair
            taken += 1
            partition, record, size = pending.partition, pending.record, pending.size
            if not pending.again:
                self._ahead_bytes -= size
            machine, offset = partition.machine, record.offset
            if record.headers and is_expired(record, expiry_ms) and machine.can_deliver(offset):
                self._pass_expired(partition, record)
                continue
            count = machine.deliver(offset, member=member.id, now_ms=now_ms)
            if not count:  # settled while it waited here
                self._dispatch.settle(record.key)
                continue
            member.outbox.append(Delivery(partition.source, record, count=count, epoch=machine.epoch))
            member.held += 1
            if member.wanted > 0:
                member.wanted -= 1
            delivered += 1
            sent_bytes += size
            if count > 1:
                self.counters.redelivered += 1
            if at_once:
                machine.ack(((offset, offset + 1),), epoch=machine.epoch)
                self._dispatch.settle(record.key)
                continue
            retain(partition.place, record, size)
            if keeps_keys:
                self._keys[partition.place, offset] = record.key
        if delivered:
            self.counters.delivered += delivered
            self._count_out(delivered, sent_bytes)
        return taken

    def _count_out(self, count: int, size: int) -> None:
        """So many messages leave the topic, of about this size in memory."""
        traffic = self.partitions[0].partition.counters
        traffic.records_out += count
        traffic.bytes_out += size - count * RECORD_BYTES

    def _send(self) -> None:
        for member in [each for each in self._members.values() if each.outbox]:
            deliveries, member.outbox = member.outbox, []
            if self.config.delivery is Guarantee.AT_MOST_ONCE:
                assert self.writer is not None
                self.writer.tell(SendWhenDurable(self, member, deliveries))
            else:
                self._stopwatch.sent(deliveries)
                member.recipient.deliver(deliveries)

    def send_durable(self, member: Member, deliveries: Sequence[Delivery]) -> None:
        """The cursor past these is durable: they may leave, if there is still somebody to send them to."""
        if member.id in self._members:
            self._stopwatch.sent(deliveries)
            member.recipient.deliver(deliveries)
            self.let_go(member, len(deliveries))

    def let_go(self, member: Member, count: int) -> None:
        """At most once: a member holds messages until they are sent, or never will be."""
        member.held -= count
        self.has_room(member)

    def _set_timer(self, now_ms: int) -> None:
        """Have a turn when the next lock, back-off or wait for a burial ends.

        A timer that is set for an earlier time stays: it costs one turn for nothing, and a busy subscription
        would set it anew in every turn.
        """
        next_ms: int | None = None
        for each in self.partitions:
            at_ms = each.machine.next_time_ms()
            if at_ms is not None and (next_ms is None or at_ms < next_ms):
                next_ms = at_ms
        if self._timer is not None:
            if next_ms is not None and self._timer_ms <= next_ms:
                return
            self._timer.cancel()
            self._timer = None
        if next_ms is not None:
            self._timer_ms = next_ms
            self._timer = self._loop.call_later(max(next_ms - now_ms, 1) / 1000, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self.wake()

    # ---- what becomes of messages

    def _settle_all(self, partition: SubscribedPartition, settled: Sequence[Settled]) -> None:
        """Messages are done with; each member who had some is looked at once."""
        place, keys = partition.place, self._keys
        self._retained.drop_settled(place, settled)
        if keys:
            for offset, _ in settled:
                if (key := keys.pop((place, offset), None)) is not None:
                    self._dispatch.settle(key)
        freed: dict[int, int] = {}
        for _, member_id in settled:
            if member_id is not None:
                freed[member_id] = freed.get(member_id, 0) + 1
        for member_id, count in freed.items():
            self._free(member_id, count)

    def _free(self, member_id: int | None, count: int = 1) -> None:
        """A member holds so many messages less."""
        member = self._members.get(member_id) if member_id is not None else None
        if member is not None:
            member.held -= count
            self._dispatch.ready(member)

    def _pass_expired(self, partition: SubscribedPartition, record: Record) -> None:
        """The time to live of a message ended while it waited for a member."""
        partition.expired += 1
        if not partition.machine.lost(record.offset):
            partition.machine.pass_over(record.offset, record.offset + 1)
        self._retained.drop(partition.place, record.offset)
        self._keys.pop((partition.place, record.offset), None)
        self._dispatch.settle(record.key)
        self._store_soon()

    def _put_again(self, partition: SubscribedPartition, record: Record) -> None:
        """A message that somebody had is here again, and waits for a member."""
        priority = priority_of(record) if self.config.priority else PRIORITY_DEFAULT
        pending = Pending(partition, record, again=True, priority=priority, size=size_of(record))
        self._dispatch.put(pending, again=True)
        if self.config.mode is Mode.KEY_SHARED:
            self._keys[partition.place, record.offset] = record.key  # `_rest` may have dropped it
        self.wake()

    def _settled(self, partition: SubscribedPartition, offset: int) -> None:
        """A message that nobody had any more is done with: buried, or gone."""
        self._settle_all(partition, [Settled(offset, None)])
        self._store_soon()
        self.wake()

    def _acks_stored(self, keys: Iterable[AcksKey]) -> None:
        """Records of transactions say what the machines know by now."""
        assert self.writer is not None
        self.writer.acks_committed(keys)

    def _store_soon(self) -> None:
        """Something is to be made durable that nobody waits for."""
        assert self.writer is not None
        self.writer.flush_soon()

    def _move(self, partition: SubscribedPartition, target: int) -> None:
        for settled in partition.machine.seek(target):
            if settled.member is not None:
                self._free(settled.member)
        self._retained.drop_all(partition.place)
        for key in [key for key in self._keys if key[0] == partition.place]:
            if (held := self._keys.pop(key)) is not None:
                self._dispatch.settle(held)
        self._dispatch.discard(lambda pending: self._is_of(pending, partition))
        self._intake.forget(partition)
        partition.feed.move_to(target)

    def _is_of(self, pending: Pending, partition: SubscribedPartition) -> bool:
        """Whether a message is of a partition, and is to be forgotten with it."""
        if pending.partition is not partition:
            return False
        if not pending.again:
            self._ahead_bytes -= pending.size
        return True

    # ---- inside

    def _find(self, topic: str, partition: int) -> SubscribedPartition:
        found = self._by_name.get((topic or self.config.topic, partition))
        if found is None:
            raise _no_partition(self.config, topic or self.config.topic, partition)
        return found

    def _letters(self) -> SubscribedPartition | None:
        """Its dead letters, if some were redriven; a topic that was deleted since does not count."""
        found = self._by_name.get((self.config.dead_letter_topic, 0))
        return None if found is None or not found.partition.is_held_here else found

    def _check_open(self) -> None:
        if self._deleted:
            raise BrokerError(
                f"subscription {self.config.name} was deleted", code=ErrorCode.RESOURCE_NOT_FOUND
            )
        if self._closed:
            raise BrokerError("this node is shutting down", code=ErrorCode.NOT_COORDINATOR)

    def _note_pause(self) -> None:
        """Tell members when nothing new is taken, and when there is room again that is worth telling."""
        room, reason = self.config.unacked_max - self.unacked, ""
        if room <= 0:
            reason = f"{self.config.unacked_max} messages are delivered and not settled (unacked_max)"
        elif self._retained.is_full:
            reason = "the retry buffer is full of messages that are not settled"
        elif self.paused and (room * 4 < self.config.unacked_max or not self._retained.has_room):
            return
        if bool(reason) != bool(self.paused):
            self._tell_members(Notice(event="paused" if reason else "resumed", reason=reason))
        self.paused = reason

    def _report_skipped(self) -> None:
        """Tell members of messages that are never delivered, and store that the cursor passed them."""
        for partition in self.partitions:
            if not partition.feed.skips:
                continue
            source = partition.source
            for skip in partition.take_skips():
                reason = "gone from the log before they were delivered"
                if skip.fault:
                    place = f"{source.topic}-{source.partition}"
                    reason = f"{place} cannot be read at offset {skip.offset}: {skip.fault}"
                notice = Notice(event="skipped", partition=source.partition, count=skip.count, reason=reason)
                self._tell_members(notice)
                self._store_soon()

    def _tell_members(self, notice: Notice) -> None:
        for member in list(self._members.values()):
            member.recipient.notice(notice)


def _no_partition(config: SubscriptionConfig, topic: str, partition: int) -> BrokerError:
    return BrokerError(
        f"subscription {config.name} does not deliver from {topic}-{partition}",
        code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
