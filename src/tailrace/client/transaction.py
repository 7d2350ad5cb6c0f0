"""The transactions of one producer, one after the other, and what errors mean to them.

    NEW --init--> READY --begin--> OPEN --commit--> COMMITTING --> READY
                                   OPEN --abort---> ABORTING ----> READY
                                   OPEN, COMMITTING --error--> FAILED --abort--> ABORTING
                                   any --error--> FATAL

An error has one of three fates:

- It may go away: the request is sent again until `block_s` is over.
- The transaction cannot commit any more (`TransactionFailed`): a record or a request of it failed, or it has
  timed out at the coordinator. `abort` ends it, and the next one may begin.
- The producer cannot have transactions any more (`ProducerFailed`): another producer has taken over its
  transactional id, or it is not allowed to have one.

A partition is added to the transaction before the first batch for it leaves, a group before its offsets do.
After a batch was given up, the broker and the producer may disagree about its sequence, and it may still
arrive. `abort` then asks for a new epoch, so that brokers refuse what is late (KIP-360). A coordinator that
has aborted the transaction by itself is asked for the current identity in the same way (KIP-588).

Where the cluster has finalized the feature transaction.version at level 2 (KIP-890 part 2: Tailrace, Apache
Kafka from 4.0 on), the answer to every EndTxn names the epoch of the next transaction, and partitions and
groups join by their first batch or offsets: no request adds them. `init` learns which of the two it is.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tailrace.client.accumulator import Identity
from tailrace.client.connection import Connection
from tailrace.client.error import (
    ClientClosed,
    ClientError,
    ProducerFailed,
    TimedOut,
    TransactionFailed,
    UnsupportedApi,
    broker_error,
    check,
)
from tailrace.client.kafka import KafkaClient
from tailrace.client.keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from tailrace.client.offsets import raise_worst
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.wire.kafka import Message
from tailrace.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tailrace.wire.kafka.messages.end_txn import EndTxnRequest
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from tailrace.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")

# What ends the producer, whatever it was doing; so does INVALID_PRODUCER_EPOCH where a coordinator says it.
_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_FEATURE, _EPOCH_PER_TRANSACTION = "transaction.version", 2
_NEWEST_WITH_FEATURE = {PRODUCE: 12, END_TXN: 5, TXN_OFFSET_COMMIT: 5}
"""The versions in which every transaction has an epoch of its own."""
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# What a coordinator says of the transaction or of the request, and not of the producer.
_ABORTABLE = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class State(enum.Enum):
    """Where a producer is between its transactions."""

    NEW = "new"
    READY = "ready"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FAILED = "failed"
    FATAL = "fatal"


class GroupMetadata(NamedTuple):
    """The group whose offsets a transaction commits, and the member that has read them (KIP-447).

    With a generation, the coordinator refuses the offsets of a member that has lost its partitions.
    """

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class Transactions:
    """The transactions of one producer. `identity` numbers its batches; it is set from `init` on."""

    def __init__(
        self, client: KafkaClient, transactional_id: str, *, timeout_s: float, block_s: float
    ) -> None:
        self.transactional_id = transactional_id
        self.identity: Identity | None = None
        self.state = State.NEW
        self._client = client
        self._timeout_ms = round(timeout_s * 1000)
        self._block_s = block_s
        self._partitions: set[TopicPartition] = set()  # in the transaction, as the coordinator knows it
        self._groups: set[str] = set()  # likewise
        self._adding = asyncio.Lock()
        self._error: BaseException | None = None  # why it is FAILED or FATAL
        self._is_decided = False  # EndTxn to commit was sent: it cannot be aborted any more
        self._needs_epoch = False  # before the next transaction
        self._is_ended = False  # the coordinator does not know it any more: there is nothing to end
        self._has_own_epoch = False  # every transaction: its end answers with the next one (KIP-890 part 2)

    def __repr__(self) -> str:
        return f"<Transactions of {self.transactional_id}, {self.state.value}, {self.identity}>"

    def newest_of(self, key: int) -> int | None:
        """The newest version to speak, of an API where the cluster decides (`Connection.version_of`)."""
        return _NEWEST_WITH_FEATURE.get(key) if self._has_own_epoch else None

    # ---- from one state to the next

    async def init(self) -> None:
        """Become the only producer of this transactional id; what an earlier one left open is aborted."""
        self._check_usable()
        if self.state is State.NEW:
            await self._renew()
            self.state = State.READY

    def begin(self) -> None:
        self._check_usable()
        if self.state is State.NEW:
            raise ClientError("call init_transactions() once before the first begin_transaction()")
        if self.state is not State.READY:
            raise ClientError(f"a transaction is {self.state.value}: commit or abort it before the next")
        self.state = State.OPEN

    def check_open(self) -> None:
        """Raise unless records and offsets can join the transaction."""
        self._check_usable()
        if self.state is State.FAILED:
            raise self._failed()
        if self.state is not State.OPEN:
            raise ClientError("no transaction is open: call begin_transaction() first")

    def fail(self, error: BaseException, *, needs_epoch: bool = False) -> None:
        """A record or a request of the transaction failed: it can only be aborted, or not even that."""
        self._needs_epoch |= needs_epoch
        code = error.code if isinstance(error, BrokerError) else None
        if code in _FATAL or isinstance(error, UnsupportedApi | ProducerFailed):
            self._die(error)
        elif self.state in (State.OPEN, State.COMMITTING):
            self.state, self._error = State.FAILED, error

    def begin_commit(self) -> None:
        """From here on nothing joins the transaction."""
        if self.state is not State.COMMITTING:
            self.check_open()
            self.state = State.COMMITTING

    async def commit(self) -> None:
        """End it, after all of its records have arrived."""
        self._check_usable()
        if self.state is State.FAILED:
            raise self._failed()
        if self._partitions or self._groups:
            self._is_decided = True
            try:
                await self._end(commit=True)
            except TimedOut as error:
                raise TimedOut(
                    f"{error}. Whether the transaction has committed is not known:"
                    " call commit_transaction() again to find out"
                ) from error
        self._finish()

    def begin_abort(self) -> None:
        self._check_usable()
        if self.state in (State.NEW, State.READY):
            raise ClientError("no transaction is open: call begin_transaction() first")
        if self._is_decided and self.state is State.COMMITTING:
            raise ClientError(
                "the transaction may have committed, so it cannot be aborted: call commit_transaction() again"
            )
        self.state = State.ABORTING

    async def abort(self) -> None:
        """End it, after none of its batches is on its way any more."""
        if (self._partitions or self._groups) and not self._is_ended:
            try:
                await self._end(commit=False)
            except TransactionFailed:
                self._needs_epoch = True  # the coordinator has aborted it already
        if self._needs_epoch or self._is_ended:
            await self._renew()
        self._finish()

    # ---- what joins the transaction

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Have partitions in the transaction; TransactionFailed or ProducerFailed if that cannot be."""
        async with self._adding:
            self._check_alive()
            missing = [each for each in partitions if each not in self._partitions]
            if not missing:
                return
            if self._has_own_epoch:
                self._partitions.update(missing)
                return
            request = add_partitions_request(self.transactional_id, self._known(), missing)

            async def attempt() -> None:
                check_partitions_added(await self._ask(ADD_PARTITIONS_TO_TXN, request))

            await self._joining("adding partitions to the transaction", attempt)
            self._partitions.update(missing)

    async def add_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """Commit the offsets of a group with the transaction."""
        self.check_open()
        if not offsets:
            return
        identity = self._known()
        if self._has_own_epoch:
            self._groups.add(group.group)  # whether or not the request is answered
        if group.group not in self._groups:
            add = AddOffsetsToTxnRequest(self.transactional_id, *identity, group.group)

            async def attempt_add() -> None:
                reply = await self._ask(ADD_OFFSETS_TO_TXN, add)
                check(reply.error_code, f"adding group {group.group} to the transaction")

            await self._joining(f"adding group {group.group} to the transaction", attempt_add)
            self._groups.add(group.group)
        commit = _offset_commit(self.transactional_id, identity, group, offsets)

        async def attempt_commit() -> None:
            newest = self.newest_of(TXN_OFFSET_COMMIT)
            reply = await self._client.request(
                TXN_OFFSET_COMMIT, commit, coordinator=group.group, newest=newest
            )
            _check_committed(reply, group.group)

        await self._joining(
            f"committing offsets of group {group.group}", attempt_commit, is_of_producer=False
        )

    # ---- requests

    async def _renew(self) -> None:
        """Get the next epoch, or the first; the coordinator aborts what is open."""
        before = self.identity or Identity(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=before.producer_id,
            producer_epoch=before.epoch,
        )

        async def attempt() -> Identity:
            node = await self._client.find_coordinator(self.transactional_id, of_transactions=True)
            connection = await self._client.connection_to(node)
            # A broker may have producer ids and no transactions: say so before the first one begins.
            connection.version_of(ADD_PARTITIONS_TO_TXN)
            self._has_own_epoch = _has_own_epoch(connection)
            reply = await self._ask(INIT_PRODUCER_ID, request)
            check(reply.error_code, f"transactional id {self.transactional_id}")
            return Identity(reply.producer_id, reply.producer_epoch)

        what = f"initializing transactional id {self.transactional_id}"
        try:
            self.identity = await self._client.retrying(what, attempt, timeout_s=self._block_s)
        except (BrokerError, UnsupportedApi) as error:
            raise self._die(error) from error

    async def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(self.transactional_id, *self._known(), committed=commit)
        what = "committing the transaction" if commit else "aborting the transaction"

        async def attempt() -> None:
            reply = await self._ask(END_TXN, request, newest=self.newest_of(END_TXN))
            check(reply.error_code, what)
            if self._has_own_epoch:
                self.identity = Identity(reply.producer_id, reply.producer_epoch)
                self._needs_epoch = False  # this is the next one: what is late is refused

        try:
            await self._client.retrying(what, attempt, timeout_s=self._block_s)
        except (BrokerError, UnsupportedApi) as error:
            raise self._judge(error, is_of_producer=True) from error

    async def _joining(
        self, what: str, attempt: Callable[[], Awaitable[T]], *, is_of_producer: bool = True
    ) -> T:
        """The result of a request that belongs to the transaction. Its failure is that of the transaction.

        Errors that are not known end the producer where `is_of_producer`, and the transaction otherwise.
        """
        try:
            return await self._client.retrying(what, attempt, timeout_s=self._block_s)
        except ClientClosed:
            raise
        except (BrokerError, UnsupportedApi) as error:
            raise self._judge(error, is_of_producer=is_of_producer) from error
        except (ClientError, ProtocolError) as error:
            self.fail(error, needs_epoch=True)  # whether the coordinator has it is not known
            raise self._failed() from error

    async def _ask(self, key: int, request: Message, *, newest: int | None = None) -> Any:
        return await self._client.request(key, request, transactional_id=self.transactional_id, newest=newest)

    # ---- fates

    def _judge(self, error: BrokerError | UnsupportedApi, *, is_of_producer: bool) -> ClientError:
        """What a coordinator's answer means; returns what to raise."""
        code = error.code if isinstance(error, BrokerError) else ErrorCode.UNSUPPORTED_VERSION
        is_known = code in _ABORTABLE or not is_of_producer
        if code in _FATAL or code in _FENCED or not is_known:
            return self._die(error)
        if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            self._is_ended = True
        self.fail(error, needs_epoch=code == ErrorCode.UNKNOWN_PRODUCER_ID)
        return self._failed(error)

    def _die(self, error: BaseException) -> ProducerFailed:
        self.state, self._error = State.FATAL, error
        return self._fatal()

    def _fatal(self) -> ProducerFailed:
        error = self._error
        if isinstance(error, ProducerFailed):
            return error
        why = str(error)
        if isinstance(error, BrokerError) and error.code in _FENCED:
            why = f"another producer with transactional id {self.transactional_id} has taken over ({why})"
        return ProducerFailed(f"{why}. Close this producer; a new one may go on")

    def _failed(self, error: BaseException | None = None) -> TransactionFailed:
        return TransactionFailed(
            f"the transaction cannot commit: {error or self._error}."
            " Call abort_transaction(), then begin again"
        )

    def _check_alive(self) -> None:
        """Raise where the producer has failed, or where nothing more is to join the transaction."""
        self._check_usable()
        if self.state in (State.FAILED, State.ABORTING):
            raise self._failed()

    def _check_usable(self) -> None:
        if self.state is State.FATAL:
            raise self._fatal() from self._error

    def _known(self) -> Identity:
        assert self.identity is not None, "no transaction opens before `init` has answered"
        return self.identity

    def _finish(self) -> None:
        self.state, self._error = State.READY, None
        self._partitions.clear()
        self._groups.clear()
        self._is_decided = self._needs_epoch = self._is_ended = False


def _has_own_epoch(connection: Connection) -> bool:
    """Whether every transaction has an epoch of its own in this cluster."""
    if connection.features.get(_FEATURE, 0) < _EPOCH_PER_TRANSACTION:
        return False
    return all(
        connection.versions.get(key, (0, -1))[1] >= newest for key, newest in _NEWEST_WITH_FEATURE.items()
    )


def add_partitions_request(
    transactional_id: str, identity: tuple[int, int], partitions: Sequence[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Partitions that are to join the transaction of a producer id and epoch."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=list(topics.values()),
    )


def check_partitions_added(reply: AddPartitionsToTxnResponse) -> None:
    """BrokerError unless every partition has joined."""
    errors = [
        broker_error(each.partition_error_code, f"adding {topic.name}-{each.partition_index}")
        for topic in reply.results_by_topic_v3_and_below
        for each in topic.results_by_partition
        if each.partition_error_code
    ]
    # Partitions that were not tried say nothing; the one that stopped them does.
    raise_worst([error for error in errors if error.code != ErrorCode.OPERATION_NOT_ATTEMPTED] or errors)


def _offset_commit(
    transactional_id: str, identity: Identity, group: GroupMetadata, offsets: Mapping[TopicPartition, int]
) -> TxnOffsetCommitRequest:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=list(topics.values()),
    )


def _check_committed(reply: TxnOffsetCommitResponse, group: str) -> None:
    raise_worst(
        [
            broker_error(each.error_code, f"committing {topic.name}-{each.partition_index} for {group}")
            for topic in reply.topics
            for each in topic.partitions
            if each.error_code
        ]
    )
