"""Transactions over real connections, by raw frames: what each request does, and what it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.kafka.rig import NOW_MS, TOPIC, Client, Rig, play

from tailrace.broker import NewTopic
from tailrace.broker.transactions import Identity
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.records import build_batch, iter_batches, read_batch, read_marker
from tailrace.wire.kafka import ProduceResult, encode
from tailrace.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tailrace.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tailrace.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from tailrace.wire.kafka.messages.end_txn import EndTxnRequest
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from tailrace.wire.kafka.messages.list_transactions import ListTransactionsRequest
from tailrace.wire.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tailrace.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

E = ErrorCode
TIMEOUT_MS = 60_000


def batch(identity: Identity, sequence: int, *values: bytes) -> bytes:
    """A batch of a transaction."""
    return bytes(
        build_batch(
            [(NOW_MS, b"key", value, ()) for value in values or (b"v",)],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            transactional=True,
        )
    )


class Producer:
    """A transactional producer of one connection, at the versions of its choice."""

    def __init__(self, client: Client, name: str = "x") -> None:
        self.client = client
        self.name = name
        self.identity = Identity(-1, -1)

    async def init(self, *, version: int = 4, timeout_ms: int = TIMEOUT_MS, **fields: Any) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms, **fields
        )
        answer = await self.client.ask(22, request, version=version)
        if not answer.error_code:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    async def add(self, *partitions: int, topic: str = TOPIC, version: int = 3) -> dict[int, int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (found,) = (await self.client.ask(24, request, version=version)).results_by_topic_v3_and_below
        return {each.partition_index: each.partition_error_code for each in found.results_by_partition}

    async def write(self, sequence: int, *values: bytes, **options: Any) -> ProduceResult:
        records = batch(self.identity, sequence, *values)
        return await self.client.produce(records, transactional_id=self.name, **options)

    async def end(self, *, commit: bool = True, version: int = 3) -> int:
        answer = await self.client.ask(26, self.ending(commit=commit), version=version)
        if version >= 5 and not answer.error_code:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def ending(self, *, commit: bool = True) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=commit,
        )


async def connect(rig: Rig, name: str = "x") -> Producer:
    producer = Producer(await rig.connect(), name)
    assert await producer.init() == 0
    return producer


async def stored(rig: Rig, partition: int = 0, topic: str = TOPIC) -> list[str]:
    """What a log holds, a word for each batch."""
    place = rig.partition(partition, topic)
    data = await (await place.read(place.start_offset, bytes_max=1 << 20)).load()
    words = []
    for each in iter_batches(data):
        if each.is_control:
            words.append("commit" if read_marker(each).commit else "abort")
        else:
            words.append(b"".join(record.value or b"" for record in each.records()).decode())
    return words


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(4))
def test_a_transaction_from_its_beginning_to_its_end(version: int, commit: bool) -> None:
    async def scenario(rig: Rig) -> None:
        producer = Producer(await rig.connect())
        assert await producer.init(version=min(version + 1, 4)) == 0
        assert producer.identity == (producer.identity.producer_id, 0)
        assert await producer.add(0, 1, version=version) == {0: 0, 1: 0}
        assert (await producer.write(0, b"a", version=3 + version)).base_offset == 0
        assert (await producer.write(1, b"b")).base_offset == 1
        assert (await producer.write(0, b"c", partition=1)).base_offset == 0
        assert rig.partition().last_stable_offset == 0 and rig.partition().high_watermark == 2
        assert await producer.end(commit=commit, version=version) == 0
        marker = "commit" if commit else "abort"
        assert await stored(rig) == ["a", "b", marker] and await stored(rig, 1) == ["c", marker]
        assert rig.partition().last_stable_offset == 3
        assert await producer.end(commit=commit, version=version) == 0  # said again
        assert await stored(rig) == ["a", "b", marker]
        assert await producer.add(0, version=version) == {0: 0}  # and the next one
        assert (await producer.write(2, b"d")).base_offset == 3
        assert await producer.end(version=version) == 0

    play(scenario)


def test_a_batch_of_the_same_shape_is_recognized_with_its_transactional_id() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        other = Producer(producer.client, "y")
        assert await other.init() == 0
        assert await producer.add(0) == {0: 0} and await other.add(0) == {0: 0}
        for sequence in range(3):
            assert (await producer.write(sequence)).error_code == 0
            assert rig.connection_of(producer.client).produce_shape is not None
            assert (await other.write(sequence)).error_code == 0
        assert await producer.end() == 0 and await other.end(commit=False) == 0
        assert (await stored(rig))[-2:] == ["commit", "abort"]

    play(scenario)


def test_a_write_is_verified() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert (await producer.write(0)).error_code == E.INVALID_TXN_STATE  # no transaction is open
        assert await producer.add(0) == {0: 0}
        assert (await producer.write(0, partition=1)).error_code == E.INVALID_TXN_STATE
        assert (await producer.write(0)).error_code == 0
        assert (await producer.write(5)).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await producer.write(0)).base_offset == 0  # repeated
        assert await producer.end() == 0
        assert (await producer.write(1)).error_code == E.INVALID_TXN_STATE  # after its end
        assert (await producer.write(0)).base_offset == 0  # repeated, and opens nothing
        assert rig.partition(1).end_offset == 0 and await stored(rig) == ["v", "commit"]
        assert rig.partition().last_stable_offset == 2

    play(scenario)


def test_a_producer_that_was_quiet_for_long_goes_on_in_its_epoch() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        for sequence in range(3):
            assert await producer.add(0) == {0: 0}
            assert (await producer.write(sequence, b"%d" % sequence)).error_code == 0
            assert await producer.end() == 0
        producers = rig.partition().producers
        producers.forget_idle(0, idle_ms=1)
        assert producers.forget_idle(1, idle_ms=1) == 1
        assert (await producer.write(3)).error_code == E.INVALID_TXN_STATE
        assert await producer.add(0) == {0: 0}
        assert (await producer.write(3, b"3")).error_code == 0
        assert (await producer.write(5, b"5")).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await producer.end() == 0
        assert await stored(rig) == ["0", "commit", "1", "commit", "2", "commit", "3", "commit"]

    play(scenario)


def test_a_producer_with_an_epoch_for_every_transaction_begins_each_at_sequence_0() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert (await producer.write(1, version=12)).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await producer.write(0, version=12)).error_code == 0

    play(scenario)


def test_a_batch_does_not_overtake_one_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await producer.add(0) == {0: 0}
        busy = BrokerError("busy", code=E.THROTTLING_QUOTA_EXCEEDED)
        with monkeypatch.context() as patch:
            patch.setattr(rig.log(), "append", raiser(busy))
            assert (await producer.write(0)).error_code == E.THROTTLING_QUOTA_EXCEEDED
        assert (await producer.write(1)).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await producer.write(0)).error_code == 0
        assert (await producer.write(1)).error_code == 0
        assert await producer.end() == 0

        assert await producer.add(1) == {1: 0}
        with monkeypatch.context() as patch:
            patch.setattr(rig.log(1), "append", raiser(busy))
            assert (await producer.write(0, partition=1)).error_code == E.THROTTLING_QUOTA_EXCEEDED
        assert await producer.end(commit=False) == 0
        assert await producer.add(1) == {1: 0}  # what was refused belonged to another transaction
        assert (await producer.write(7, partition=1)).error_code == 0

    play(scenario)


def raiser(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_zombie_is_fenced_everywhere() -> None:
    async def scenario(rig: Rig) -> None:
        zombie = await connect(rig)
        assert await zombie.add(0) == {0: 0} and (await zombie.write(0, b"old")).error_code == 0
        fresh = await connect(rig)
        assert await stored(rig) == ["old", "abort"]
        assert (await zombie.write(1)).error_code == E.INVALID_PRODUCER_EPOCH
        assert await zombie.add(0, version=1) == {0: E.INVALID_PRODUCER_EPOCH}
        assert await zombie.add(0) == {0: E.PRODUCER_FENCED}
        assert await zombie.end(version=1) == E.INVALID_PRODUCER_EPOCH
        assert await zombie.end() == E.PRODUCER_FENCED
        names = {"producer_id": zombie.identity.producer_id, "producer_epoch": zombie.identity.epoch}
        assert await zombie.init(version=3, **names) == E.INVALID_PRODUCER_EPOCH
        assert await zombie.init(version=4, **names) == E.PRODUCER_FENCED
        assert await fresh.add(0) == {0: 0} and (await fresh.write(0, b"new")).error_code == 0
        assert await fresh.end() == 0

    play(scenario)


def test_a_producer_whose_transaction_timed_out_recovers() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await producer.add(0) == {0: 0} and (await producer.write(0, b"late")).error_code == 0
        rig.storage.clock.advance(TIMEOUT_MS)
        rig.broker.transactions.tick()
        assert await stored(rig) == ["late", "abort"]
        assert (await producer.write(1)).error_code == E.INVALID_PRODUCER_EPOCH
        assert await producer.add(0) == {0: E.INVALID_PRODUCER_ID_MAPPING}
        assert await producer.end() == E.INVALID_PRODUCER_ID_MAPPING
        before = producer.identity
        names = {"producer_id": before.producer_id, "producer_epoch": before.epoch}
        assert await producer.init(**names) == 0
        assert producer.identity == (before.producer_id, before.epoch + 1)
        assert await producer.add(0) == {0: 0} and (await producer.write(0, b"again")).error_code == 0
        assert await producer.end() == 0
        assert await stored(rig) == ["late", "abort", "again", "commit"]

    play(scenario)


def test_partitions_that_cannot_be_written_cost_the_whole_request() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await producer.add(0, 9) == {0: E.OPERATION_NOT_ATTEMPTED, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
        assert await producer.add(0, topic="nowhere") == {0: E.UNKNOWN_TOPIC_OR_PARTITION}
        reserved = await producer.add(0, topic="__transaction_state")
        assert reserved == {0: E.INVALID_TOPIC_EXCEPTION}
        assert rig.broker.transactions.describe("x").partitions == ()

    play(scenario)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, E.INVALID_REQUEST),
    ],
)
def test_an_init_that_cannot_be_is_refused(fields: dict[str, int], code: ErrorCode) -> None:
    async def scenario(rig: Rig) -> None:
        assert await Producer(await rig.connect()).init(**fields) == code

    play(scenario)


def test_ids_that_are_empty_or_unknown_are_refused() -> None:
    async def scenario(rig: Rig) -> None:
        assert await Producer(await rig.connect(), "").init() == E.INVALID_REQUEST
        stranger = Producer(await rig.connect(), "y")
        stranger.identity = Identity(7, 0)
        assert await stranger.add(0) == {0: E.INVALID_PRODUCER_ID_MAPPING}
        assert await stranger.end() == E.INVALID_PRODUCER_ID_MAPPING
        known = await connect(rig)
        assert await known.end() == E.INVALID_TXN_STATE  # nothing is open
        assert await known.end(commit=False) == E.INVALID_TXN_STATE

    play(scenario)


def test_names_of_the_node_are_refused_and_no_retry_is_asked_for() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        producer.name = "__tailrace-1-0"
        reserved = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await producer.init() == reserved
        assert await producer.add(0) == {0: reserved}
        assert await producer.end(commit=True) == reserved
        assert (await producer.write(0)).error_code == reserved
        described = await producer.client.ask(
            65, DescribeTransactionsRequest(transactional_ids=[producer.name]), version=0
        )
        assert described.transaction_states[0].error_code == E.TRANSACTIONAL_ID_NOT_FOUND

    play(scenario)


def test_a_request_that_is_late_on_an_older_connection_is_dropped_with_it() -> None:
    async def scenario(rig: Rig) -> None:
        slow = await connect(rig)
        assert await slow.add(0) == {0: 0} and (await slow.write(0, b"first")).error_code == 0
        again = Producer(await rig.connect())  # the same producer, on a new connection
        again.identity = slow.identity
        assert await again.end() == 0
        assert await again.add(0) == {0: 0} and (await again.write(1, b"second")).error_code == 0
        slow.client.send(26, 3, _encoded(slow.ending()))  # the first try of the first EndTxn
        assert await slow.client.wait_closed() == b""
        assert await stored(rig) == ["first", "commit", "second"]
        assert await again.end(commit=False) == 0
        assert await stored(rig) == ["first", "commit", "second", "abort"]

    play(scenario)


def test_the_next_transaction_fences_connections_that_its_end_did_not_use() -> None:
    """The copy of an EndTxn came on a connection between the answered one and the present one."""

    async def scenario(rig: Rig) -> None:
        first, second, third = (
            await connect(rig),
            Producer(await rig.connect()),
            Producer(await rig.connect()),
        )
        second.identity = third.identity = first.identity
        assert await first.add(0) == {0: 0} and (await first.write(0, b"first")).error_code == 0
        assert await first.end() == 0
        assert await third.add(0) == {0: 0} and (await third.write(1, b"second")).error_code == 0
        second.client.send(26, 3, _encoded(second.ending()))
        assert await second.client.wait_closed() == b""
        assert await stored(rig) == ["first", "commit", "second"]

    play(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_every_transaction_has_an_epoch_with_version_2(commit: bool) -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        producer_id = producer.identity.producer_id
        for epoch in range(3):
            assert producer.identity == (producer_id, epoch)
            assert (await producer.write(0, b"%d" % epoch, version=12)).error_code == 0  # adds the partition
            assert (await producer.write(1, b"+", version=12)).error_code == 0
            assert await producer.end(commit=commit, version=5) == 0
        marker = "commit" if commit else "abort"
        assert await stored(rig) == ["0", "+", marker, "1", "+", marker, "2", "+", marker]

    play(scenario)


@pytest.mark.parametrize("version", [3, 5])
def test_an_id_goes_on_with_another_producer_id_after_its_last_epoch(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("machine", "coordinator"):
        monkeypatch.setattr(f"tailrace.broker.transactions.{module}.EPOCH_MAX", 2)

    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        seen = [producer.identity]
        for number in range(7):
            if version < 5:
                assert await producer.add(0) == {0: 0}
            write = await producer.write(0, b"%d" % number, version=12 if version >= 5 else 9)
            assert write.error_code == 0
            assert await producer.end(version=version) == 0
            if version < 5:
                assert await producer.init() == 0
            seen.append(producer.identity)
        assert [each.epoch for each in seen] == [0, 1, 2, 0, 1, 2, 0, 1]
        assert len({each.producer_id for each in seen}) == 3
        old = Producer(producer.client)
        old.identity = seen[2]
        refused = await old.end(version=version)
        assert refused == E.INVALID_PRODUCER_ID_MAPPING
        assert (await stored(rig))[::2] == [str(number) for number in range(7)]
        assert rig.partition().last_stable_offset == rig.partition().high_watermark

    play(scenario)


def test_what_is_late_is_fenced_by_its_epoch() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        late = Producer(await rig.connect())
        late.identity = producer.identity
        assert (await producer.write(0, b"a", version=12)).error_code == 0
        assert await producer.end(version=5) == 0
        assert await late.end(version=5) == 0 and late.identity == producer.identity  # said again
        late.identity = Identity(producer.identity.producer_id, 0)
        assert (await late.write(1, b"late", version=12)).error_code == E.INVALID_PRODUCER_EPOCH
        assert (await late.write(0, b"late", version=12, partition=1)).error_code == E.INVALID_PRODUCER_EPOCH
        assert (await producer.write(0, b"b", version=12)).error_code == 0
        assert await late.end(version=5) == E.PRODUCER_FENCED
        assert await producer.end(version=5) == 0
        assert await stored(rig) == ["a", "commit", "b", "commit"] and rig.partition(1).end_offset == 0

    play(scenario)


def test_an_abort_of_nothing_moves_the_epoch() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        before = producer.identity
        assert await producer.end(commit=True, version=5) == E.TRANSACTION_ABORTABLE
        assert await producer.end(commit=False, version=5) == 0
        assert producer.identity == (before.producer_id, before.epoch + 1)

    play(scenario)


def test_newer_versions_are_told_what_can_be_aborted() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert (await producer.write(0, version=11)).error_code == E.TRANSACTION_ABORTABLE
        assert await commit_offsets(producer, 7, version=4) == E.TRANSACTION_ABORTABLE
        assert await producer.end(version=4) == E.TRANSACTION_ABORTABLE
        assert await producer.add(0) == {0: 0} and (await producer.write(0)).error_code == 0
        rig.storage.clock.advance(TIMEOUT_MS)
        rig.broker.transactions.tick()
        assert await producer.end(version=4) == E.TRANSACTION_ABORTABLE
        for partition in (0, 1):  # with a marker in it, and without
            for version, code in ((10, E.INVALID_PRODUCER_EPOCH), (11, E.TRANSACTION_ABORTABLE)):
                result = await producer.write(1 - partition, version=version, partition=partition)
                assert result.error_code == code

    play(scenario)


def test_positions_take_part_by_being_committed_with_version_2() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await commit_offsets(producer, 7, version=5) == 0
        assert await position(producer.client, require_stable=True) == (-1, E.UNSTABLE_OFFSET_COMMIT)
        assert await producer.end(version=5) == 0
        assert await position(producer.client, require_stable=True) == (7, 0)

    play(scenario)


def test_an_answer_waits_for_durability() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await producer.add(0) == {0: 0} and (await producer.write(0)).error_code == 0
        index = await rig.broker.transactions.find_partition("x")
        log = rig.log(index, "__transaction_state")
        log.hold()
        producer.client.send(26, 3, _encoded(producer.ending()))
        await rig.wait_until(lambda: rig.partition().end_offset == 2)
        assert rig.broker.transactions.describe("x").state.label == "CompleteCommit"
        assert rig.connection_of(producer.client).idle is False
        log.settle()
        await producer.client.receive(26, 3)

    play(scenario)


def test_a_compacted_topic_takes_transactions() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.broker.topics.create(
            NewTopic(name="latest", partitions=1, configs={"cleanup.policy": "compact"})
        )
        producer = await connect(rig)
        assert await producer.add(0, topic="latest") == {0: 0}
        values = [b"v" * 1000] * 600
        assert (await producer.write(0, *values, topic="latest")).error_code == 0
        assert (await producer.write(600, b"w", topic="latest")).error_code == 0
        assert await producer.end() == 0
        assert (await stored(rig, topic="latest"))[-1] == "commit"

    play(scenario)


def test_administrators_see_transactions() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await producer.add(1, 0) == {0: 0, 1: 0} and (await producer.write(0)).error_code == 0
        rig.storage.clock.advance(100)
        client = producer.client
        described = await client.ask(65, DescribeTransactionsRequest(transactional_ids=["x", "y"]))
        known, unknown = described.transaction_states
        assert unknown.error_code == E.TRANSACTIONAL_ID_NOT_FOUND
        assert (known.transaction_state, known.producer_id, known.producer_epoch) == (
            "Ongoing",
            *producer.identity,
        )
        assert known.transaction_start_time_ms == NOW_MS and known.transaction_timeout_ms == TIMEOUT_MS
        assert [(topic.topic, topic.partitions) for topic in known.topics] == [(TOPIC, [0, 1])]

        async def listed(**filters: Any) -> list[str]:
            answer = await client.ask(66, ListTransactionsRequest(**filters))
            return [each.transactional_id for each in answer.transaction_states]

        assert await listed() == await listed(state_filters=["Ongoing"]) == ["x"]
        assert (
            await listed(state_filters=["Empty", "Odd"]) == await listed(producer_id_filters=[1 << 40]) == []
        )
        assert await listed(duration_filter=99) == ["x"] and await listed(duration_filter=100) == []
        odd = await client.ask(66, ListTransactionsRequest(state_filters=["Odd"]))
        assert odd.unknown_state_filters == ["Odd"]

        request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0, 9])])
        (topic,) = (await client.ask(61, request)).topics
        found, missing = topic.partitions
        assert missing.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        (state,) = found.active_producers
        assert (state.producer_id, state.producer_epoch) == producer.identity
        assert (state.last_sequence, state.current_txn_start_offset, state.coordinator_epoch) == (0, 0, -1)

    play(scenario)


def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await producer.add(0) == {0: 0} and (await producer.write(0, b"known")).error_code == 0
        lost = Identity(1 << 40, 3)
        rig.partition(1).append(read_batch(bytearray(batch(lost, 0, b"lost"))), verified=True)
        transactions = rig.broker.transactions
        transactions.look_for_hanging()
        (found,) = transactions.hanging
        assert found == (TopicPartition(TOPIC, 1), *lost, 0) and transactions.open_count == 1
        assert "transaction hangs: partition=orders-1" in caplog.text and "orders-0" not in caplog.text
        assert "To end it: tailrace txn abort --topic orders --partition 1 --offset 0" in caplog.text
        access = rig.broker.gate.access(INTERNAL)
        await access.write_marker(
            found.partition,
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            commit=False,
            coordinator_epoch=0,
        )
        transactions.look_for_hanging()
        assert transactions.hanging == [] and await stored(rig, 1) == ["lost", "abort"]

    play(scenario)


def test_an_administrator_ends_a_transaction_in_a_partition() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await producer.add(0) == {0: 0} and (await producer.write(0, b"hangs")).error_code == 0
        marker = WritableTxnMarker(
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 1, 9])],
        )
        (answer,) = (await producer.client.ask(27, WriteTxnMarkersRequest(markers=[marker]))).markers
        (topic,) = answer.topics
        codes = [(each.partition_index, each.error_code) for each in topic.partitions]
        assert codes == [(0, 0), (1, 0), (9, E.UNKNOWN_TOPIC_OR_PARTITION)]
        assert await stored(rig) == ["hangs", "abort"] and rig.partition(1).end_offset == 0

    play(scenario)


def test_offsets_take_part_by_the_partition_of_their_group() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        request = AddOffsetsToTxnRequest(
            transactional_id="x",
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.epoch,
            group_id="readers",
        )
        for version in range(4):
            assert (await producer.client.ask(25, request, version=version)).error_code == 0
        index = await rig.broker.groups.find_partition("readers")
        added = rig.broker.transactions.describe("x").partitions
        assert added == (TopicPartition("__consumer_offsets", index),)

    play(scenario)


async def commit_offsets(producer: Producer, offset: int, *, version: int = 3, **fields: Any) -> int:
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id="readers",
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
            )
        ],
        **fields,
    )
    (topic,) = (await producer.client.ask(28, request, version=version)).topics
    (partition,) = topic.partitions
    return int(partition.error_code)


async def position(client: Client, *, require_stable: bool = False) -> tuple[int, int]:
    """The committed offset of the group, and the error."""
    request = OffsetFetchRequest(
        group_id="readers",
        topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])],
        require_stable=require_stable,
    )
    (topic,) = (await client.ask(9, request, version=7)).topics
    (partition,) = topic.partitions
    return partition.committed_offset, partition.error_code


async def add_offsets(producer: Producer) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        group_id="readers",
    )
    return int((await producer.client.ask(25, request, version=3)).error_code)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("commit", [True, False])
def test_positions_count_when_their_transaction_commits(version: int, commit: bool) -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await add_offsets(producer) == 0
        assert await commit_offsets(producer, 7, version=version) == 0
        assert await position(producer.client) == (-1, 0)
        assert await position(producer.client, require_stable=True) == (-1, E.UNSTABLE_OFFSET_COMMIT)
        assert await producer.end(commit=commit) == 0
        assert await position(producer.client, require_stable=True) == (7 if commit else -1, 0)

    play(scenario)


def test_positions_are_verified_too() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await commit_offsets(producer, 7) == E.INVALID_TXN_STATE
        assert await add_offsets(producer) == 0
        assert await commit_offsets(producer, 7, generation_id=3, member_id="gone") in (
            E.ILLEGAL_GENERATION,
            E.UNKNOWN_MEMBER_ID,
        )
        fresh = await connect(rig)
        assert await commit_offsets(producer, 7) == E.INVALID_PRODUCER_EPOCH
        assert await commit_offsets(fresh, 7) == E.INVALID_TXN_STATE
        assert await position(fresh.client) == (-1, 0)

    play(scenario)


def _encoded(request: EndTxnRequest) -> bytes:
    return encode(request, 3)


def test_two_phase_commit_outlives_the_timeout_and_every_init_that_does_not_name_it() -> None:
    async def scenario(rig: Rig) -> None:
        producer = Producer(await rig.connect())
        assert await producer.init(version=6, enable2_pc=True) == 0
        identity = producer.identity
        assert await producer.add(0) == {0: 0}
        assert (await producer.write(0, b"a")).error_code == 0
        other = Producer(producer.client)
        for version in (0, 4, 5, 6):
            assert await other.init(version=version) == E.CONCURRENT_TRANSACTIONS
        assert await other.init(version=6, enable2_pc=True) == E.CONCURRENT_TRANSACTIONS
        assert await stored(rig) == ["a"]
        (found,) = (
            await producer.client.ask(65, DescribeTransactionsRequest(transactional_ids=[producer.name]))
        ).transaction_states
        assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 2**31 - 1)
        assert await producer.end(version=5) == 0
        assert await stored(rig) == ["a", "commit"]
        assert await other.init(version=6, enable2_pc=True) == 0  # nothing is open any more
        assert other.identity.epoch == identity.epoch + 2

    play(scenario)


def test_an_init_that_names_a_transaction_with_two_phase_commit_aborts_it() -> None:
    async def scenario(rig: Rig) -> None:
        producer = Producer(await rig.connect())
        assert await producer.init(version=6, enable2_pc=True) == 0
        identity = producer.identity
        assert await producer.add(0) == {0: 0}
        assert (await producer.write(0, b"a")).error_code == 0
        named = {"producer_id": identity.producer_id, "producer_epoch": identity.epoch}
        assert await producer.init(version=5, **named) == 0
        assert await stored(rig) == ["a", "abort"]
        zombie = Producer(producer.client)
        zombie.identity = identity
        assert await zombie.end() == E.PRODUCER_FENCED

    play(scenario)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": "x", "keep_prepared_txn": True}, E.UNSUPPORTED_VERSION),
        ({"transactional_id": "x", "keep_prepared_txn": True, "enable2_pc": True}, E.UNSUPPORTED_VERSION),
        ({"transactional_id": None, "enable2_pc": True}, E.INVALID_REQUEST),
        ({"transactional_id": "x", "enable2_pc": True, "producer_id": 7}, E.INVALID_REQUEST),
    ],
)
def test_what_two_phase_commit_does_not_have_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        answer = await client.ask(22, InitProducerIdRequest(**fields), version=6)
        assert (answer.error_code, answer.producer_id) == (code, -1)

    play(scenario)


def test_a_transaction_that_is_open_is_prepared_and_keeps_its_identity() -> None:
    async def scenario(rig: Rig) -> None:
        producer = await connect(rig)
        assert await producer.add(0) == {0: 0}
        assert (await producer.write(0, b"a")).error_code == 0
        request = InitProducerIdRequest(
            transactional_id=producer.name,
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.epoch,
            enable2_pc=True,
            keep_prepared_txn=True,
        )
        for _ in range(2):
            answer = await producer.client.ask(22, request, version=6)
            assert answer.error_code == 0
            assert (answer.producer_id, answer.producer_epoch) == producer.identity
            ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
            assert ongoing == producer.identity
        other = Producer(producer.client)
        assert await other.init() == E.CONCURRENT_TRANSACTIONS
        assert await producer.end() == 0
        assert await stored(rig) == ["a", "commit"]
        assert (await producer.client.ask(22, request, version=6)).error_code == E.INVALID_TXN_STATE
        assert await other.init() == 0
        assert (await producer.client.ask(22, request, version=6)).error_code == E.PRODUCER_FENCED

    play(scenario)
