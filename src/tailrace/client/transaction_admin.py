"""Administration of transactions: transactional ids, what is open, and how to end it (KIP-664).

Two requests end a transaction. InitProducerId asks the coordinator of a transactional id for a new epoch: it
aborts what is open in all partitions together, and fences the producer. WriteTxnMarkers ends a transaction in
one partition alone, for a transaction that hangs: it is open in the partition, and no coordinator knows it.

A transaction with two-phase commit (KIP-939) is listed with NO_TIMEOUT_MS, and no InitProducerId aborts it.
EndTxn with the identity that was listed does, and from version 5 on that fences the producer too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tailrace.client.error import UnsupportedApi, check
from tailrace.client.kafka import KafkaClient
from tailrace.client.keys import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tailrace.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from tailrace.wire.kafka.messages.end_txn import EndTxnRequest
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from tailrace.wire.kafka.messages.list_transactions import ListTransactionsRequest
from tailrace.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout that a transaction with two-phase commit is listed with."""
END_FENCES_FROM = 5
"""The version of EndTxn from which on it fences the producer."""
ONGOING = "Ongoing"
"""The state of a transaction that is open and not decided."""

_NO_DURATION = -1
_DURATION_FROM = 1  # the version of ListTransactions (KIP-994)
_DESCRIBED_MAX = 1000  # transactional ids in one request


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """A transactional id, and its transaction if one is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None  # None where no transaction is open
    partitions: Sequence[TopicPartition]
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open in a partition, as the partition knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int


async def list_transactions(
    client: KafkaClient,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    open_longer_than_ms: int | None = None,
) -> list[TransactionInfo]:
    """The transactional ids of every coordinator for which all filters match, by name."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=_NO_DURATION if open_longer_than_ms is None else open_longer_than_ms,
    )
    found: list[TransactionInfo] = []
    for node in list(client.cluster.nodes):

        async def attempt(node: int = node) -> list[TransactionInfo]:
            return await _list_of_node(client, node, request)

        found += await client.retrying("listing transactions", attempt)
    return sorted(found, key=lambda each: each.transactional_id)


async def _list_of_node(
    client: KafkaClient, node: int, request: ListTransactionsRequest
) -> list[TransactionInfo]:
    version = (await client.connection_to(node)).version_of(LIST_TRANSACTIONS)
    if request.duration_filter != _NO_DURATION and version < _DURATION_FROM:
        raise UnsupportedApi(
            f"node {node} cannot list transactions by how long they are open: its ListTransactions ends at"
            f" version {version}. List all, and choose by open_ms"
        )
    reply = await client.request(LIST_TRANSACTIONS, request, node=node)
    check(reply.error_code, "listing transactions")
    if reply.unknown_state_filters:
        raise BrokerError(
            f"node {node} does not know the transaction state {', '.join(reply.unknown_state_filters)}",
            code=ErrorCode.INVALID_REQUEST,
        )
    names = [each.transactional_id for each in reply.transaction_states]
    found: list[TransactionInfo] = []
    for first in range(0, len(names), _DESCRIBED_MAX):
        asked = DescribeTransactionsRequest(transactional_ids=names[first : first + _DESCRIBED_MAX])
        described = await client.request(DESCRIBE_TRANSACTIONS, asked, node=node)
        for each in described.transaction_states:
            if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue  # it expired since it was listed
            check(each.error_code, f"transactional id {each.transactional_id}")
            found.append(_info(each, node))
    return found


async def describe_transaction(client: KafkaClient, transactional_id: str) -> TransactionInfo:
    """A transactional id; TRANSACTIONAL_ID_NOT_FOUND."""

    async def attempt() -> TransactionInfo:
        node = await client.find_coordinator(transactional_id, of_transactions=True)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        reply = await client.request(DESCRIBE_TRANSACTIONS, request, node=node)
        if len(reply.transaction_states) != 1:
            raise ProtocolError(
                f"DescribeTransactions was asked for one transactional id and told of"
                f" {len(reply.transaction_states)}"
            )
        (found,) = reply.transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise BrokerError(
                f"transactional id {transactional_id} does not exist. Try: tailrace txn list",
                code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            )
        check(found.error_code, f"transactional id {transactional_id}")
        return _info(found, node)

    return await client.retrying(f"describing transactional id {transactional_id}", attempt)


def _info(found: TransactionState, node: int) -> TransactionInfo:
    started_ms = found.transaction_start_time_ms
    return TransactionInfo(
        transactional_id=found.transactional_id,
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        started_ms=started_ms if started_ms >= 0 else None,
        partitions=sorted(
            TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions
        ),
        coordinator=node,
    )


async def open_transactions(client: KafkaClient, target: TopicPartition) -> list[OpenTransaction]:
    """The transactions that are open in a partition, by first offset."""
    topic = TopicRequest(name=target.topic, partition_indexes=[target.partition])
    request = DescribeProducersRequest(topics=[topic])

    async def attempt() -> list[OpenTransaction]:
        node = (await client.leader(target)).leader
        reply = await client.request(DESCRIBE_PRODUCERS, request, node=node)
        found: list[OpenTransaction] = []
        for partition in (each for topic in reply.topics for each in topic.partitions):
            check(partition.error_code, f"producers of {target}", partition.error_message)
            found += [
                OpenTransaction(
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    coordinator_epoch=each.coordinator_epoch,
                    first_offset=each.current_txn_start_offset,
                )
                for each in partition.active_producers
                if each.current_txn_start_offset >= 0
            ]
        return sorted(found, key=lambda each: each.first_offset)

    return await client.retrying(f"reading the producers of {target}", attempt)


async def fence_producer(client: KafkaClient, found: TransactionInfo) -> None:
    """Abort what is open of a transactional id, and fence its producer, which keeps its timeout.

    It returns when the abort is durable. Kafka's Admin.fenceProducers does the same.
    """
    name = found.transactional_id
    if found.timeout_ms == NO_TIMEOUT_MS:
        await end_transaction(
            client, name, producer_id=found.producer_id, epoch=found.producer_epoch, commit=False
        )
        return
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=found.timeout_ms)

    async def attempt() -> None:
        reply = await client.request(INIT_PRODUCER_ID, request, transactional_id=name)
        check(reply.error_code, f"aborting the transaction of {name}")

    await client.retrying(f"aborting the transaction of {name}", attempt)


async def end_transaction(
    client: KafkaClient, transactional_id: str, *, producer_id: int, epoch: int, commit: bool
) -> None:
    """End a transaction in the name of its producer; returns when that is durable.

    From EndTxn 5 on the producer is fenced with it (KIP-890 part 2). To repeat it is harmless.
    """
    request = EndTxnRequest(transactional_id, producer_id, epoch, committed=commit)
    what = f"{'committing' if commit else 'aborting'} the transaction of {transactional_id}"

    async def attempt() -> None:
        node = await client.find_coordinator(transactional_id, of_transactions=True)
        version = (await client.connection_to(node)).version_of(END_TXN, newest=END_FENCES_FROM)
        reply = await client.request(END_TXN, request, node=node, version=version)
        check(reply.error_code, what)

    await client.retrying(what, attempt)


async def write_abort_marker(client: KafkaClient, target: TopicPartition, found: OpenTransaction) -> None:
    """End a transaction in one partition, whatever its coordinator says; returns when that is durable."""
    marker = WritableTxnMarker(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=target.topic, partition_indexes=[target.partition])],
        coordinator_epoch=max(found.coordinator_epoch, 0),  # -1: no coordinator wrote a marker there yet
    )
    what = f"writing an abort marker to {target}"

    async def attempt() -> None:
        node = (await client.leader(target)).leader
        reply = await client.request(WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]), node=node)
        codes = [
            each.error_code for done in reply.markers for topic in done.topics for each in topic.partitions
        ]
        if len(codes) != 1:
            raise ProtocolError(f"the reply to WriteTxnMarkers has {len(codes)} results for one question")
        check(codes[0], what)

    await client.retrying(what, attempt)
