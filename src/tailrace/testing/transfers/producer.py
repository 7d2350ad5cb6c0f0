"""One transactional producer: a process of its own, which keeps what it knows when the broker dies.

A transaction is a list of steps. A step is done when it is answered, so that a producer which goes on after a
crash of the broker repeats the one that was not, as clients do: with the same batches and the same identity.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tailrace.broker.gate import Access
from tailrace.broker.groups.api import CommitRequest, OffsetToCommit
from tailrace.broker.transactions import Identity, Situation, TransactionRefused
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.model.operation import Operation
from tailrace.records import build_batch, read_batch
from tailrace.testing.transfers.oracle import Attempt, Fate, Oracle, Wrong

GROUP = "group"
_RETRIED = (Situation.NOT_COMPLETE, Situation.LOG_REFUSES, Situation.LOADING)
_RETRIES_MAX = 30
_PAUSE_S = 0.1

Step = Callable[[Access], Awaitable[None]]
Connect = Callable[[], Access]


@dataclass(slots=True)
class _Sent:
    """A batch that is on its way."""

    tp: TopicPartition
    value: bytes
    data: bytes


@dataclass(slots=True, kw_only=True)
class Producer:
    """A producer of a transactional id, of client version 0 or 2."""

    name: str
    client_version: int
    places: list[TopicPartition]
    position: TopicPartition  # whose position it commits
    oracle: Oracle
    rng: random.Random
    timeout_ms: int
    identity: Identity | None = None
    attempt: Attempt | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    _connect: Connect | None = None
    _access: Access | None = None
    _stuck: tuple[Access, Identity] | None = None  # a copy of an EndTxn that waits on an older connection
    _late: tuple[Identity, TopicPartition, int] | None = None  # what a late batch would carry

    @property
    def bumps(self) -> bool:
        return self.client_version == 2

    # ---- work

    async def work(self, connect: Connect, *, transactions: int) -> None:
        """Go on where the last life of the broker ended, and do some more."""
        self._connect, self._access, self._stuck = connect, connect(), None
        for _ in range(transactions):
            try:
                if self.identity is None:
                    await self.init(connect)
                if not self.steps:
                    self.plan()
                while self.steps:
                    await self._retrying(self.steps[0], connect)
                    if self.steps:  # else the transaction was given up
                        self.steps.pop(0)
            except BrokerError as error:
                self._give_up(error)

    async def init(self, connect: Connect) -> None:
        """Become the only producer of the id; what was open is aborted."""

        async def attempt(access: Access) -> None:
            transaction = access.transaction(self.name, Operation.WRITE)
            self.identity = await transaction.init(timeout_ms=self.timeout_ms)

        await self._retrying(attempt, connect)
        self.sequences.clear()
        self._late = None
        for each in self.oracle.attempts:
            if each.name == self.name and each.fate is Fate.OPEN:
                each.fate = Fate.ABORTED

    def disconnect(self) -> None:
        """The broker is another one now."""
        self._access = None

    def plan(self) -> None:
        """The steps of the next transaction."""
        rng = self.rng
        self.attempt = self.oracle.begin(self.name)
        for _ in range(rng.choice([1, 1, 2, 3])):
            count = rng.randint(1, len(self.places))
            self.steps.append(_Writing(self, sorted(rng.sample(self.places, count))).step)
        if rng.random() < 0.4:
            self.steps.insert(rng.randrange(len(self.steps) + 1), self._commit_position)
        if rng.random() < 0.15:
            self.steps.insert(rng.randrange(len(self.steps) + 1), self._linger)
        self.steps.insert(1, self._copy_arrives)
        self.steps.append(self._commit if rng.random() < 0.7 else self._abort)
        if rng.random() < 0.3:
            self.steps.append(self._write_late)

    def plan_ending(self, *, commit: bool, has_position: bool) -> None:
        """The steps of a transaction that writes to all places and is then ended."""
        self.attempt = self.oracle.begin(self.name)
        self.steps = [_Writing(self, self.places).step]
        if has_position:
            self.steps.append(self._commit_position)
        self.steps.append(self._commit if commit else self._abort)

    def is_replaced(self) -> Producer:
        """This process ends and another one of the same id begins; returns the zombie that it leaves."""
        zombie = Producer(
            name=self.name,
            client_version=self.client_version,
            places=self.places,
            position=self.position,
            oracle=self.oracle,
            rng=self.rng,
            timeout_ms=self.timeout_ms,
            identity=self.identity,
            attempt=self.attempt,
            sequences=dict(self.sequences),
        )
        self.identity, self.attempt, self.steps = None, None, []
        return zombie

    async def haunt(self, access: Access) -> None:
        """A zombie tries to commit what was aborted when its successor began."""
        assert self.attempt is not None
        if self.attempt.fate is not Fate.ABORTED:
            return
        for step in (_Writing(self, [self.rng.choice(self.places)]).step, self._commit):
            try:
                await step(access)
            except (BrokerError, ProtocolError):
                continue
            raise Wrong(f"a zombie of {self.name} was served: {self.identity}, {self.attempt}")

    # ---- steps

    async def _commit_position(self, access: Access) -> None:
        attempt, identity = self._present()
        transaction = access.transaction(self.name, Operation.WRITE)
        group = access.group(GROUP, Operation.READ)
        if not self.bumps:
            transaction.check_connection()
            await transaction.add_offsets(identity, group)
            transaction.check_connection(is_group=True)
        commit = CommitRequest(
            group_id=GROUP,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            offsets={self.position: OffsetToCommit(attempt.serial)},
        )
        codes = await transaction.commit_offsets(identity, group, commit, client_version=self.client_version)
        for code in codes.values():
            if code is not ErrorCode.NONE:
                raise BrokerError("position refused", code=code)
        attempt.has_position = True

    async def _linger(self, _: Access) -> None:
        await asyncio.sleep(self.timeout_ms / 1000 * self.rng.choice([0.5, 1.5]))

    async def _commit(self, access: Access) -> None:
        await self._end(access, commit=True)

    async def _abort(self, access: Access) -> None:
        await self._end(access, commit=False)

    async def _end(self, access: Access, *, commit: bool) -> None:
        attempt, identity = self._present()
        if not self.bumps and self._connect is not None and self.rng.random() < 0.2:
            self._stuck = (access, identity)
            access = self._access = self._connect()
        transaction = access.transaction(self.name, Operation.WRITE)
        if not self.bumps:
            transaction.check_connection()
        if commit and attempt.fate is Fate.OPEN:
            attempt.fate = Fate.SENT
        try:
            following = await transaction.end(identity, commit=commit, client_version=self.client_version)
        except TransactionRefused as refused:
            if refused.situation is Situation.TIMED_OUT:
                self._end_as(attempt, Fate.ABORTED)
            raise
        self._end_as(attempt, Fate.COMMITTED if commit else Fate.ABORTED)
        place = self.rng.choice(self.places)
        self._late = (identity, place, self.sequences.get(place, 0))
        if following != identity:
            self.identity = following
            self.sequences.clear()

    async def _copy_arrives(self, _: Access) -> None:
        """A copy of an earlier EndTxn comes out of an older connection, as the listener takes it."""
        if self._stuck is None:
            return
        (access, identity), self._stuck = self._stuck, None
        transaction = access.transaction(self.name, Operation.WRITE)
        try:
            transaction.check_connection()
            await transaction.end(identity, commit=True, client_version=self.client_version)
        except (BrokerError, ProtocolError):
            return

    def _end_as(self, attempt: Attempt, fate: Fate) -> None:
        if attempt.fate not in (Fate.OPEN, Fate.SENT, fate):
            raise Wrong(f"transaction {attempt.serial} of {self.name} is {attempt.fate}, and now {fate}")
        attempt.fate = fate

    async def _write_late(self, access: Access) -> None:
        """A batch of a transaction that has ended: it must not open another one."""
        if self._late is None:
            return
        (identity, tp, sequence), self._late = self._late, None
        attempt, _ = self._present()
        data = _batch(identity, sequence, tp, b"%d:late" % attempt.serial)
        try:
            self._append(access, tp, data)
        except BrokerError:
            return
        raise Wrong(f"{tp} took a batch of {identity} after the end of its transaction")

    # ---- inside

    def _append(self, access: Access, tp: TopicPartition, data: bytes) -> Awaitable[None]:
        partition = access.writable(tp)
        transaction = access.transaction(self.name, Operation.WRITE)
        appended = transaction.append(
            partition, read_batch(bytearray(data)), client_version=self.client_version
        )
        return partition.wait_acknowledged(appended.end_offset)

    def _present(self) -> tuple[Attempt, Identity]:
        assert self.attempt is not None and self.identity is not None
        return self.attempt, self.identity

    async def _retrying(self, step: Step, connect: Connect) -> None:
        """What may be served in a moment is asked for again; everything else is the step's failure.

        A connection that is closed because a newer one was used, perhaps by a zombie, is replaced.
        """
        if self._access is None:
            self._access = connect()
        for number in range(_RETRIES_MAX):
            try:
                await step(self._access)
            except ProtocolError:
                self._access = connect()
            except TransactionRefused as refused:
                if refused.situation not in _RETRIED or number == _RETRIES_MAX - 1:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    def _give_up(self, _: BrokerError) -> None:
        """Begin again as a new process, which aborts what this one left open."""
        self.identity, self.attempt, self.steps = None, None, []


class _Writing:
    """A step that writes to some partitions at once. It is repeated with the same batches."""

    __slots__ = ("_places", "_producer", "_sent")

    def __init__(self, producer: Producer, places: list[TopicPartition]) -> None:
        self._producer = producer
        self._places = places
        self._sent: list[_Sent] | None = None

    async def step(self, access: Access) -> None:
        producer = self._producer
        attempt, identity = producer._present()
        transaction = access.transaction(producer.name, Operation.WRITE)
        if self._sent is None:
            self._sent = [self._number(tp, identity) for tp in self._places]
        if not producer.bumps:
            transaction.check_connection()
            await transaction.add(identity, self._places)
        written = [producer._append(access, sent.tp, sent.data) for sent in self._sent]
        for waiting in written:
            await waiting
        for sent in self._sent:
            attempt.values.setdefault(sent.tp, []).append(sent.value)

    def _number(self, tp: TopicPartition, identity: Identity) -> _Sent:
        producer = self._producer
        attempt, _ = producer._present()
        sequence = producer.sequences.get(tp, 0)
        producer.sequences[tp] = sequence + 1
        value = b"%d:%d:%d" % (attempt.serial, sequence, producer.rng.getrandbits(32))
        return _Sent(tp, value, _batch(identity, sequence, tp, value))


def _batch(identity: Identity, sequence: int, tp: TopicPartition, value: bytes) -> bytes:
    key = b"%s/%d/%s" % (tp.topic.encode(), tp.partition, value)  # compaction is to keep all of them
    return bytes(
        build_batch(
            [(0, key, value, ())],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            transactional=True,
        )
    )
