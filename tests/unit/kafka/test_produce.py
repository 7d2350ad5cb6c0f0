"""Produce over a real connection: what is checked of a batch, what each partition answers, what is kept."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.kafka.rig import NOW_MS, TOPIC, Rig, batch, only, play, produce_body

from tailrace.broker import NewTopic
from tailrace.broker.partition import check_keys as really_check_keys
from tailrace.kafka.handlers import produce
from tailrace.model import ErrorCode
from tailrace.records import Batch, Compression, build_batch, iter_batches, read_batch
from tailrace.wire.kafka import PRODUCE, read_produce_response, write_produce_request
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def idempotent(*, transactional: bool = False) -> bytes:
    """The first batch of a producer with an id."""
    return bytes(
        build_batch(
            [(NOW_MS, None, b"v", ())],
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
    )


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [-1, 1])
def test_every_version_is_answered_with_the_offset(version: int, acks: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for offset in (0, 2):
            result = await client.produce(batch(b"a", b"b"), version=version, acks=acks)
            assert (result.error_code, result.base_offset, result.log_append_time_ms) == (0, offset, -1)
            assert result.log_start_offset == (0 if version >= 5 else -1)

    play(scenario)


def test_several_partitions_answer_for_themselves() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.produce(batch(), partition=1)
        broken = changed(batch(), 61, b"\xff")
        body = produce_body({0: broken, 1: batch(), 9: batch()})
        answer = read_produce_response(await client.call(PRODUCE, 9, body), 9)
        results = [(result.index, result.error_code, result.base_offset) for result in answer.topics[0][1]]
        assert results == [
            (0, ErrorCode.CORRUPT_MESSAGE, -1),
            (1, ErrorCode.NONE, 1),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]
        assert answer.topics[0][1][0].error_message is not None

    play(scenario)


def test_several_topics_answer_in_the_order_of_the_request() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await rig.broker.topics.create(NewTopic(name="b-topic", partitions=1))
        topics = {"b-topic": {0: batch()}, "nowhere": {0: batch()}, TOPIC: {0: batch(), 1: batch()}}
        body = b"".join(
            write_produce_request(9, transactional_id=None, acks=-1, timeout_ms=1000, topics=topics)
        )
        answer = read_produce_response(await client.call(PRODUCE, 9, body), 9)
        found = [(name, [result.error_code for result in results]) for name, results in answer.topics]
        assert found == [("b-topic", [0]), ("nowhere", [3]), (TOPIC, [0, 0])]

    play(scenario)


GOOD = batch(b"value")


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b"short", ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (changed(GOOD, 16, b"\x01"), ErrorCode.INVALID_RECORD),  # an older format
        (changed(GOOD, 16, b"\x07"), ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, 17, b"\0\0\0\0"), ErrorCode.CORRUPT_MESSAGE),  # its checksum
        (batch(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["none", "short", "cut", "two", "format 1", "format 7", "crc", "large"],
)
def test_a_bad_batch_is_refused_and_not_stored(records: bytes, code: ErrorCode) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        result = await client.produce(records)
        assert (result.error_code, result.base_offset) == (code, -1)
        assert rig.log().end_offset == 0 and rig.listener.budget.used == 0
        assert (await client.produce(GOOD)).base_offset == 0

    play(scenario)


def test_a_transactional_batch_needs_its_transactional_id() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        result = await client.produce(idempotent(transactional=True))
        assert result.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        result = await client.produce(idempotent(transactional=True), transactional_id="payments")
        assert result.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert rig.log().end_offset == 0

    play(scenario)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__tailrace_cursors"])
def test_what_the_broker_keeps_for_itself_is_not_written_by_clients(name: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.broker.topics.create(NewTopic(name=name, partitions=1, internal=True))
        client = await rig.connect()
        result = await client.produce(batch(), topic=name)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert rig.log(topic=name).end_offset == 0

    play(scenario)


def test_what_pipelines_tell_is_written_by_clients() -> None:
    async def scenario(rig: Rig) -> None:
        name = "__tailrace_pipelines"
        await rig.broker.topics.create(
            NewTopic(name=name, partitions=1, configs={"cleanup.policy": "compact"})
        )
        client = await rig.connect()
        keyed = bytes(build_batch([(NOW_MS, b"run", b"{}", ())]))
        assert (await client.produce(keyed, topic=name)).error_code == 0

    play(scenario)


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_mean_nothing_are_refused(acks: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        assert (await client.produce(batch(), acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert rig.log().end_offset == 0

    play(scenario)


def test_a_repeated_batch_of_an_idempotent_producer_is_stored_once() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        data = idempotent()
        assert [(await client.produce(data)).base_offset for _ in range(3)] == [0, 0, 0]
        assert rig.log().end_offset == 1

    play(scenario)


def test_a_repeated_batch_is_acknowledged_when_the_first_one_is_durable() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        data = idempotent()
        rig.log().hold()
        for _ in range(2):
            client.send(PRODUCE, 9, produce_body({0: data}))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.03)
        rig.log().settle()
        for _ in range(2):
            body = (await client.receive(PRODUCE, 9))[1]
            assert read_produce_response(body, 9).topics[0][1][0].base_offset == 0

    play(scenario)


def test_small_batches_own_their_memory_and_large_ones_share_the_frames() -> None:
    """A batch must neither change under the log when the next request arrives nor pin a foreign buffer."""

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        small, large = batch(b"s" * 100), batch(b"L" * 300_000)
        body = produce_body({0: small, 1: large})
        await client.call(PRODUCE, 9, body)
        await client.produce(batch(b"t" * 100))
        for partition, sent in ((0, small), (1, large)):
            (extent,) = rig.partition(partition).read_nowait(0, bytes_max=1).extents  # type: ignore[arg-type, union-attr]
            view = extent.load_nowait()
            assert view is not None
            assert bytes(view[21:]) == sent[21:]
            assert memoryview(view.obj).nbytes <= 2 * len(sent) + 4096

    play(scenario)


def test_a_batch_stays_as_it_was_when_the_next_one_is_received() -> None:
    """Batches of half the receive buffer: too large for the engine to copy them for reasons of its own."""

    async def scenario(rig: Rig) -> None:
        client, other = await rig.connect(), await rig.connect()
        sent = [batch(bytes([letter]) * 31_000) for letter in b"abc"]
        for data, sender in zip(sent, (client, other, client), strict=True):
            await sender.produce(data)
        records = only(await client.fetch({0: 0})).records or b""
        assert [found.data[21:] for found in iter_batches(records)] == [data[21:] for data in sent]

    play(scenario)


def test_append_time_is_told() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        stamped = NewTopic(name="stamped", configs={"message.timestamp.type": "LogAppendTime"})
        await rig.broker.topics.create(stamped)
        result = await client.produce(batch(timestamp=5), topic="stamped")
        assert result.log_append_time_ms == rig.broker.clock.now_ms()
        stored = read_batch(only(await client.fetch({0: 0}, topic="stamped")).records or b"")
        assert stored.is_log_append_time and stored.check_crc()

    play(scenario)


def test_an_error_message_is_told_from_version_8_on() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        told = await client.produce(batch(), partition=9, version=8)
        assert told.error_message is not None and "9" in told.error_message
        assert (await client.produce(batch(), partition=9, version=7)).error_message is None

    play(scenario)


@pytest.mark.parametrize("version", [3, 7, 8, 9])
def test_records_without_a_key_are_named_to_the_sender_of_a_compacted_topic(version: int) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await rig.broker.topics.create(NewTopic(name="compacted", configs={"cleanup.policy": "compact"}))
        mixed = bytes(build_batch([(NOW_MS, key, b"v", ()) for key in (b"a", None, b"b", None)]))
        result = await client.produce(mixed, topic="compacted", version=version)
        assert result.error_code == ErrorCode.INVALID_RECORD
        if version < 8:
            assert (result.error_message, result.record_errors) == (None, ())
        else:
            assert result.error_message == "2 of 4 records have no key, which a compacted topic needs"
            assert [number for number, _ in result.record_errors] == [1, 3]
            assert all("no key" in (text or "") for _, text in result.record_errors)
        assert rig.log(topic="compacted").end_offset == 0

    play(scenario)


def test_a_batch_of_many_bad_records_has_a_bounded_answer() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await rig.broker.topics.create(NewTopic(name="compacted", configs={"cleanup.policy": "compact"}))
        keyless = bytes(build_batch([(NOW_MS, None, None, ())] * 10_001))
        result = await client.produce(keyless, topic="compacted")
        assert result.error_message is not None and result.error_message.startswith("10001 of 10001 records")
        assert [number for number, _ in result.record_errors] == list(range(10_000))

    play(scenario)


def test_append_time_counts_for_every_record_also_when_it_is_looked_for() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        configs = {"message.timestamp.type": "LogAppendTime"}
        await rig.broker.topics.create(NewTopic(name="stamped", configs=configs))
        first_ms = rig.broker.clock.now_ms()
        await client.produce(batch(b"a", b"b", timestamp=5), topic="stamped")
        rig.storage.clock.advance(1000)
        await client.produce(batch(b"c", timestamp=first_ms + 10**9), topic="stamped")
        stored = list(iter_batches(only(await client.fetch({0: 0}, topic="stamped")).records or b""))
        times = [record.timestamp for each in stored for record in each.records()]
        assert times == [first_ms, first_ms, first_ms + 1000]
        assert [each.max_timestamp for each in stored] == [first_ms, first_ms + 1000]
        assert all(each.check_crc() for each in stored)
        for sought, offset in ((5, 0), (first_ms, 0), (first_ms + 1, 2), (first_ms + 1001, -1)):
            asked = ListOffsetsPartition(partition_index=0, timestamp=sought)
            topics = [ListOffsetsTopic(name="stamped", partitions=[asked])]
            answer = await client.ask(2, ListOffsetsRequest(replica_id=-1, topics=topics))
            assert answer.topics[0].partitions[0].offset == offset

    play(scenario)


def test_only_the_broker_says_when_something_was_appended() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        claimed = read_batch(bytearray(batch()))
        claimed.stamp_append_time(5)
        result = await client.produce(bytes(claimed.data))
        assert result.error_code == ErrorCode.INVALID_TIMESTAMP
        assert rig.log().end_offset == 0
        configs = {"message.timestamp.type": "LogAppendTime"}
        await rig.broker.topics.create(NewTopic(name="stamped", configs=configs))
        assert (await client.produce(bytes(claimed.data), topic="stamped")).error_code == 0

    play(scenario)


# ---- compacted topics, whose batches are looked through


async def compacted(rig: Rig) -> str:
    configs = {"cleanup.policy": "compact"}
    return (await rig.broker.topics.create(NewTopic(name="keyed", partitions=2, configs=configs))).name


def keyed(count: int, *, missing: int = -1, compression: Compression = Compression.NONE) -> bytes:
    """A batch in which every record has a key, but for one."""
    records = [(NOW_MS, None if n == missing else b"%d" % n, b"v", ()) for n in range(count)]
    return bytes(build_batch(records, compression=compression))


LARGE_BATCHES = pytest.mark.parametrize(
    ("count", "compression"),
    [(5_000, Compression.NONE), (2_000, Compression.ZSTD), (2_000, Compression.GZIP)],
)


@LARGE_BATCHES
def test_a_large_batch_for_a_compacted_topic_is_looked_through_and_stored_in_order(
    count: int, compression: Compression
) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await compacted(rig)
        client = await rig.connect()
        bodies = [
            produce_body({0: keyed(count, compression=compression)}, topic=topic),
            produce_body({0: keyed(1)}, topic=topic),
            produce_body({0: keyed(count, missing=count - 1, compression=compression)}, topic=topic),
            produce_body({0: keyed(count, compression=compression)}, topic=topic),
        ]
        for body in bodies:
            client.send(PRODUCE, 9, body)
        found = []
        for _ in bodies:
            ((_, (result,)),) = read_produce_response((await client.receive(PRODUCE, 9))[1], 9).topics
            found.append((result.error_code, result.base_offset))
        assert found == [(0, 0), (0, count), (ErrorCode.INVALID_RECORD, -1), (0, count + 1)]
        assert rig.listener.budget.used == 0

    play(scenario)


def hold_checks(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Batch], asyncio.Event]:
    """The batches that are being looked through, and the event that lets them go on."""
    looked_at: list[Batch] = []
    go_on = asyncio.Event()

    async def check_keys(given: Batch) -> None:
        looked_at.append(given)
        await go_on.wait()
        await really_check_keys(given)

    monkeypatch.setattr(produce, "check_keys", check_keys)
    return looked_at, go_on


@LARGE_BATCHES
def test_others_are_served_while_a_batch_for_a_compacted_topic_is_looked_through(
    count: int, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        looked_at, go_on = hold_checks(monkeypatch)
        topic = await compacted(rig)
        slow, other = await rig.connect(), await rig.connect()
        slow.send(PRODUCE, 9, produce_body({0: keyed(count, compression=compression)}, topic=topic))
        slow.send(PRODUCE, 9, produce_body({0: keyed(1)}, topic=topic))
        await rig.wait_until(lambda: len(looked_at) == 1)
        assert (await other.produce(batch())).error_code == 0
        assert rig.log(0, topic).end_offset == 0, "the next request of its connection waits"
        go_on.set()
        for expected in (0, count):
            ((_, (result,)),) = read_produce_response((await slow.receive(PRODUCE, 9))[1], 9).topics
            assert (result.error_code, result.base_offset) == (0, expected)

    play(scenario)


def test_without_acks_a_large_batch_with_a_record_without_a_key_closes_the_connection() -> None:
    async def scenario(rig: Rig) -> None:
        topic = await compacted(rig)
        client = await rig.connect()
        client.send(PRODUCE, 9, produce_body({0: keyed(5_000)}, topic=topic, acks=0))
        await rig.wait_until(lambda: rig.log(0, topic).end_offset == 5_000)
        client.send(PRODUCE, 9, produce_body({0: keyed(5_000, missing=3)}, topic=topic, acks=0))
        await client.wait_closed()
        await rig.wait_until(lambda: rig.listener.budget.used == 0)
        assert rig.log(0, topic).end_offset == 5_000

    play(scenario)


def test_a_client_that_leaves_while_its_batch_is_looked_through_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(rig: Rig) -> None:
        looked_at, go_on = hold_checks(monkeypatch)
        topic = await compacted(rig)
        client = await rig.connect()
        client.send(PRODUCE, 9, produce_body({0: keyed(20_000)}, topic=topic))
        await rig.wait_until(lambda: len(looked_at) == 1)
        client.writer.transport.abort()
        await rig.wait_until(lambda: not rig.listener.connections)
        assert rig.listener.budget.used > 0
        go_on.set()
        await rig.wait_until(lambda: rig.listener.budget.used == 0)
        assert rig.log(0, topic).end_offset == 20_000

    play(scenario)
