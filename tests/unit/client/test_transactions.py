"""Transactions of the producer against a scripted broker: the order of requests, the fate of every error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests import unhurried
from tests.unit.client.conftest import FIND_COORDINATOR, INIT_PRODUCER_ID, METADATA, Answer, FakeBroker

from tailrace.client.error import (
    ClientError,
    ProducerFailed,
    TimedOut,
    TransactionFailed,
    broker_error,
)
from tailrace.client.metadata import Cluster
from tailrace.client.producer import Producer, ProducerConfig
from tailrace.client.transaction import GroupMetadata, State
from tailrace.model import BrokerError, ConfigError, ErrorCode, TopicPartition
from tailrace.records import read_batch
from tailrace.wire.kafka import PRODUCE, Message, ProduceRequest, ProduceResult
from tailrace.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from tailrace.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tailrace.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.wire.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic
from tailrace.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ADD_PARTITIONS, ADD_OFFSETS, END, OFFSET_COMMIT = 24, 25, 26, 28
OF_TRANSACTIONS = (INIT_PRODUCER_ID, PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSET_COMMIT)
T0 = TopicPartition("t", 0)
MEMBER = GroupMetadata("g", 4, "m", "i")


class Coordinator(FakeBroker):
    """A broker with transactions that all succeed; `codes` are answered before that, by API key."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: dict[int, list[int]] = {}
        self.epoch = -1
        self.handlers |= {
            INIT_PRODUCER_ID: self.init,
            ADD_PARTITIONS: self.add_partitions,
            ADD_OFFSETS: lambda _version, _request: AddOffsetsToTxnResponse(
                error_code=self.code(ADD_OFFSETS)
            ),
            END: self.end,
            OFFSET_COMMIT: self.commit_offsets,
            PRODUCE: self.take,
        }

    def code(self, key: int) -> int:
        left = self.codes.get(key)
        return left.pop(0) if left else 0

    def init(self, _version: int, _request: InitProducerIdRequest) -> Answer:
        code = self.code(INIT_PRODUCER_ID)
        if code:
            return InitProducerIdResponse(error_code=code)
        self.epoch += 1
        return InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch)

    def add_partitions(self, _version: int, request: AddPartitionsToTxnRequest) -> Answer:
        topics = [
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(index, self.code(ADD_PARTITIONS))
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def end(self, version: int, request: EndTxnRequest) -> Answer:
        code = self.code(END)
        if code or version < 5:
            return EndTxnResponse(error_code=code)
        self.epoch += 1
        return EndTxnResponse(producer_id=request.producer_id, producer_epoch=self.epoch)

    def commit_offsets(self, _version: int, request: TxnOffsetCommitRequest) -> Answer:
        code = self.code(OFFSET_COMMIT)
        topics = [
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
        return TxnOffsetCommitResponse(topics=topics)

    def take(self, version: int, request: ProduceRequest) -> Answer:
        def decide(topic: str, partition: int, batch: bytes) -> ProduceResult:
            code = self.code(PRODUCE)
            return ProduceResult(partition, code) if code else self.keep(topic, partition, batch)

        return self.answer_produce(version, request, decide)

    def steps(self) -> list[int]:
        """The keys of the requests that belong to transactions, in order."""
        return [key for key, _ in self.asked if key in OF_TRANSACTIONS]

    def ends(self) -> list[bool]:
        return [request.committed for request in self.asked_for(END)]


Test = Callable[[Coordinator, Producer], Awaitable[None]]


def with_producer(
    test: Test,
    *,
    init: bool = True,
    partitions: int = 1,
    level: int = 0,
    newest_end: int | None = None,
    **settings: Any,
) -> None:
    """`level` is that of transaction.version, `newest_end` the version of EndTxn that the broker offers."""

    async def run() -> None:
        fake = Coordinator()
        fake.topics["t"] = partitions
        fake.features = {"transaction.version": level} if level else {}
        if newest_end is not None:
            fake.versions[END] = (0, newest_end)
        async with fake, fake.client() as client:
            config = ProducerConfig(**{"transactional_id": "tx", "transaction_timeout_s": 9.5, **settings})
            async with Producer(client, config) as producer:
                if init:
                    await producer.init_transactions()
                await test(fake, producer)

    unhurried.run(run())


def state_of(producer: Producer) -> State:
    assert producer._transactions is not None
    return producer._transactions.state


async def transact(producer: Producer, *values: bytes) -> None:
    producer.begin_transaction()
    for value in values:
        await producer.send("t", value)
    await producer.commit_transaction()


# ---- the ordinary way


def test_a_transaction_adds_its_partition_produces_and_ends() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        await transact(producer, b"a")
        assert fake.steps() == [INIT_PRODUCER_ID, ADD_PARTITIONS, PRODUCE, END]
        (init,) = fake.asked_for(INIT_PRODUCER_ID)
        assert (init.transactional_id, init.transaction_timeout_ms) == ("tx", 9500)
        assert (init.producer_id, init.producer_epoch) == (-1, -1)
        (added,) = fake.asked_for(ADD_PARTITIONS)
        assert (added.v3_and_below_transactional_id, added.v3_and_below_producer_id) == ("tx", 7)
        (produced,) = fake.asked_for(PRODUCE)
        assert produced.transactional_id == "tx"
        batch = read_batch(fake.stored["t", 0][0])
        assert batch.is_transactional
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 0, 0)
        assert fake.ends() == [True]
        found = [request for request in fake.asked_for(FIND_COORDINATOR) if request.key_type == 1]
        assert [request.key for request in found] == ["tx"]

    with_producer(test)


def test_sequences_go_on_and_partitions_are_added_anew_in_the_next_transaction() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        await transact(producer, b"a", b"b")
        await transact(producer, b"c")
        assert fake.steps() == [INIT_PRODUCER_ID, *([ADD_PARTITIONS, PRODUCE, END] * 2)]
        assert read_batch(fake.stored["t", 0][-1]).base_sequence == 2

    with_producer(test)


def test_partitions_are_added_together_and_once() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        for partition in (0, 1, 2, 0, 1, 2):
            await producer.send("t", b"x", partition=partition)
        await producer.commit_transaction()
        added = [
            index
            for request in fake.asked_for(ADD_PARTITIONS)
            for topic in request.v3_and_below_topics
            for index in topic.partitions
        ]
        assert sorted(added) == [0, 1, 2]
        assert fake.ends() == [True]

    with_producer(test, partitions=3, linger_s=0.01)


def test_an_aborted_transaction_ends_with_an_abort_and_no_new_epoch() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        await (await producer.send("t", b"a"))
        await producer.abort_transaction()
        await transact(producer, b"b")
        assert fake.ends() == [False, True]
        assert len(fake.asked_for(INIT_PRODUCER_ID)) == 1
        assert read_batch(fake.stored["t", 0][-1]).base_sequence == 1

    with_producer(test)


@pytest.mark.parametrize("commit", [True, False])
def test_an_empty_transaction_asks_nobody(commit: bool) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        assert fake.steps() == [INIT_PRODUCER_ID]
        producer.begin_transaction()

    with_producer(test)


def test_offsets_go_to_the_group_after_the_group_was_added() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({T0: 8}, MEMBER)
        await producer.send_offsets_to_transaction({T0: 9}, MEMBER)
        await producer.send_offsets_to_transaction({}, MEMBER)
        await producer.commit_transaction()
        assert fake.steps() == [INIT_PRODUCER_ID, ADD_OFFSETS, OFFSET_COMMIT, OFFSET_COMMIT, END]
        (added,) = fake.asked_for(ADD_OFFSETS)
        assert (added.transactional_id, added.producer_id, added.group_id) == ("tx", 7, "g")
        first, _ = fake.asked_for(OFFSET_COMMIT)
        assert (first.group_id, first.generation_id, first.member_id) == ("g", 4, "m")
        assert (first.group_instance_id, first.topics[0].partitions[0].committed_offset) == ("i", 8)

    with_producer(test)


def test_the_name_of_a_group_will_do() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({T0: 8}, "g")
        (request,) = fake.asked_for(OFFSET_COMMIT)
        assert (request.group_id, request.generation_id, request.member_id) == ("g", -1, "")

    with_producer(test)


def test_closing_aborts_what_is_open() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        await (await producer.send("t", b"a"))
        await producer.close()
        assert fake.ends() == [False]

    with_producer(test)


# ---- what may not be done


def test_what_is_out_of_turn_is_refused_with_the_way_out() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        with pytest.raises(ClientError, match="init_transactions"):
            producer.begin_transaction()
        await producer.init_transactions()
        await producer.init_transactions()
        with pytest.raises(ClientError, match="begin_transaction"):
            await producer.send("t", b"a")
        for early in (producer.commit_transaction(), producer.abort_transaction()):
            with pytest.raises(ClientError, match="begin_transaction"):
                await early
        with pytest.raises(ClientError, match="begin_transaction"):
            await producer.send_offsets_to_transaction({T0: 1}, "g")
        producer.begin_transaction()
        with pytest.raises(ClientError, match="commit or abort"):
            producer.begin_transaction()
        assert fake.steps() == [INIT_PRODUCER_ID]

    with_producer(test, init=False)


def test_a_producer_without_a_transactional_id_says_so() -> None:
    async def test(_fake: Coordinator, producer: Producer) -> None:
        with pytest.raises(ClientError, match=r"transactional\.id"):
            producer.begin_transaction()

    with_producer(test, init=False, transactional_id=None)


@pytest.mark.parametrize("settings", [{"acks": 1}, {"idempotent": False}, {"transactional_id": ""}])
def test_a_transactional_id_needs_acknowledgements_and_idempotence(settings: dict[str, Any]) -> None:
    async def test(_fake: Coordinator, _producer: Producer) -> None:
        raise AssertionError("it was made")

    with pytest.raises(ConfigError, match="transactional"):
        with_producer(test, init=False, **settings)


def test_a_commit_and_an_abort_at_once_are_one_end() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"a")
        outcomes = await asyncio.gather(
            producer.commit_transaction(), producer.commit_transaction(), return_exceptions=True
        )
        assert outcomes[0] is None and isinstance(outcomes[1], ClientError)
        assert fake.ends() == [True]

    with_producer(test)


# ---- fates of errors

RETRIED = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
]
FATAL = [
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
]


async def everything(producer: Producer) -> None:
    """A transaction that sends every request there is."""
    producer.begin_transaction()
    await (await producer.send("t", b"a"))
    await producer.send_offsets_to_transaction({T0: 8}, MEMBER)
    await producer.commit_transaction()


@pytest.mark.parametrize("key", [ADD_PARTITIONS, ADD_OFFSETS, OFFSET_COMMIT, END])
@pytest.mark.parametrize("code", RETRIED)
def test_what_may_go_away_is_tried_again(key: int, code: ErrorCode) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[key] = [code, code]
        await everything(producer)
        assert fake.steps().count(key) == 3
        assert state_of(producer) is State.READY and fake.ends()[-1] is True

    with_producer(test)


@pytest.mark.parametrize("code", RETRIED)
def test_the_initialization_is_tried_again(code: ErrorCode) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[INIT_PRODUCER_ID] = [code]
        await producer.init_transactions()
        assert len(fake.asked_for(INIT_PRODUCER_ID)) == 2

    with_producer(test, init=False)


@pytest.mark.parametrize("key", [ADD_PARTITIONS, ADD_OFFSETS, OFFSET_COMMIT, END])
@pytest.mark.parametrize("code", FATAL)
def test_what_ends_the_producer_ends_it_for_good(key: int, code: ErrorCode) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[key] = [code]
        with pytest.raises(ProducerFailed, match="Close this producer"):
            await everything(producer)
        assert state_of(producer) is State.FATAL
        for later in (
            producer.send("t", b"b"),
            producer.commit_transaction(),
            producer.abort_transaction(),
            producer.init_transactions(),
            producer.send_offsets_to_transaction({T0: 1}, "g"),
        ):
            with pytest.raises(ProducerFailed):
                await later
        with pytest.raises(ProducerFailed):
            producer.begin_transaction()
        assert len(fake.steps()) <= 6

    with_producer(test)


@pytest.mark.parametrize("key", [ADD_PARTITIONS, ADD_OFFSETS, END])
def test_a_wrong_state_at_the_coordinator_ends_the_producer(key: int) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[key] = [ErrorCode.INVALID_TXN_STATE]
        with pytest.raises(ProducerFailed):
            await everything(producer)

    with_producer(test)


@pytest.mark.parametrize("code", [*FATAL, ErrorCode.INVALID_TRANSACTION_TIMEOUT, ErrorCode.INVALID_REQUEST])
def test_an_initialization_that_is_refused_ends_the_producer(code: ErrorCode) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[INIT_PRODUCER_ID] = [code]
        with pytest.raises(ProducerFailed) as refused:
            await producer.init_transactions()
        assert isinstance(refused.value.__cause__, BrokerError)

    with_producer(test, init=False)


def test_a_fenced_producer_hears_that_another_one_took_over() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[END] = [ErrorCode.PRODUCER_FENCED]
        with pytest.raises(ProducerFailed, match="another producer with transactional id tx has taken over"):
            await transact(producer, b"a")

    with_producer(test)


ABORTABLE = {
    ADD_PARTITIONS: [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    ],
    ADD_OFFSETS: [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
    OFFSET_COMMIT: [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ],
    PRODUCE: [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
    ],
    END: [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING],
}


@pytest.mark.parametrize(("key", "code"), [(key, code) for key, codes in ABORTABLE.items() for code in codes])
def test_what_fails_the_transaction_leaves_the_producer_to_the_next(key: int, code: ErrorCode) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[key] = [code]
        with pytest.raises((TransactionFailed, BrokerError)) as failed:
            await everything(producer)
        assert key in (PRODUCE, ADD_PARTITIONS) or isinstance(failed.value, TransactionFailed)
        assert state_of(producer) is State.FAILED
        with pytest.raises(TransactionFailed, match="abort_transaction"):
            await producer.commit_transaction()
        with pytest.raises(TransactionFailed, match="abort_transaction"):
            await producer.send("t", b"more")
        await producer.abort_transaction()
        await transact(producer, b"next")
        assert fake.values()[-1] == b"next" and fake.ends()[-1] is True

    with_producer(test)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED])
def test_a_batch_may_end_the_producer_too(code: ErrorCode) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[PRODUCE] = [code]
        producer.begin_transaction()
        with pytest.raises(BrokerError):
            await (await producer.send("t", b"a"))
        with pytest.raises(ProducerFailed):
            await producer.commit_transaction()

    with_producer(test)


def test_a_commit_whose_records_failed_does_not_commit() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[PRODUCE] = [ErrorCode.INVALID_RECORD]
        producer.begin_transaction()
        await producer.send("t", b"a")  # nobody looks at its future
        with pytest.raises(TransactionFailed, match="invalid record"):
            await producer.commit_transaction()
        assert fake.ends() == []

    with_producer(test)


def test_a_record_that_cannot_be_sent_fails_the_transaction() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        with pytest.raises(BrokerError):
            await producer.send("t", bytes(5000))
        with pytest.raises(TransactionFailed, match=r"max\.request\.size"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        producer.begin_transaction()
        await producer.send("t", b"a", partition=5)
        with pytest.raises(TransactionFailed, match="no partition 5"):
            await producer.commit_transaction()

    with_producer(test, request_bytes_max=1000)


def test_a_topic_that_cannot_be_had_fails_the_transaction() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        def metadata(_version: int, _request: Message) -> Answer:
            found = MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name="secret")
            return MetadataResponse(topics=[found])

        fake.handlers[METADATA] = metadata
        producer.begin_transaction()
        await producer.send("secret", b"a")
        with pytest.raises(TransactionFailed, match="topic authorization failed"):
            await producer.commit_transaction()

    with_producer(test)


def test_partitions_that_were_not_tried_are_tried_again_with_the_one_that_stopped_them() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[ADD_PARTITIONS] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED]
        producer.begin_transaction()
        for partition in (0, 1):
            await producer.send("t", b"x", partition=partition)
        await producer.commit_transaction()
        assert fake.ends() == [True]

    with_producer(test, partitions=2, linger_s=0.01)


# ---- identities


def inits(fake: Coordinator) -> list[tuple[int, int]]:
    return [(each.producer_id, each.producer_epoch) for each in fake.asked_for(INIT_PRODUCER_ID)]


def test_after_a_batch_was_given_up_the_abort_takes_a_new_epoch() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        await transact(producer, b"a")
        fake.codes[PRODUCE] = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        producer.begin_transaction()
        with pytest.raises(BrokerError):
            await (await producer.send("t", b"b"))
        await producer.abort_transaction()
        assert inits(fake) == [(-1, -1), (7, 0)]
        assert fake.steps()[-2:] == [END, INIT_PRODUCER_ID] and fake.ends() == [True, False]
        await transact(producer, b"c")
        batch = read_batch(fake.stored["t", 0][-1])
        assert (batch.producer_epoch, batch.base_sequence) == (1, 0)

    with_producer(test)


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_a_transaction_that_timed_out_is_left_for_the_current_identity(code: ErrorCode) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[END] = [code, code]
        with pytest.raises(TransactionFailed):
            await transact(producer, b"a")
        await producer.abort_transaction()
        assert inits(fake) == [(-1, -1), (7, 0)]
        # A coordinator that does not know the id has nothing to end.
        ends = [True] if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING else [True, False]
        assert fake.ends() == ends

    with_producer(test)


def test_a_request_without_an_answer_costs_the_transaction_and_an_epoch() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[ADD_PARTITIONS] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100
        producer.begin_transaction()
        with pytest.raises(TransactionFailed):
            await (await producer.send("t", b"a"))
        fake.codes.clear()
        await producer.abort_transaction()
        assert inits(fake) == [(-1, -1), (7, 0)] and fake.ends() == []

    with_producer(test, block_s=0.3)


def test_a_zombie_whose_batch_is_refused_learns_at_the_abort_that_it_is_one() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes |= {PRODUCE: [ErrorCode.INVALID_PRODUCER_EPOCH], END: [ErrorCode.PRODUCER_FENCED]}
        producer.begin_transaction()
        with pytest.raises(BrokerError):
            await (await producer.send("t", b"a"))
        with pytest.raises(ProducerFailed):
            await producer.abort_transaction()

    with_producer(test)


# ---- ends that take long


def test_a_commit_without_an_answer_may_be_repeated_and_not_be_aborted() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[END] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100
        with pytest.raises(TimedOut, match=r"call commit_transaction\(\) again"):
            await transact(producer, b"a")
        with pytest.raises(ClientError, match="may have committed"):
            await producer.abort_transaction()
        with pytest.raises(ClientError):
            await producer.send("t", b"b")
        fake.codes.clear()
        await producer.commit_transaction()
        assert state_of(producer) is State.READY and set(fake.ends()) == {True}

    with_producer(test, block_s=0.3)


def test_an_abort_without_an_answer_may_be_repeated() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        producer.begin_transaction()
        await (await producer.send("t", b"a"))
        fake.codes[END] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100
        with pytest.raises(TimedOut):
            await producer.abort_transaction()
        fake.codes.clear()
        await producer.abort_transaction()
        await transact(producer, b"b")

    with_producer(test, block_s=0.3)


def test_an_end_is_sent_again_after_a_lost_connection() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        drops = iter([True, False])

        def end(_version: int, _request: Message) -> Answer:
            if next(drops, False):
                fake.drop_connections()
                return None
            return EndTxnResponse()

        fake.handlers[END] = end
        await transact(producer, b"a")
        assert fake.ends() == [True, True]

    with_producer(test)


def test_an_abort_waits_for_the_batch_on_its_way_and_drops_the_rest() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        arrived, release = asyncio.Event(), asyncio.Event()

        async def take(version: int, request: ProduceRequest) -> Answer:
            arrived.set()
            await release.wait()
            return fake.take(version, request)

        fake.handlers[PRODUCE] = lambda version, request: take(version, request)
        producer.begin_transaction()
        first = await producer.send("t", b"a")
        await arrived.wait()
        rest = [await producer.send("t", bytes(400)) for _ in range(4)]
        aborting = asyncio.ensure_future(producer.abort_transaction())
        await asyncio.wait(rest)
        assert not aborting.done() and fake.ends() == []
        for each in rest:
            assert isinstance(each.exception(), TransactionFailed)
        release.set()
        await aborting
        assert (await first).offset == 0
        assert fake.ends() == [False] and fake.values() == [b"a"]
        assert producer.bytes_buffered == 0
        assert len(fake.asked_for(INIT_PRODUCER_ID)) == 1

    with_producer(test, batch_bytes=500)


def test_a_batch_that_waits_for_another_attempt_is_dropped_by_an_abort_and_costs_an_epoch() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[PRODUCE] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 50
        producer.begin_transaction()
        sent = await producer.send("t", b"a")
        while len(fake.asked_for(PRODUCE)) < 2:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        await producer.abort_transaction()
        assert isinstance(sent.exception(), TransactionFailed | BrokerError)
        assert inits(fake) == [(-1, -1), (7, 0)]

    with_producer(test)


def test_an_abort_does_not_wait_for_a_leader_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        looking, release = asyncio.Event(), asyncio.Event()

        async def leader(_partition: TopicPartition) -> None:
            looking.set()
            await release.wait()
            raise broker_error(ErrorCode.LEADER_NOT_AVAILABLE, "t")

        await transact(producer, b"a")  # so that the topic is known
        monkeypatch.setattr(producer._client, "leader", leader)
        monkeypatch.setattr(Cluster, "leader_of", lambda _cluster, _partition: None)
        producer.begin_transaction()
        sent = await producer.send("t", b"b")
        await looking.wait()
        aborting = asyncio.ensure_future(producer.abort_transaction())
        await asyncio.sleep(0)
        release.set()
        async with asyncio.timeout(30):
            await aborting
        assert sent.done() and fake.steps() == [INIT_PRODUCER_ID, ADD_PARTITIONS, PRODUCE, END]

    with_producer(test)


def test_a_broker_without_transactions_is_named() -> None:
    async def run() -> None:
        async with Coordinator() as fake:
            for key in (ADD_PARTITIONS, ADD_OFFSETS, END, OFFSET_COMMIT):
                del fake.versions[key]
            config = ProducerConfig(transactional_id="tx")
            async with fake.client() as client, Producer(client, config) as producer:
                with pytest.raises(ProducerFailed, match="AddPartitionsToTxn cannot be used"):
                    await producer.init_transactions()

    unhurried.run(run())


# ---- every transaction has an epoch of its own (KIP-890 part 2)


async def begin(producer: Producer, value: bytes) -> None:
    """A transaction with a record that has arrived."""
    producer.begin_transaction()
    await (await producer.send("t", value))


def sent(fake: Coordinator) -> list[tuple[int, int]]:
    """Epoch and first sequence of every batch that was stored."""
    batches = [read_batch(each) for each in fake.stored[T0]]
    return [(each.producer_epoch, each.base_sequence) for each in batches]


def test_every_end_answers_with_the_next_epoch_and_nothing_is_added() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        for commits in (True, False, True):
            await begin(producer, b"x")
            await producer.send_offsets_to_transaction({T0: 3}, MEMBER)
            if commits:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        assert fake.steps() == [INIT_PRODUCER_ID, *[PRODUCE, OFFSET_COMMIT, END] * 3]
        assert {(PRODUCE, 12), (OFFSET_COMMIT, 5), (END, 5)} <= set(fake.spoken)
        assert [each.producer_epoch for each in fake.asked_for(END)] == [0, 1, 2]
        assert [each.producer_epoch for each in fake.asked_for(OFFSET_COMMIT)] == [0, 1, 2]
        assert sent(fake) == [(0, 0), (1, 0), (2, 0)]

    with_producer(test, level=2, linger_s=0.0)


@pytest.mark.parametrize(("level", "newest_end"), [(0, 5), (1, 5), (2, 4)])
def test_a_cluster_without_the_feature_or_its_versions_is_spoken_to_as_before(
    level: int, newest_end: int
) -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        for _ in range(2):
            await transact(producer, b"x")
        assert fake.steps() == [INIT_PRODUCER_ID, *[ADD_PARTITIONS, PRODUCE, END] * 2]
        assert {(ADD_PARTITIONS, 3), (PRODUCE, 11), (END, 4)} <= set(fake.spoken)
        assert sent(fake) == [(0, 0), (0, 1)]

    with_producer(test, level=level, newest_end=newest_end)


def test_an_abort_needs_no_other_epoch_after_a_batch_was_given_up() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[PRODUCE] = [ErrorCode.TRANSACTION_ABORTABLE]
        producer.begin_transaction()
        future = await producer.send("t", b"x")
        with pytest.raises(BrokerError):
            await future
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await transact(producer, b"y")
        assert fake.steps() == [INIT_PRODUCER_ID, PRODUCE, END, PRODUCE, END] and fake.ends() == [False, True]
        assert sent(fake) == [(1, 0)]

    with_producer(test, level=2)


def test_an_abort_that_is_refused_asks_for_the_identity() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[END] = [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE]
        with pytest.raises(TransactionFailed):
            await transact(producer, b"x")
        await producer.abort_transaction()
        assert fake.steps() == [INIT_PRODUCER_ID, PRODUCE, END, END, INIT_PRODUCER_ID]
        assert state_of(producer) is State.READY

    with_producer(test, level=2)


def test_a_batch_waits_for_the_end_of_the_transaction_before() -> None:
    async def test(fake: Coordinator, producer: Producer) -> None:
        fake.codes[PRODUCE] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        await transact(producer, b"x")
        assert fake.steps() == [INIT_PRODUCER_ID, PRODUCE, PRODUCE, PRODUCE, END]

    with_producer(test, level=2)
