"""The transaction coordinator of a node: performs what the machine decides, and waits until it is durable.

All partitions of a data directory share one journal, and its order is the order of sequencing. So everything
that one step of a transaction needs is sequenced in one turn of the loop, in the right order, and nothing is
waited for in between:

    first write of a transaction    Ongoing(partitions) -> batch                    answered when durable
    EndTxn                          Prepare -> marker, marker, ... -> Complete      answered when durable

- A state is taken over when its record is sequenced, and never rolled back. A log that refuses the first
  record of a step raises before any state has changed.
- A log that refuses a marker, or Complete, leaves the transaction in Prepare. It is decided then: what is
  missing is tried again until it is written, after pauses that double from `retry_ms` to `retry_ms_max`. The
  first refusal is logged. A marker is written only where its producer has a
  transaction open, so that marking twice is harmless.
- Timeouts run on the steady clock, and start again in full when the process starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from tailrace.broker.internal import Alarm
from tailrace.broker.partition import Appended, Partition
from tailrace.broker.transactions.api import TransactionDescription
from tailrace.broker.transactions.codec import write_value
from tailrace.broker.transactions.directory import Directory
from tailrace.broker.transactions.hanging import HangingTransaction, find_hanging
from tailrace.broker.transactions.home import Entry, HomeStatus
from tailrace.broker.transactions.limits import TransactionConfig, check_timeout, check_transactional_id
from tailrace.broker.transactions.machine import (
    Plan,
    check_identity,
    complete,
    is_expired,
    plan_add,
    plan_end,
    plan_init,
    plan_prepare,
    plan_timeout,
)
from tailrace.broker.transactions.ports import (
    Participants,
    ProducerIdSource,
    TransactionalState,
    TransactionLog,
)
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.state import (
    EPOCH_MAX,
    NO_TIMEOUT_MS,
    Ended,
    Identity,
    StoredTransaction,
    TransactionState,
)
from tailrace.broker.transactions.verification import Verifier
from tailrace.model import BrokerError, ErrorCode, Offset, ProtocolError, StorageError, TopicPartition
from tailrace.runtime import Clock, Supervisor

_logger = logging.getLogger(__name__)

_NOT_LED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class TransactionCoordinator:
    """The transactional ids that this node coordinates. Construct and use it inside one event loop."""

    def __init__(
        self,
        log: TransactionLog,
        *,
        participants: Participants,
        states: Mapping[str, TransactionalState],
        producer_ids: ProducerIdSource,
        clock: Clock,
        config: TransactionConfig | None = None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.config = config or TransactionConfig()
        self._log = log
        self._participants = participants
        self._states = states  # by the topic that holds it
        self._producer_ids = producer_ids
        self._clock = clock
        self._tasks = Supervisor(on_failure)
        self._directory = Directory(
            log,
            states=states.values(),
            config=self.config,
            tasks=self._tasks,
            attend=self._loaded,
        )
        self.verifier = Verifier(self._directory, add=self._add_verified)
        self._alarm: Alarm[Entry | None] = Alarm(clock, self.tick)  # None: look for what has expired
        self._filling: asyncio.Task[None] | None = None
        self.open_count = 0  # transactions that are open, or not complete
        self.hanging: list[HangingTransaction] = []  # as of the last look
        self._closed = False

    def __repr__(self) -> str:
        return f"<TransactionCoordinator of {len(self._directory)} transactional ids>"

    # ---- life

    def start(self) -> None:
        """Begin to read the partitions that this node leads; their ids are answered once that is done."""
        self._directory.start()
        self._plan_expiry()

    def read_again(self) -> None:
        """The topic is served again: read the partitions that could not be read."""
        self._directory.read_again()

    async def wait_loaded(self) -> None:
        """Return when no partition is being read."""
        await self._directory.wait_loaded()

    async def close(self) -> None:
        """Let go; what is sequenced becomes durable by itself."""
        self._closed = True
        self._alarm.cancel()
        self._directory.close()
        await self._tasks.stop()

    def tick(self) -> None:
        """Let happen what is due by now. The coordinator's own timer calls this."""
        now_ms = self._clock.steady_ms()
        for planned_ms, entry in self._alarm.take_due(now_ms):
            if entry is None:
                self._expire(now_ms)
                self.look_for_hanging()
                self._plan_expiry()
            elif entry.planned_ms == planned_ms:
                entry.planned_ms = None
                self._attend(entry, now_ms)

    # ---- requests of producers

    async def find_partition(self, transactional_id: str) -> int:
        """The partition of the transaction topic whose leader coordinates this id."""
        check_transactional_id(transactional_id)
        await self._directory.ensure_topic()
        return self._directory.partition_of(transactional_id)

    async def init(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: Identity | None = None,
        two_phase: bool = False,
    ) -> Identity:
        """A producer begins: it gets an identity, and what its predecessor left open is aborted.

        With `two_phase` its transactions have no timeout; what is open of a predecessor with two-phase commit
        is aborted only if `expected` names it, and NOT_COMPLETE otherwise.
        """
        check_transactional_id(transactional_id)
        if two_phase:
            timeout_ms = NO_TIMEOUT_MS
        else:
            check_timeout(timeout_ms, self.config)
        await self._directory.ensure_topic()
        await self._producer_ids.fill()
        entry = self._directory.find(transactional_id)
        plan = plan_init(
            None if entry is None else entry.stored,
            expected,
            timeout_ms=timeout_ms,
            now_ms=self._clock.steady_ms(),
            new_id=self._new_id,
        )
        if entry is None:
            entry = self._create(transactional_id, plan)
        elif not self._perform(entry, plan):
            raise TransactionRefused(
                f"the transaction that the last producer of {transactional_id!r} left open is being aborted",
                situation=Situation.NOT_COMPLETE,
            )
        await self.wait_durable(entry)
        return plan.identity

    async def prepare(self, transactional_id: str, identity: Identity) -> None:
        """The open transaction of a producer has two-phase commit from now on."""
        entry = self._directory.find(transactional_id)
        plan = plan_prepare(None if entry is None else entry.stored, identity, now_ms=self._clock.steady_ms())
        assert entry is not None
        self._perform(entry, plan)
        await self.wait_durable(entry)

    def idle_identity(self, transactional_id: str) -> Identity | None:
        """The identity with which the next transaction may begin at once; None while one is not complete.

        None also for an id that is not known here, or whose epochs are exhausted: ask `init` then.
        """
        try:
            entry = self._directory.find(transactional_id)
        except TransactionRefused:
            return None
        if entry is None or entry.stored.partitions or entry.stored.epoch >= EPOCH_MAX:
            return None
        return entry.stored.identity

    async def add(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = 0,
    ) -> None:
        """Partitions take part in the transaction; it begins if none is open."""
        entry = self.add_nowait(transactional_id, identity, partitions, client_version=client_version)
        await self.wait_durable(entry)

    def add_nowait(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = 0,
    ) -> Entry:
        """The same, sequenced and not yet durable: what is sequenced after it in this turn may rely on it."""
        entry = self._directory.find(transactional_id)
        now_ms = self._clock.steady_ms()
        following = plan_add(
            None if entry is None else entry.stored,
            identity,
            partitions,
            client_version=client_version,
            now_ms=now_ms,
        )
        assert entry is not None
        if following is not None:
            begins = entry.stored.state is not TransactionState.ONGOING
            self._store(entry, following)
            if begins:
                entry.deadline_ms = now_ms + following.timeout_ms
                self._plan(entry)
        return entry

    def _add_verified(
        self, transactional_id: str, identity: Identity, partition: TopicPartition, client_version: int
    ) -> None:
        self.add_nowait(transactional_id, identity, [partition], client_version=client_version)

    async def end(
        self, transactional_id: str, identity: Identity, *, commit: bool, client_version: int = 0
    ) -> Identity:
        """Commit or abort; returns the identity with which the producer goes on."""
        if identity.epoch >= EPOCH_MAX:
            await self._producer_ids.fill()
        entry, following = self.end_nowait(
            transactional_id, identity, commit=commit, client_version=client_version
        )
        await self.wait_durable(entry)
        return following

    def end_nowait(
        self, transactional_id: str, identity: Identity, *, commit: bool, client_version: int = 0
    ) -> tuple[Entry, Identity]:
        """The same, sequenced and not yet durable (`wait_durable`)."""
        entry = self._directory.find(transactional_id)
        plan = plan_end(
            None if entry is None else entry.stored,
            identity,
            commit=commit,
            client_version=client_version,
            now_ms=self._clock.steady_ms(),
            new_id=self._new_id,
        )
        assert entry is not None
        self._perform(entry, plan)  # from Prepare on it is decided, whether or not all of it is written now
        return entry, plan.identity

    def abandon(self, transactional_id: str) -> None:
        """Abort what is open of an id whose producer is gone, as if its time were up; never refused.

        The markers are sequenced in this turn. Where the log refuses them, the coordinator tries again.
        """
        try:
            entry = self._directory.find(transactional_id)
        except TransactionRefused:
            return  # whoever coordinates it now aborts it after its timeout
        if entry is not None and entry.stored.state is TransactionState.ONGOING:
            entry.deadline_ms = now_ms = self._clock.steady_ms()
            self._attend(entry, now_ms)

    def has_committed(self, transactional_id: str, identity: Identity) -> bool:
        """Whether the newest transaction that ended is that of this identity, and committed.

        Raises TransactionRefused for any other producer than the one whose turn it is.
        """
        entry = self._directory.find(transactional_id)
        known = None if entry is None else entry.stored
        if known is not None and known.ended == Ended(identity, commit=True):
            return True
        check_identity(known, identity)
        return False

    def check_connection(self, transactional_id: str, connection: int, *, is_group: bool) -> None:
        """The connection fence, for clients whose EndTxn does not move the epoch.

        Such a client repeats a request on a new connection. A request that is late on an older one must not
        act on the next transaction, which has the same epoch. ProtocolError: close that connection, and
        answer nothing.

        A client has one connection for what it asks the coordinator of its transactions, and may have another
        one for what it asks that of its group (`is_group`). All APIs of a coordinator count together: the
        first request of a transaction is to fence every EndTxn of the one before it.
        """
        try:
            entry = self._directory.find(transactional_id)
        except TransactionRefused:
            return  # it will be refused, whatever its connection
        if entry is None:
            return
        if connection < entry.connections.get(is_group, 0):
            raise ProtocolError(
                f"a request of transactional id {transactional_id!r} came late, on an older connection"
            )
        entry.connections[is_group] = connection

    # ---- administration

    def describe(self, transactional_id: str) -> TransactionDescription:
        """A transactional id; TRANSACTIONAL_ID_NOT_FOUND."""
        entry = self._directory.find(transactional_id)
        if entry is None:
            raise BrokerError(
                f"transactional id {transactional_id!r} is not known",
                code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            )
        return self._describe(entry)

    def list(self) -> list[TransactionDescription]:
        """Every transactional id of this node; LOADING while some are being read."""
        for home in self._directory.homes:
            if home.status is HomeStatus.LOADING:
                home.check_ready()
        return [self._describe(entry) for entry in self._directory.entries()]

    async def abort(self, transactional_id: str) -> None:
        """Abort what is open, as an administrator: like a timeout. WRONG_STATE if nothing is open."""
        await self._producer_ids.fill()
        entry = self._directory.find(transactional_id)
        plan = None
        if entry is not None:
            plan = plan_timeout(entry.stored, now_ms=self._clock.steady_ms(), new_id=self._new_id)
        if entry is None or plan is None:
            raise TransactionRefused(
                f"transactional id {transactional_id!r} has no open transaction",
                situation=Situation.WRONG_STATE,
            )
        self._perform(entry, plan)
        await self.wait_durable(entry)

    async def write_marker(
        self, partition: Partition, identity: Identity, *, commit: bool, coordinator_epoch: int
    ) -> None:
        """End a transaction in one partition, whatever is known of it here."""
        marked = self._write_marker(partition, identity, commit=commit, coordinator_epoch=coordinator_epoch)
        if marked is not None:
            await partition.wait_acknowledged(marked.end_offset)

    def look_for_hanging(self) -> None:
        """Find transactions that are open in a partition and that no coordinator knows; warn of each."""
        if any(home.status is not HomeStatus.READY for home in self._directory.homes):
            return  # what is known is not all that there is
        known = {
            (tp, entry.stored.producer_id)
            for entry in self._directory.entries()
            for tp in entry.stored.partitions
        }
        self.hanging = find_hanging(self._participants.partitions(), known)
        for each in self.hanging:
            _logger.warning(
                "transaction hangs: partition=%s producer=%d/%d first_offset=%d. Readers of committed "
                "records wait for it. To end it: tailrace txn abort --topic %s --partition %d --offset %d",
                each.partition,
                each.producer_id,
                each.epoch,
                each.first_offset,
                *each.partition,
                each.first_offset,
            )

    # ---- performing

    def _create(self, transactional_id: str, plan: Plan) -> Entry:
        if len(self._directory) >= self.config.ids_max:
            raise BrokerError(
                f"this node has its {self.config.ids_max} transactional ids", code=ErrorCode.POLICY_VIOLATION
            )
        (first,) = plan.steps
        home = self._directory.home_of(transactional_id)
        entry = Entry(transactional_id, home, first)
        self._store(entry, first)
        home.entries[transactional_id] = entry
        return entry

    def _perform(self, entry: Entry, plan: Plan) -> bool:
        """Sequence what a plan says; whether all of it is. Raises if its first record is refused."""
        for number, step in enumerate(plan.steps):
            try:
                self._store(entry, step)
            except TransactionRefused:
                if number == 0:
                    raise
                entry.failures += 1
                break
            if step.state.is_prepared:
                assert step.ended is not None
                self.verifier.transaction_ended(step.ended.identity)
                if not self._mark(entry):
                    break
        self._plan(entry)
        return not plan.steps or entry.stored is plan.steps[-1]

    def _store(self, entry: Entry, following: StoredTransaction) -> None:
        """Sequence a state and take it over; TransactionRefused, and then nothing has changed."""
        entry.end = self._sequence(entry, entry.key, write_value(following))
        self.open_count += bool(following.partitions) - bool(entry.stored.partitions)
        entry.stored, entry.failures = following, 0

    def _sequence(self, entry: Entry, key: bytes, value: bytes | None) -> Offset:
        try:
            return self._log.sequence(entry.home.partition, [(self._clock.steady_ms(), key, value, ())])
        except BrokerError as error:
            _logger.warning("not appended: transactional_id=%s error=%s", entry.transactional_id, error)
            lost = error.code in _NOT_LED
            raise TransactionRefused(
                f"the state of the transaction cannot be stored: {error}",
                situation=Situation.NOT_COORDINATOR if lost else Situation.LOG_REFUSES,
            ) from error
        except StorageError as error:
            raise TransactionRefused(str(error), situation=Situation.LOG_REFUSES) from error

    def _mark(self, entry: Entry) -> bool:
        """Sequence the markers of a Prepare; whether every partition that is left has its marker."""
        stored, is_marked = entry.stored, True
        commit = stored.state is TransactionState.PREPARE_COMMIT
        identity = Identity(stored.producer_id, stored.epoch)
        coordinator_epoch = self._log.leader_epoch(entry.home.partition)
        for tp in sorted(stored.partitions):
            partition = self._participants.find_partition(tp)
            if partition is None:
                continue  # its topic is deleted, and its records with it
            try:
                self._write_marker(partition, identity, commit=commit, coordinator_epoch=coordinator_epoch)
            except (BrokerError, StorageError) as error:
                code = error.code if isinstance(error, BrokerError) else None
                if code is ErrorCode.INVALID_PRODUCER_EPOCH:
                    continue  # a later epoch wrote there: nothing of this transaction is open
                if (
                    code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
                    and partition.producers.open_transaction(identity.producer_id) is None
                ):
                    continue  # it is marked already
                self._tell_unmarked(entry, tp, error)
                is_marked = False
        entry.failures += not is_marked
        return is_marked

    def _tell_unmarked(self, entry: Entry, tp: TopicPartition, error: BrokerError | StorageError) -> None:
        """Log a marker that is refused: the first time, and not at every attempt after that."""
        if entry.failures:
            _logger.debug("marker is not written yet: partition=%s error=%s", tp, error)
        elif isinstance(error, BrokerError) and error.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            _logger.error(
                "marker is refused: transactional_id=%s partition=%s error=%s. Readers of committed records "
                "wait for it. Restart the broker: every start raises the epoch of its coordinator by 1",
                entry.transactional_id,
                tp,
                error,
            )
        else:
            _logger.warning("marker is not written yet: partition=%s error=%s", tp, error)

    def _write_marker(
        self, partition: Partition, identity: Identity, *, commit: bool, coordinator_epoch: int
    ) -> Appended | None:
        """Sequence a marker where the producer has a transaction open; None where it has none."""
        marked = partition.append_marker(*identity, commit=commit, coordinator_epoch=coordinator_epoch)
        state = self._states.get(partition.topic)
        if state is not None:
            state.transaction_ended(partition.index, identity.producer_id, commit=commit)
        return marked

    def _loaded(self, entry: Entry) -> None:
        """A transactional id was read from the topic: go on with it."""
        now_ms = self._clock.steady_ms()
        self.open_count += bool(entry.stored.partitions)
        entry.deadline_ms = now_ms + entry.stored.timeout_ms
        self._attend(entry, now_ms)

    def _attend(self, entry: Entry, now_ms: int) -> None:
        """Do what is due for a transactional id."""
        if entry.home.status is HomeStatus.FAILED:
            return
        try:
            if entry.stored.state.is_prepared:
                if self._mark(entry):
                    self._store(entry, complete(entry.stored, now_ms=now_ms))
            elif entry.deadline_ms <= now_ms and not entry.stored.is_two_phase:
                plan = plan_timeout(entry.stored, now_ms=now_ms, new_id=self._new_id)
                if plan is not None:
                    _logger.info("transaction not ended in time: transactional_id=%s", entry.transactional_id)
                    self._perform(entry, plan)
        except TransactionRefused:
            entry.failures += entry.stored.state.is_prepared
            entry.deadline_ms = max(entry.deadline_ms, now_ms + self.config.retry_ms)
        self._plan(entry)

    def _plan(self, entry: Entry) -> None:
        """See to it that `_attend` is called in time; a plan that is too early is left as it is."""
        state = entry.stored.state
        if state.is_prepared:
            wake_ms = self._clock.steady_ms() + self.config.pause_ms(entry.failures)
        elif state is TransactionState.ONGOING and not entry.stored.is_two_phase:
            wake_ms = entry.deadline_ms
        else:
            return
        if not self._closed and (entry.planned_ms is None or wake_ms < entry.planned_ms):
            entry.planned_ms = wake_ms
            self._alarm.plan(wake_ms, entry)

    def _plan_expiry(self) -> None:
        self._alarm.plan(self._clock.steady_ms() + self.config.expiration_check_ms, None)

    def _expire(self, now_ms: int) -> None:
        """Forget transactional ids that were not used for long."""
        for entry in self._directory.entries():
            if not is_expired(entry.stored, now_ms=now_ms, idle_ms=self.config.expiration_ms):
                continue
            try:
                self._sequence(entry, entry.key, None)
            except TransactionRefused:
                return  # the next look tries again
            del entry.home.entries[entry.transactional_id]

    # ---- waiting

    async def wait_durable(self, entry: Entry) -> None:
        """Return when everything that is sequenced of this transactional id is durable."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._log.acknowledged(entry.home.partition, entry.end, durable)
            async with asyncio.timeout(self.config.commit_timeout_ms / 1000):
                await durable
        except (BrokerError, StorageError, TimeoutError) as error:
            reason = str(error) or f"the disk took longer than {self.config.commit_timeout_ms} ms"
            raise TransactionRefused(
                f"the state of the transaction is not durable yet: {reason}",
                situation=Situation.LOG_REFUSES,
            ) from error

    def _new_id(self) -> int:
        """A producer id, at once. Where none is reserved, the request is refused and one is reserved."""
        found = self._producer_ids.take_nowait()
        if found is None:
            if self._filling is None or self._filling.done():
                self._filling = self._tasks.start("reserve producer ids", self._producer_ids.fill())
            raise TransactionRefused(
                "no producer id is reserved at this moment", situation=Situation.LOG_REFUSES
            )
        return found

    def _describe(self, entry: Entry) -> TransactionDescription:
        stored = entry.stored
        is_open = bool(stored.partitions)
        return TransactionDescription(
            transactional_id=entry.transactional_id,
            state=stored.state,
            producer_id=stored.producer_id,
            epoch=stored.epoch,
            timeout_ms=stored.timeout_ms,
            started_ms=stored.started_ms if is_open else -1,
            open_ms=max(self._clock.steady_ms() - stored.started_ms, 0) if is_open else -1,
            partitions=tuple(sorted(stored.partitions)),
        )
