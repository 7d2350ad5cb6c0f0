"""/api/v1/transactions: records into several topics at once, and a look at every transaction of the node.

Records of one request take effect together (`broker.transactions.atomic`). For the console and scripts:
which transactions are open, where they begin, and how to end one that its producer does not end. What
`tailrace txn` shows over the Kafka listener is the same.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from tailrace.broker.gate import Access
from tailrace.broker.transactions.api import TransactionDescription
from tailrace.http.error import Code
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.http.rest.produce import Place, ProduceQuery, gather, places_of, read_inputs, store_together
from tailrace.model import BrokerError, TopicPartition
from tailrace.model.operation import Operation as AclOperation
from tailrace.wire.json.record_json import RecordInput

State = Literal["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
_Records = Annotated[list[RecordInput], msgspec.Meta(min_length=1)]
_NoKey = ProduceQuery()


class TransactionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records by topic, stored together or not at all."""

    topics: Annotated[dict[str, _Records], msgspec.Meta(min_length=1)]


class Committed(msgspec.Struct, frozen=True):
    """Where the records are, by topic, in the order in which they were sent."""

    topics: dict[str, list[Place]]


class TransactionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which transactional ids are listed."""

    state: State | None = None
    open_longer_than: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None  # ms


class TransactionView(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id; the times are null where no transaction is open."""

    transactional_id: str
    state: State
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    open_ms: int | None
    partition_count: int


class TransactionPartition(msgspec.Struct, frozen=True):
    """A partition of an open transaction; no `first_offset`: no record was written, or `error` says why."""

    topic: str
    partition: int
    first_offset: int | None
    error: str | None


class TransactionDetail(TransactionView, frozen=True, kw_only=True):
    """A transactional id with the partitions of its open transaction."""

    partitions: list[TransactionPartition]


class HangingView(msgspec.Struct, frozen=True):
    """A transaction that is open in a partition and that no coordinator will end."""

    topic: str
    partition: int
    first_offset: int
    producer_id: int
    producer_epoch: int


class TransactionList(msgspec.Struct, frozen=True):
    """Transactional ids by name, and transactions that hang."""

    transactions: list[TransactionView]
    hanging: list[HangingView]


class AbortBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which transaction: the one that began at this time, or whichever is open."""

    started_ms: int | None = None


class HangingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a transaction that hangs begins."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    first_offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


# ---- handlers


async def commit_records(call: Call[NoQuery, TransactionBody]) -> Committed:
    parsed = {
        topic: read_inputs(rows, where=f"topics[{topic!r}]", topic=topic)
        for topic, rows in call.body.topics.items()
    }
    gatherings = [await gather(call, topic, records, _NoKey) for topic, records in parsed.items()]
    stored = await store_together(call, gatherings)
    return Committed(topics={topic: places_of(each) for topic, each in zip(parsed, stored, strict=True)})


async def list_transactions(call: Call[TransactionQuery, NoBody]) -> TransactionList:
    query = call.query
    found = call.access.transactions(AclOperation.DESCRIBE)
    return TransactionList(
        transactions=[
            TransactionView(**_fields(each))
            for each in sorted(found, key=lambda each: each.transactional_id)
            if query.state in (None, each.state.label)
            and (query.open_longer_than is None or each.open_ms > query.open_longer_than)
        ],
        hanging=[
            HangingView(*each.partition, each.first_offset, each.producer_id, each.epoch)
            for each in call.access.hanging_transactions(AclOperation.DESCRIBE)
        ],
    )


async def get_transaction(call: Call[NoQuery, NoBody]) -> TransactionDetail:
    name = call.params["transactional_id"]
    found = call.access.transaction(name, AclOperation.DESCRIBE).describe()
    partitions = [_partition(call.access, tp, found.producer_id) for tp in found.partitions]
    return TransactionDetail(**_fields(found), partitions=partitions)


async def abort_transaction(call: Call[NoQuery, AbortBody]) -> None:
    name = call.params["transactional_id"]
    call.access.transaction(name, AclOperation.DESCRIBE).describe()  # TRANSACTION_NOT_FOUND
    await call.service.in_time(call.access.abort_transaction(name, started_ms=call.body.started_ms))


async def abort_hanging(call: Call[NoQuery, HangingBody]) -> None:
    target = TopicPartition(call.body.topic, call.body.partition)
    await call.service.in_time(call.access.abort_hanging_transaction(target, call.body.first_offset))


# ---- inside


def _fields(found: TransactionDescription) -> dict[str, Any]:
    is_open = found.started_ms >= 0
    return {
        "transactional_id": found.transactional_id,
        "state": found.state.label,
        "producer_id": found.producer_id,
        "producer_epoch": found.epoch,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms if is_open else None,
        "open_ms": found.open_ms if is_open else None,
        "partition_count": len(found.partitions),
    }


def _partition(access: Access, target: TopicPartition, producer_id: int) -> TransactionPartition:
    """Where the transaction begins in a partition, or why that is not known: its topic may be deleted."""
    try:
        opened = access.partition(target, AclOperation.DESCRIBE).producers.open_transaction(producer_id)
    except BrokerError as error:
        return TransactionPartition(*target, None, str(error))
    return TransactionPartition(*target, None if opened is None else opened.first_offset, None)


_TRANSACTIONS = "/api/v1/transactions"
_TRANSACTION = f"{_TRANSACTIONS}/{{transactional_id:path}}"  # an id may have slashes in it

OPERATIONS = (
    Operation(
        method="GET",
        path=_TRANSACTIONS,
        name="listTransactions",
        tag="transactions",
        summary="Transactional ids, their open transactions, and those that hang",
        doc=(
            "`state` and `open_longer_than` (milliseconds) choose among the transactional ids. A transaction "
            "hangs if it is open in a partition and unknown to its coordinator."
        ),
        handler=list_transactions,
        query=TransactionQuery,
        answer=TransactionList,
        fails=(Code.BROKER_NOT_AVAILABLE,),
    ),
    Operation(
        method="POST",
        path=_TRANSACTIONS,
        name="commitRecords",
        tag="transactions",
        summary="Store records in several topics, all or nothing",
        doc=(
            "One transaction over all topics and partitions of the request: readers see all records or none. "
            "Answered when it is durable. A request that is refused leaves nothing that a reader ever sees. "
            "After BROKER_NOT_AVAILABLE because of the time it took, all of it may be stored, or nothing. "
            "Records go to partitions as in POST /api/v1/topics/{topic}/records. Topics that do not exist "
            "are created first, where the node allows that, and stay if the transaction is refused."
        ),
        handler=commit_records,
        body=TransactionBody,
        answer=Committed,
        fails=(Code.TOPIC_NOT_FOUND, Code.MESSAGE_TOO_LARGE, Code.BROKER_NOT_AVAILABLE),
    ),
    Operation(
        method="POST",
        path=f"{_TRANSACTION}/abort",
        name="abortTransaction",
        tag="transactions",
        summary="Abort the open transaction of a transactional id",
        doc=(
            "In all of its partitions; its producer is fenced. `started_ms` is that of the transaction that "
            "is meant: one that began since is left alone. 409 if none is open."
        ),
        handler=abort_transaction,
        body=AbortBody,
        answer=None,
        status=204,
        fails=(Code.TRANSACTION_NOT_FOUND, Code.BROKER_NOT_AVAILABLE),
    ),
    Operation(
        method="GET",
        path=_TRANSACTION,
        name="getTransaction",
        tag="transactions",
        summary="A transactional id with the partitions of its open transaction",
        doc="`first_offset` is where readers of committed records wait until the transaction ends.",
        handler=get_transaction,
        answer=TransactionDetail,
        fails=(Code.TRANSACTION_NOT_FOUND, Code.BROKER_NOT_AVAILABLE),
    ),
    Operation(
        method="POST",
        path="/api/v1/hanging-transactions/abort",
        name="abortHangingTransaction",
        tag="transactions",
        summary="End a transaction that hangs, in its partition",
        doc="409 if no transaction that hangs begins at `first_offset`.",
        handler=abort_hanging,
        body=HangingBody,
        answer=None,
        status=204,
        fails=(Code.TOPIC_NOT_FOUND, Code.BROKER_NOT_AVAILABLE),
    ),
)
