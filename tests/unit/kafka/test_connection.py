"""One connection over a real loopback socket, on both event loops: order, bounds, and what ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct

import pytest
from tests.unit.kafka.rig import TOPIC, Client, Rig, batch, fetch_body, play, produce_body

from tailrace.kafka import KafkaConfig
from tailrace.kafka.handlers import metadata, produce
from tailrace.model import ErrorCode, StorageError
from tailrace.net import RequestBudget
from tailrace.wire.kafka import (
    APIS,
    FETCH,
    PRODUCE,
    decode,
    encode,
    read_fetch_response,
    read_produce_response,
    write_request,
)
from tailrace.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

METADATA = 3
JOIN_GROUP = 11
API_VERSIONS = 18
both_loops = pytest.mark.parametrize("uv", [False, True], ids=["asyncio", "uvloop"])


def metadata_body() -> bytes:
    return encode(MetadataRequest(topics=[]), 9)


async def is_alive(client: Client) -> bool:
    answer = decode(MetadataResponse, 9, await client.call(METADATA, 9, metadata_body()))
    return answer.controller_id == 1


@both_loops
def test_replies_leave_in_request_order_though_a_later_one_is_ready_first(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log(0).hold()
        waiting = client.send(PRODUCE, 9, produce_body({0: batch()}))
        ready = client.send(PRODUCE, 9, produce_body({1: batch()}))
        third = client.send(METADATA, 9, metadata_body())
        await rig.wait_until(lambda: rig.log(1).end_offset == 1)  # all were taken: order is fixed
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.05)
        rig.log(0).settle()
        assert (await client.receive(PRODUCE, 9))[0] == waiting
        assert (await client.receive(PRODUCE, 9))[0] == ready
        assert (await client.receive(METADATA, 9))[0] == third

    play(scenario, uv=uv)


@both_loops
def test_pipelined_requests_are_applied_in_order(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        sent = [client.send(PRODUCE, 9, produce_body({0: batch(b"%d" % n)})) for n in range(500)]
        offsets = []
        for expected in sent:
            found, body = await client.receive(PRODUCE, 9)
            assert found == expected
            offsets.append(read_produce_response(body, 9).topics[0][1][0].base_offset)
        assert offsets == list(range(500))

    play(scenario, uv=uv)


@both_loops
def test_a_request_may_arrive_byte_by_byte(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        frame = write_request(PRODUCE, 9, 1, "tests", produce_body({0: batch(b"slow")}))
        for at in range(len(frame)):
            client.writer.write(frame[at : at + 1])
            await asyncio.sleep(0)
        found, body = await client.receive(PRODUCE, 9)
        assert found == 1 and read_produce_response(body, 9).topics[0][1][0].error_code == 0

    play(scenario, uv=uv)


@both_loops
def test_a_large_request_is_stored_as_it_was_sent(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        values = [bytes([n]) * 300_000 for n in range(3)]
        for value in values:
            client.send(PRODUCE, 9, produce_body({0: batch(value)}))
        for _ in values:
            await client.receive(PRODUCE, 9)
        body = await client.call(FETCH, 12, fetch_body({0: 0}))
        records = read_fetch_response(body, 12).topics[0][1][0].records
        assert records is not None
        for value in values:
            assert value in bytes(records)

    play(scenario, uv=uv)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        b"GOT / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhi", 8, 999, 0, 1),  # no such API
        struct.pack(">ihhih", 10, PRODUCE, 2, 1, -1),  # advertised, not served
        struct.pack(">ihhih", 10, METADATA, 99, 1, -1),
        struct.pack(">ihhih", 10, PRODUCE, 9, 1, 30_000),  # a client id past the end
        write_request(PRODUCE, 9, 1, "tests", b"\x00\x00"),
        write_request(FETCH, 12, 1, "tests", b"\xff" * 40),
        write_request(METADATA, 9, 1, "tests", b"\xff\xff\xff\xff\x0f"),
        write_request(
            PRODUCE,
            9,
            1,
            "tests",
            produce_body({0: batch()}, topic="\u00e9").replace(b"\xc3\xa9", b"\xff\xff"),
        ),
    ],
)
def test_a_client_that_breaks_the_protocol_is_let_go_and_others_are_not(frame: bytes) -> None:
    async def scenario(rig: Rig) -> None:
        neighbour, offender = await rig.connect(), await rig.connect()
        rig.log(0).hold()
        neighbour.send(PRODUCE, 9, produce_body({0: batch()}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        offender.writer.write(frame)
        assert await offender.wait_closed() == b""
        rig.log(0).settle()
        await neighbour.receive(PRODUCE, 9)
        assert await is_alive(neighbour)
        await rig.wait_until(lambda: rig.listener.counters.connections == 1)
        assert rig.listener.budget.used == 0

    play(scenario)


def test_what_was_asked_before_the_breach_is_answered() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        good = write_request(PRODUCE, 9, 1, "tests", produce_body({0: batch()}))
        client.writer.write(good + struct.pack(">i", -5))
        assert (await client.receive(PRODUCE, 9))[0] == 1
        assert await client.wait_closed() == b""
        assert rig.log(0).end_offset == 1

    play(scenario)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_v0_and_the_connection_goes_on(
    version: int,
) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.writer.write(
            struct.pack(">ihhi", 8 + 9, API_VERSIONS, version, 77) + b"\x00\x03abc\x00\x01\x02\x03"
        )
        size = int.from_bytes(await client.reader.readexactly(4), "big")
        reply = await client.reader.readexactly(size)
        assert reply[:4] == struct.pack(">i", 77)
        answer = decode(ApiVersionsResponse, 0, reply[4:])
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [(18, 0, 4)]
        assert await is_alive(client)

    play(scenario)


def test_api_versions_has_the_plain_header_in_every_version() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for version in range(5):
            request = ApiVersionsRequest(client_software_name="x", client_software_version="1.0")
            answer = await client.ask(API_VERSIONS, request, version=version)
            assert answer.error_code == 0
            assert {key.api_key: key.min_version for key in answer.api_keys}[PRODUCE] == 0

    play(scenario)


@both_loops
def test_without_acks_nothing_is_answered(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for acks in (0, 0, 0):
            client.send(PRODUCE, 9, produce_body({0: batch()}, acks=acks))
        asked = client.send(METADATA, 9, metadata_body())
        assert (await client.receive(METADATA, 9))[0] == asked
        assert rig.log(0).end_offset == 3 and rig.listener.budget.used == 0

    play(scenario, uv=uv)


def test_without_acks_an_error_closes_the_connection() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.send(PRODUCE, 9, produce_body({9: batch()}, acks=0))
        assert await client.wait_closed() == b""

    play(scenario)


def test_without_acks_bytes_count_until_they_are_durable() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log(0).hold()
        client.send(PRODUCE, 9, produce_body({0: batch()}, acks=0))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        assert rig.listener.budget.used > 0
        rig.log(0).settle()
        await rig.wait_until(lambda: rig.listener.budget.used == 0)
        assert await is_alive(client)

    play(scenario)


def test_a_bug_in_a_handler_ends_that_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    async def scenario(rig: Rig) -> None:
        victim, neighbour = await rig.connect(), await rig.connect()
        assert await is_alive(victim) and await is_alive(neighbour)
        with monkeypatch.context() as patch:
            patch.setattr(metadata, "_wants_all", fails)
            victim.send(METADATA, 9, encode(MetadataRequest(topics=None), 9))
            assert await victim.wait_closed() == b""
        assert await is_alive(neighbour)
        await rig.wait_until(lambda: rig.listener.budget.used == 0)

    with caplog.at_level(logging.ERROR):
        play(scenario)
    assert "a bug" in caplog.text and "Traceback" in caplog.text


def test_a_bug_in_a_handler_that_waits_ends_that_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        async def fails(name: str) -> None:
            await asyncio.sleep(0)
            raise ZeroDivisionError("a late bug")

        victim, neighbour = await rig.connect(), await rig.connect()
        monkeypatch.setattr(rig.broker.topics, "auto_create", fails)
        victim.send(METADATA, 1, encode(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 1))
        assert await victim.wait_closed() == b""
        assert await is_alive(neighbour)
        assert rig.listener.budget.used == 0

    with caplog.at_level(logging.ERROR):
        play(scenario)
    assert "a late bug" in caplog.text


def test_storage_trouble_is_an_answer() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log(0).hold()
        asked = client.send(PRODUCE, 9, produce_body({0: batch(), 1: batch()}))
        await rig.wait_until(lambda: rig.log(1).end_offset == 1)
        rig.log(0).fail(StorageError("sync", "/data", "Input/output error"))
        found, body = await client.receive(PRODUCE, 9)
        ((_, (first, second)),) = read_produce_response(body, 9).topics
        assert found == asked
        assert (first.error_code, first.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (second.error_code, second.base_offset) == (ErrorCode.NONE, 0)

    play(scenario)


def test_a_produce_is_answered_at_its_timeout_and_the_connection_goes_on() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log(0).hold()
        slow = client.send(PRODUCE, 9, produce_body({0: batch()}, timeout_ms=60_000))
        fast = client.send(PRODUCE, 9, produce_body({0: batch(), 1: batch()}, timeout_ms=20))
        await rig.wait_until(lambda: rig.log(1).end_offset == 1)
        assert rig.listener.service.produced.requests == 0, "counted when their answers are known"
        await asyncio.sleep(0.05)
        rig.log(0).settle(1)  # the first one
        assert (await client.receive(PRODUCE, 9))[0] == slow
        found, body = await client.receive(PRODUCE, 9)
        ((_, (late, fine)),) = read_produce_response(body, 9).topics
        assert found == fast
        assert (late.error_code, late.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        assert (fine.error_code, fine.base_offset) == (ErrorCode.NONE, 0)
        tally = rig.listener.service.produced
        assert (tally.requests, tally.errors) == (2, {"REQUEST_TIMED_OUT": 1})
        assert rig.listener.budget.used == 0
        assert await is_alive(client)

    play(scenario)


@both_loops
def test_at_the_bound_of_unanswered_requests_no_more_are_taken(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log(0).hold()
        for _ in range(20):
            client.send(PRODUCE, 9, produce_body({0: batch()}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 5)
        await asyncio.sleep(0.02)
        assert rig.log(0).end_offset == 5
        rig.log(0).settle(1)
        await rig.wait_until(lambda: rig.log(0).end_offset == 6)
        for end in range(2, 21):
            rig.log(0).settle(end)
            await client.receive(PRODUCE, 9)
        await client.receive(PRODUCE, 9)
        assert rig.log(0).end_offset == 20 and rig.listener.budget.used == 0

    play(scenario, config=KafkaConfig(unanswered_requests_max=5), uv=uv)


def test_requests_over_the_bound_that_came_in_one_piece_are_all_answered() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        wanted = [client.send(METADATA, 9, metadata_body()) for _ in range(10)]
        assert [(await client.receive(METADATA, 9))[0] for _ in wanted] == wanted

    play(scenario, config=KafkaConfig(unanswered_requests_max=3))


def test_at_the_bound_of_unanswered_bytes_no_more_are_taken() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log(0).hold()
        for _ in range(10):
            client.send(PRODUCE, 9, produce_body({0: batch(b"x" * 600)}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 2)
        await asyncio.sleep(0.02)
        assert rig.log(0).end_offset == 2
        while rig.log(0).end_offset < 10:
            rig.log(0).settle()
            await asyncio.sleep(0)
        rig.log(0).settle()
        for _ in range(10):
            await client.receive(PRODUCE, 9)

    play(scenario, config=KafkaConfig(unanswered_bytes_max=1000))


@both_loops
def test_the_nodes_budget_stops_reading_and_goes_on_in_order(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        first, second, third = [await rig.connect() for _ in range(3)]
        rig.log(0).hold()
        first.send(PRODUCE, 9, produce_body({0: batch(b"1" * 700)}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        second.send(PRODUCE, 9, produce_body({0: batch(b"2" * 700)}))
        await rig.wait_until(lambda: rig.listener.budget.exhausted)
        third.send(PRODUCE, 9, produce_body({0: batch(b"3")}))
        await asyncio.sleep(0.02)
        assert rig.log(0).end_offset == 1  # not even the small one: nobody overtakes
        rig.log(0).settle()
        await rig.wait_until(lambda: rig.log(0).end_offset == 3)
        rig.log(0).settle()
        offsets = []
        for client in (first, second, third):
            body = (await client.receive(PRODUCE, 9))[1]
            offsets.append(read_produce_response(body, 9).topics[0][1][0].base_offset)
        assert offsets == [0, 1, 2]
        assert rig.listener.budget.used == 0

    play(scenario, budget=RequestBudget(1000), uv=uv)


def test_who_leaves_while_waiting_for_budget_leaves_nothing_behind() -> None:
    async def scenario(rig: Rig) -> None:
        first, second, third = [await rig.connect() for _ in range(3)]
        rig.log(0).hold()
        first.send(PRODUCE, 9, produce_body({0: batch(b"1" * 700)}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        second.send(PRODUCE, 9, produce_body({0: batch(b"2" * 700)}))
        await rig.wait_until(lambda: rig.listener.budget.exhausted)
        rig.connection_of(second).abort()
        await second.wait_closed()
        assert not rig.listener.budget.exhausted
        rig.log(0).settle()
        await first.receive(PRODUCE, 9)
        assert await is_alive(third) and rig.log(0).end_offset == 1
        await rig.wait_until(lambda: rig.listener.budget.used == 0)

    play(scenario, budget=RequestBudget(1000))


def test_who_leaves_with_a_batch_under_way_counts_until_it_is_durable() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log(0).hold()
        client.send(PRODUCE, 9, produce_body({0: batch()}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        client.close()
        await rig.wait_until(lambda: rig.listener.counters.connections == 0)
        assert rig.listener.budget.used > 0
        rig.log(0).settle()
        await rig.wait_until(lambda: rig.listener.budget.used == 0)

    play(scenario)


def test_who_leaves_in_the_middle_of_a_frame_leaves_nothing_behind() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.writer.write(struct.pack(">i", 50_000) + b"x" * 1000)
        await rig.wait_until(lambda: rig.listener.budget.used == 50_000)
        client.close()
        await rig.wait_until(lambda: rig.listener.budget.used == 0)

    play(scenario)


@both_loops
def test_the_turn_ends_and_goes_on(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for _ in range(100):
            client.send(PRODUCE, 9, produce_body({0: batch(b"x" * 400)}))
        for offset in range(100):
            body = (await client.receive(PRODUCE, 9))[1]
            assert read_produce_response(body, 9).topics[0][1][0].base_offset == offset

    play(scenario, config=KafkaConfig(turn_requests=3, turn_bytes=1000), uv=uv)


@both_loops
def test_a_client_that_does_not_read_is_not_read_either(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        feeder = await rig.connect()
        for _ in range(20):
            await feeder.produce(batch(b"x" * 1_000_000))
        client = await rig.connect()
        client.stop_reading()
        for _ in range(10):
            client.send(FETCH, 12, fetch_body({0: 0}, max_bytes=20_000_000, partition_max_bytes=20_000_000))
        connection = rig.connection_of(client)
        await rig.wait_until(lambda: connection.is_stalled)
        await asyncio.sleep(0.05)
        assert connection.buffered_bytes <= 8 << 20
        unread = rig.listener.budget.unread
        assert unread.bytes == unread.node.bytes > 0, "it counts towards the bound of the node"
        assert await is_alive(feeder)
        client.go_on_reading()
        for _ in range(10):
            body = (await client.receive(FETCH, 12))[1]
            records = read_fetch_response(body, 12).topics[0][1][0].records
            assert records is not None and len(records) > 15_000_000

    play(scenario, uv=uv)


def test_requests_wait_for_a_long_poll_before_them() -> None:
    async def scenario(rig: Rig) -> None:
        client, producer = await rig.connect(), await rig.connect()
        poll = client.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=20_000))
        write = client.send(PRODUCE, 9, produce_body({1: batch()}))
        await asyncio.sleep(0.05)
        assert rig.log(1).end_offset == 0  # as behind Kafka's muted channel
        await producer.produce(batch())
        assert (await client.receive(FETCH, 12))[0] == poll
        assert (await client.receive(PRODUCE, 9))[0] == write
        assert rig.log(1).end_offset == 1

    play(scenario)


@both_loops
def test_a_client_that_leaves_during_a_long_poll_is_noticed(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=20_000))
        partition = rig.partition(0)
        await rig.wait_until(lambda: len(partition.waiters) == 1)
        client.close()
        await rig.wait_until(lambda: rig.listener.counters.connections == 0)
        assert len(partition.waiters) == 0 and rig.listener.budget.used == 0

    play(scenario, uv=uv)


def test_a_bug_in_a_long_poll_ends_that_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        def fails(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a bug while waiting")

        victim, neighbour = await rig.connect(), await rig.connect()
        victim.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=20_000))
        partition = rig.partition(0)
        await rig.wait_until(lambda: len(partition.waiters) == 1)
        monkeypatch.setattr(rig.log(0), "read_nowait", fails)
        await neighbour.produce(batch())
        assert await victim.wait_closed() == b""
        assert len(partition.waiters) == 0 and rig.listener.budget.used == 0
        assert await is_alive(neighbour)

    with caplog.at_level(logging.ERROR):
        play(scenario)
    assert "a bug while waiting" in caplog.text


def test_a_bug_in_a_reply_ends_that_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a bug while answering")

    async def scenario(rig: Rig) -> None:
        victim, neighbour = await rig.connect(), await rig.connect()
        rig.log(0).hold()
        victim.send(PRODUCE, 9, produce_body({0: batch()}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        with monkeypatch.context() as patch:
            patch.setattr(produce, "_fill", fails)
            rig.log(0).settle()
            assert await victim.wait_closed() == b""
        await rig.wait_until(lambda: rig.listener.counters.connections == 1)
        assert rig.listener.budget.used == 0
        assert await is_alive(neighbour)

    with caplog.at_level(logging.ERROR):
        play(scenario)
    assert "a bug while answering" in caplog.text


def test_a_request_over_the_limit_of_its_api_is_refused_at_its_first_bytes() -> None:
    async def scenario(rig: Rig) -> None:
        client, other = await rig.connect(), await rig.connect()
        client.writer.write(struct.pack(">ih", APIS[METADATA].request_bytes_max + 1, METADATA))
        assert await client.wait_closed() == b""
        assert rig.listener.budget.used == 0
        other.writer.write(struct.pack(">ih", APIS[METADATA].request_bytes_max + 1, PRODUCE))
        await rig.wait_until(lambda: rig.listener.budget.used > 0)

    play(scenario)


def test_a_crowd_of_long_polls_leaves_the_budget_to_those_who_produce() -> None:
    async def scenario(rig: Rig) -> None:
        readers = [await rig.connect() for _ in range(20)]
        for reader in readers:
            reader.send(FETCH, 12, fetch_body({0: 0, 1: 0}, max_wait_ms=25_000))
        await rig.wait_until(lambda: len(rig.partition(0).waiters) == len(readers))
        producer = await rig.connect()
        assert (await producer.produce(batch())).error_code == 0
        for reader in readers:
            await reader.receive(FETCH, 12)
        assert rig.listener.budget.used == 0

    play(scenario, budget=RequestBudget(300))


def test_members_that_wait_for_a_rebalance_leave_the_budget_to_others() -> None:
    async def scenario(rig: Rig) -> None:
        for number in range(3):
            member = await rig.connect()
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m" * 500)]
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=protocols,
            )
            member.send(JOIN_GROUP, 3, encode(request, 3))
            await rig.wait_until(lambda number=number: _waiting(rig) == number + 1)  # type: ignore[misc]
        producer = await rig.connect()
        assert (await producer.produce(batch())).error_code == 0
        await rig.broker.groups.close()
        await rig.wait_until(lambda: rig.listener.budget.used == 0)

    play(
        scenario,
        budget=RequestBudget(1000),
        values={"group.initial.rebalance.delay.ms": "60000"},
    )


def _waiting(rig: Rig) -> int:
    return len(rig.broker.groups._parked)


@pytest.mark.parametrize("gone", ["left", "timed out", "refused"])
def test_a_batch_that_fails_when_nobody_waits_for_it_makes_no_noise(
    gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A future whose error nobody looks at is complained of by asyncio when it is collected."""

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        log = rig.log(0)
        log.hold()
        options = {"timed out": {"timeout_ms": 1}, "refused": {"acks": 0}}.get(gone, {})
        partitions = {0: batch(), 9: batch()} if gone == "refused" else {0: batch()}
        client.send(PRODUCE, 9, produce_body(partitions, **options))  # type: ignore[arg-type]
        await rig.wait_until(lambda: log.end_offset == 1)
        if gone == "timed out":
            await client.receive(PRODUCE, 9)
        elif gone == "left":
            client.close()
        else:
            await client.wait_closed()
        if gone != "timed out":
            await rig.wait_until(lambda: rig.listener.counters.connections == 0)
        log.fail(StorageError("use", "log", "deleted"))
        await rig.wait_until(lambda: rig.listener.budget.used == 0)
        await asyncio.sleep(0)
        gc.collect()

    play(scenario)
    assert "never retrieved" not in caplog.text


def test_a_topic_that_is_deleted_answers_the_batches_under_way() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        log = rig.log(0)
        log.hold()
        client.send(PRODUCE, 9, produce_body({0: batch()}))
        await rig.wait_until(lambda: log.end_offset == 1)
        await rig.broker.delete_topic(TOPIC)
        log.fail(StorageError("use", "log", "the log is deleted"))
        ((_, (lost,)),) = read_produce_response((await client.receive(PRODUCE, 9))[1], 9).topics
        assert (lost.error_code, lost.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (await client.produce(batch())).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario)


def test_a_version_that_nobody_serves_is_not_taken_for_another_api() -> None:
    """Both are two bytes wide: a key and a version must not run into each other where they are looked up."""

    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        body = fetch_body({0: 0}, version=12)
        await client.call(FETCH, 12, body)  # from now on it is known where to find it
        frame = bytearray(write_request(FETCH, 12, 7, "tests", body))
        struct.pack_into(">hh", frame, 4, PRODUCE, FETCH << 8 | 12)
        client.writer.write(frame)
        assert await client.wait_closed() == b""
        assert rig.listener.counters.protocol_errors == 1

    play(scenario)
