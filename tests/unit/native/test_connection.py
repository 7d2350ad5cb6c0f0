"""One native connection over a real loopback socket, on both event loops: bounds, life, and what ends it."""

from __future__ import annotations

import asyncio
import json
import logging
import struct

import pytest
from tests.unit.native.rig import TOPIC, Client, Refused, Rig, both_loops, play, refused

from tailrace import __version__
from tailrace.broker.publishing import Publisher
from tailrace.model import ConfigError, ErrorCode
from tailrace.model.address import Address
from tailrace.native import NativeConfig, NativeListener
from tailrace.native.handlers import joining
from tailrace.net import RequestBudget
from tailrace.wire.native import Frame, MessageType, read_error, write_frame

PUBLISH = MessageType.PUBLISH
SUBSCRIBE = MessageType.SUBSCRIBE
HEARTBEAT = MessageType.HEARTBEAT
DESCRIBE = MessageType.DESCRIBE
CREATE_TOPIC = MessageType.CREATE_TOPIC
KIB = 1024


async def is_alive(client: Client) -> bool:
    return (await client.ask(DESCRIBE, _what="topics")).type == MessageType.ACK


def last_word(frames: list[Frame]) -> str:
    """The text of the ERROR with which a connection ended."""
    assert frames[-1].type == MessageType.ERROR and frames[-1].sequence == 0
    assert read_error(frames[-1]).code == ErrorCode.INVALID_REQUEST
    return read_error(frames[-1]).message


# ---- greeting


@both_loops
def test_a_client_that_introduces_itself_is_told_the_bounds(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        hello = await client.ask(HEARTBEAT, _client_id="me", _heartbeat_ms=5000)
        assert hello.type == HEARTBEAT
        assert hello.properties == {
            "_version": __version__,
            "_heartbeat_ms": "30000",
            "_dead_after_ms": "15000",
            "_frame_bytes_max": str(8 * KIB * KIB),
        }
        assert rig.connection_of(client).protocol.name.startswith("me at 127.0.0.1:")

    play(scenario, uv=uv)


def test_every_producer_gets_an_id_of_its_own() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        ids = {(await client.ask(HEARTBEAT, _producer="new")).properties["_producer"] for _ in range(3)}
        assert len(ids) == 3

    play(scenario)


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"_heartbeat_ms": "1"}, "_heartbeat_ms"),
        ({"_heartbeat_ms": "many"}, "_heartbeat_ms"),
        ({"_client_id": "x" * 256}, "_client_id"),
        ({"_producer": "old"}, "_producer"),
    ],
)
def test_an_introduction_that_makes_no_sense_is_refused(properties: dict[str, str], word: str) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        with pytest.raises(Refused) as caught:
            await client.ask(HEARTBEAT, **properties)
        refused(caught, ErrorCode.INVALID_REQUEST, word)
        assert await is_alive(client)

    play(scenario)


def test_a_login_is_refused_where_nobody_is_asked() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        with pytest.raises(Refused) as caught:
            await client.ask(MessageType.AUTH)
        refused(caught, ErrorCode.SECURITY_DISABLED, "asks nobody who it is")
        assert await is_alive(client)

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (77, ErrorCode.UNSUPPORTED_VERSION),
        (0, ErrorCode.UNSUPPORTED_VERSION),
        (1 << 31, ErrorCode.UNSUPPORTED_VERSION),
        (MessageType.DATA, ErrorCode.INVALID_REQUEST),
        (MessageType.ERROR, ErrorCode.INVALID_REQUEST),
        (MessageType.NOTICE, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_type_that_nobody_serves_is_refused_and_the_connection_goes_on(kind: int, code: ErrorCode) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        with pytest.raises(Refused) as caught:
            await client.ask(kind)
        refused(caught, code)
        assert await is_alive(client)

    play(scenario)


# ---- topics


def test_a_topic_is_made_once_and_found_again() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        settings = {"_topic": TOPIC, "_partitions": 3, "retention.ms": 5000}
        made = await client.ask(CREATE_TOPIC, **settings)
        assert made.properties["_partitions"] == "3"
        assert (await client.ask(CREATE_TOPIC, **settings)).properties == made.properties
        assert (await client.ask(CREATE_TOPIC, _topic=TOPIC)).properties == made.properties
        for other in ({"_partitions": 2}, {"retention.ms": 6000}, {"cleanup.policy": "compact"}):
            with pytest.raises(Refused) as caught:
                await client.ask(CREATE_TOPIC, **{**settings, **other})
            refused(caught, ErrorCode.TOPIC_ALREADY_EXISTS, TOPIC)
        topic = json.loads(bytes((await client.ask(DESCRIBE, _what="topic", _name=TOPIC)).body))
        assert topic["configs"] == {"message.timestamp.type": "LogAppendTime", "retention.ms": "5000"}
        assert topic["partitions"][2] == {
            "partition": 2,
            "start_offset": 0,
            "end_offset": 0,
            "start": 0,
            "end": 0,
        }
        topics = json.loads(bytes((await client.ask(DESCRIBE, _what="topics")).body))
        made_id = made.properties["_topic_id"]
        assert topics == [{"name": TOPIC, "topic_id": made_id, "id": made_id, "partitions": 3}]

    play(scenario)


def test_two_who_make_a_topic_at_once_both_succeed() -> None:
    async def scenario(rig: Rig) -> None:
        clients = [await rig.connect() for _ in range(5)]
        made = await asyncio.gather(*[client.ask(CREATE_TOPIC, _topic=TOPIC) for client in clients])
        assert len({each.properties["_topic_id"] for each in made}) == 1

    play(scenario)


@pytest.mark.parametrize(
    ("properties", "code", "word"),
    [
        ({}, ErrorCode.INVALID_REQUEST, "_topic"),
        ({"_topic": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "a b"),
        ({"_topic": "__transaction_state"}, ErrorCode.INVALID_REQUEST, "__transaction_state"),
        ({"_topic": "t", "_partitions": "0"}, ErrorCode.INVALID_REQUEST, "_partitions"),
        ({"_topic": "t", "_partitions": "999999"}, ErrorCode.INVALID_PARTITIONS, "999999"),
        ({"_topic": "t", "colour": "red"}, ErrorCode.INVALID_CONFIG, "colour"),
        ({"_topic": "t", "retention.ms": "long"}, ErrorCode.INVALID_CONFIG, "retention.ms"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(properties: dict[str, str], code: ErrorCode, word: str) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        with pytest.raises(Refused) as caught:
            await client.ask(CREATE_TOPIC, **properties)
        refused(caught, code, word)
        assert await is_alive(client)

    play(scenario)


def test_what_follows_the_making_of_a_topic_waits_for_it() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        frames = [
            client.frame(CREATE_TOPIC, {"_topic": TOPIC, "_partitions": "2"}),
            client.frame(MessageType.CREATE_SUBSCRIPTION, {"_subscription": "s", "_topic": TOPIC}),
            client.frame(SUBSCRIBE, {"_subscription": "s"}),
            client.frame(PUBLISH, {"_topic": TOPIC, "_partition": "1"}, b"x"),
        ]
        client.writer.write(b"".join(frame for _, frame in frames))
        for sequence, _ in frames:
            await client.reply(sequence)
        assert bytes((await client.data()).body) == b"x"

    play(scenario)


# ---- broken frames


def broken(kind: str) -> bytes:
    good = write_frame(PUBLISH, sequence=1, properties={"_topic": TOPIC}, body=b"x")
    return {
        "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "too long": struct.pack(">I", 8 * KIB * KIB + 1) + b"\0" * 100,
        "negative": b"\xff" * 40,
        "zero": b"\0" * 40,
        "too short": struct.pack(">I", 27) + b"\0" * 27,
        "properties past the end": good[:24] + struct.pack(">I", 1 << 30) + good[28:],
        "body past the end": good[:-5] + struct.pack(">I", 99) + b"x",
        "negative sequence": good[:8] + b"\xff" * 8 + good[16:],
        "not UTF-8": write_frame(PUBLISH, sequence=1, properties=b"_topic=\xff\0"),
        "no NUL": write_frame(PUBLISH, sequence=1, properties=b"_topic=x"),
        "twice": write_frame(PUBLISH, sequence=1, properties=b"a=1\0a=2\0"),
        "no key": write_frame(PUBLISH, sequence=1, properties=b"=1\0"),
        "entries": write_frame(
            MessageType.PUBLISH_BATCH, sequence=1, properties=b"_topic=t\0_count=2\0", body=b"\0" * 15
        ),
    }[kind]


KINDS = (
    "text",
    "too long",
    "negative",
    "zero",
    "too short",
    "properties past the end",
    "body past the end",
    "negative sequence",
    "not UTF-8",
    "no NUL",
    "twice",
    "no key",
    "entries",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_frame_is_told_and_costs_its_own_connection(kind: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client, other = await rig.connect(), await rig.connect()
        before, frame = client.frame(PUBLISH, {"_topic": TOPIC}, b"sound")
        client.writer.write(frame + broken(kind) + frame)
        frames = await client.wait_closed()
        assert [each.sequence for each in frames] == [before, 0]  # what came before is answered
        assert last_word(frames)
        assert await is_alive(other)
        assert await rig.values() == [b"sound"]
        assert rig.listener.counters.protocol_errors == 1

    play(scenario)


@both_loops
def test_the_last_word_arrives_though_the_client_goes_on_sending(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.writer.write(struct.pack(">I", 1 << 30) + b"\0" * 2_000_000)
        assert "1073741824" in last_word(await client.wait_closed())
        for _ in range(10):  # a socket that is closed on us would be reset by now
            client.writer.write(b"\0" * 100_000)
            await client.writer.drain()
        client.close()
        await rig.wait_until(lambda: not rig.listener.connections)

    play(scenario, uv=uv)


def test_the_last_word_waits_for_the_replies_under_way() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        rig.log().hold()
        sequence = client.send(PUBLISH, b"x", _topic=TOPIC)
        client.writer.write(b"\xff" * 40)
        await rig.wait_until(lambda: rig.listener.counters.protocol_errors == 1)
        rig.log().settle()
        assert [frame.sequence for frame in await client.wait_closed()] == [sequence, 0]

    play(scenario)


def test_who_breaks_the_protocol_does_not_keep_his_connection_by_waiting() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.subscriber()
        pulled = client.send(MessageType.PULL, _subscription="workers", _count=1, _wait_ms=60_000)
        client.writer.write(b"\xff" * 40)
        frames = await client.wait_closed()
        assert [frame.sequence for frame in frames] == [pulled, 0]

    play(scenario)


@both_loops
def test_a_frame_larger_than_the_receive_buffer_is_served(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        body = bytes(range(256)) * 3000
        await client.publish(body)
        await client.publish(b"small")
        assert await rig.values() == [body, b"small"]

    play(scenario, uv=uv)


def test_a_frame_that_does_not_arrive_in_time_ends_the_connection() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.writer.write(struct.pack(">I", 5000) + b"\0" * 100)
        await client.wait_closed()

    play(scenario, config=NativeConfig(frame_timeout_s=0.02, heartbeat_interval_ms=200))


# ---- bounds


@both_loops
def test_replies_come_though_requests_are_many_more_than_may_wait(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        made = [client.frame(PUBLISH, {"_topic": TOPIC}, b"%d" % number) for number in range(500)]
        client.writer.write(b"".join(frame for _, frame in made))
        offsets = [int((await client.reply(sequence)).properties["_offset"]) for sequence, _ in made]
        assert offsets == list(range(500))

    play(scenario, uv=uv, config=NativeConfig(unanswered_requests_max=7, turn_requests=5))


@pytest.mark.parametrize("bound", ["unanswered_requests_max", "unanswered_bytes_max"])
def test_a_client_with_too_much_under_way_is_not_read(bound: str) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        rig.log().hold()
        sequences = [client.send(PUBLISH, b"x" * 1000, _topic=TOPIC) for _ in range(100)]
        protocol = rig.connection_of(client).protocol
        await rig.wait_until(lambda: protocol.unanswered > 0)
        await asyncio.sleep(0.02)
        assert protocol.unanswered <= 10 and rig.log().end_offset <= 10
        rig.log().settle()
        for sequence in sequences:
            await client.reply(sequence)

    play(scenario, config=NativeConfig(**{bound: 10 if "requests" in bound else 10_000}))


def test_an_exhausted_budget_is_waited_for() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        one, two = await rig.connect(), await rig.connect()
        rig.log().hold()
        first = one.send(PUBLISH, b"x" * 3000, _topic=TOPIC)
        await rig.wait_until(lambda: rig.listener.budget.used > 3000)
        second = two.send(PUBLISH, b"y" * 3000, _topic=TOPIC)
        await rig.wait_until(lambda: rig.listener.budget.exhausted)
        assert rig.log().end_offset == 1
        rig.log().settle()
        await one.reply(first)
        await two.reply(second)
        assert rig.listener.budget.used == 0

    play(scenario, budget=RequestBudget(5000, reserve_bytes=1000, small_bytes=100))


@both_loops
def test_a_client_that_does_not_read_costs_a_bounded_amount_and_nobody_else(uv: bool) -> None:
    config = NativeConfig(out_buffer_bytes_max=256 * KIB, reply_bytes_max=64 * KIB)

    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        slow, quick = await rig.connect(receive_bytes=16 * KIB), await rig.connect()
        for client in (slow, quick):
            name = f"of {client is slow}".replace(" ", "-")
            await client.ask(SUBSCRIBE, _subscription=name, _topic=TOPIC, _credit=10_000)
        slow.stop_reading()
        publisher = await rig.connect()
        count = 150
        for _ in range(count):
            await publisher.publish(b"x" * 50_000)
            await quick.ack(await quick.data())
        connection = rig.connection_of(slow)
        assert not connection.is_open()
        # One turn's deliveries may go over the bound, and no more.
        assert connection.buffered_bytes < config.out_buffer_bytes_max + 1_000_000
        slow.go_on_reading()
        assert [(await slow.data()).sequence for _ in range(count)] == list(range(count))

    play(scenario, uv=uv, config=config)


@both_loops
def test_clients_that_do_not_read_share_the_bound_of_the_node(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        unread = rig.listener.budget.unread
        unread.node.bytes_max = 2_000_000
        for number in range(6):
            slow = await rig.connect(receive_bytes=16 * KIB)
            await slow.ask(SUBSCRIBE, _subscription=f"of-{number}", _topic=TOPIC, _credit=10_000)
            slow.stop_reading()
        quick = await rig.connect()
        await quick.ask(SUBSCRIBE, _subscription="quick", _topic=TOPIC, _credit=10_000)
        for _ in range(150):
            await quick.publish(b"x" * 50_000)
            await quick.ack(await quick.data())
        await rig.wait_until(lambda: unread.node.closed > 0 and unread.bytes <= unread.node.bytes_max)
        buffered = sum(each.buffered_bytes for each in rig.listener.connections)
        assert buffered <= unread.node.bytes_max + 7 * 64 * KIB
        assert rig.connection_of(quick).is_open()

    play(scenario, uv=uv)


def test_a_client_that_asks_and_does_not_read_is_not_read_either() -> None:
    config = NativeConfig(out_buffer_bytes_max=64 * KIB, reply_bytes_max=64 * KIB)

    async def scenario(rig: Rig) -> None:
        maker = await rig.connect()
        for number in range(50):
            await maker.ask(CREATE_TOPIC, _topic=f"topic-{number}")
        client = await rig.connect(receive_bytes=16 * KIB)
        client.stop_reading()
        sequences = [client.send(DESCRIBE, _what="topics") for _ in range(3000)]
        connection = rig.connection_of(client)
        await rig.wait_until(lambda: connection.buffered_bytes > 128 * KIB)
        await asyncio.sleep(0.05)
        assert connection.buffered_bytes < 512 * KIB
        assert rig.listener.counters.requests < 3000
        client.go_on_reading()
        for sequence in sequences:
            await client.reply(sequence)

    play(scenario, config=config)


def test_one_busy_connection_does_not_starve_the_others() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        busy, other = await rig.connect(), await rig.connect()
        made = [busy.frame(PUBLISH, {"_topic": TOPIC}, b"x" * 1000) for _ in range(3000)]
        busy.writer.write(b"".join(frame for _, frame in made))
        await other.ask(DESCRIBE, _what="topics")
        assert rig.log().end_offset < 3000
        await busy.reply(made[-1][0])
        assert max(batch.count for batch in await rig.batches()) <= 10

    play(scenario, config=NativeConfig(turn_requests=10))


# ---- life


@both_loops
def test_the_broker_sends_heartbeats_when_it_has_nothing_to_say(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.ask(HEARTBEAT, _heartbeat_ms=60_000)
        for _ in range(3):
            frame = await client.receive()
            assert (frame.type, frame.sequence, frame.properties) == (HEARTBEAT, 0, {})

    play(scenario, uv=uv, config=NativeConfig(heartbeat_interval_ms=30))


@both_loops
def test_a_client_that_is_silent_for_too_long_is_dead_and_its_messages_go_on(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        silent = await rig.subscriber(_credit=5)
        other = await rig.connect()
        await other.ask(HEARTBEAT, _heartbeat_ms=60_000)
        publisher = await rig.connect()
        await publisher.ask(HEARTBEAT, _heartbeat_ms=60_000)
        await publisher.publish(b"x")
        await silent.data()
        await other.ask(SUBSCRIBE, _subscription="workers")
        assert (await other.data()).properties["_delivery"] == "2"
        assert HEARTBEAT in {frame.type for frame in await silent.wait_closed()}

    play(scenario, uv=uv, config=NativeConfig(heartbeat_interval_ms=1000))


def test_a_client_that_is_heard_of_lives() -> None:
    async def scenario(rig: Rig) -> None:
        client, mute = await rig.connect(), await rig.connect()
        await client.ask(HEARTBEAT, _heartbeat_ms=40)
        closing = asyncio.ensure_future(mute.wait_closed())
        while not closing.done():
            client.writer.write(write_frame(HEARTBEAT))
            await asyncio.sleep(0.01)
        assert await is_alive(client)

    play(scenario, config=NativeConfig(heartbeat_interval_ms=40))


def test_a_client_that_waits_for_us_is_not_dead() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client, mute = await rig.connect(), await rig.connect()
        rig.log().hold()
        sequences = [client.send(PUBLISH, b"x", _topic=TOPIC) for _ in range(3)]
        await mute.wait_closed()  # while this one is not read, as too much of it is unanswered
        rig.log().settle()
        for sequence in sequences:
            await client.reply(sequence)

    play(scenario, config=NativeConfig(heartbeat_interval_ms=30, unanswered_requests_max=1))


# ---- the end


@both_loops
def test_a_client_that_closes_its_side_gets_its_replies(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        rig.log().hold()
        sequence = client.send(PUBLISH, b"x", _topic=TOPIC)
        client.writer.write_eof()
        await rig.wait_until(lambda: rig.connection_of(client).is_open() is False)
        rig.log().settle()
        assert [frame.sequence for frame in await client.wait_closed()] == [sequence]
        await rig.wait_until(lambda: not rig.connection_is_open(client))

    play(scenario, uv=uv)


@both_loops
def test_closing_answers_what_is_under_way_and_takes_nothing_more(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.subscriber()
        idle = await rig.connect()
        rig.log().hold()
        published = client.send(PUBLISH, b"x", _topic=TOPIC)
        pulled = client.send(MessageType.PULL, _subscription="workers", _count=1, _wait_ms=20_000)
        await rig.wait_until(lambda: rig.connection_of(client).protocol.unanswered == 2)
        closing = asyncio.ensure_future(rig.listener.close())
        assert await idle.wait_closed() == []
        assert (await client.reply(pulled)).properties == {"_count": "0"}
        client.send(PUBLISH, b"too late", _topic=TOPIC)
        rig.log().settle()
        assert [frame.sequence for frame in await client.wait_closed()] == [published]
        await closing
        assert await rig.values() == [b"x"]
        with pytest.raises(ConnectionRefusedError):
            await rig.connect()

    play(scenario, uv=uv)


def test_closing_does_not_wait_for_ever() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        rig.log().hold()
        client.send(PUBLISH, b"x", _topic=TOPIC)
        await rig.wait_until(lambda: rig.connection_of(client).protocol.unanswered == 1)
        await rig.listener.close()
        assert not rig.listener.connections
        rig.log().settle()
        await rig.wait_until(lambda: rig.listener.budget.used == 0)

    play(scenario, config=NativeConfig(close_grace_s=0.02))


def test_a_client_that_leaves_with_requests_under_way_leaves_nothing_behind() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.subscriber()
        rig.log().hold()
        client.send(PUBLISH, b"x", _topic=TOPIC)
        client.send(MessageType.PULL, _subscription="workers", _count=1, _wait_ms=20_000)
        client.send(PUBLISH, b"y", _topic="another")
        await rig.wait_until(lambda: rig.log().end_offset == 1)
        client.close()
        await rig.wait_until(lambda: not rig.broker.subscriptions.known("workers").members)
        rig.log().settle()
        await rig.wait_until(lambda: not rig.connection_is_open(client))
        await rig.wait_until(lambda: rig.listener.budget.used == 0)

    play(scenario)


def test_a_bug_costs_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client, other = await rig.connect(), await rig.connect()
        monkeypatch.setattr(Publisher, "publish", stumble)
        client.send(PUBLISH, b"x", _topic=TOPIC)
        assert await client.wait_closed() == []
        third = await rig.connect()
        monkeypatch.setattr(joining, "definition_of", stumble)
        third.send(SUBSCRIBE, _subscription="s", _topic=TOPIC)
        assert await third.wait_closed() == []
        assert await is_alive(other)

    with caplog.at_level(logging.ERROR):
        play(scenario)
    assert caplog.text.count("a bug") >= 2 and "Traceback" in caplog.text


@both_loops
def test_a_hundred_clients_at_once(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        clients = [await rig.subscriber() for _ in range(100)]
        await asyncio.gather(*[client.publish(b"%d" % at) for at, client in enumerate(clients)])
        frames = [await client.data() for client in clients]
        assert {bytes(frame.body) for frame in frames} == {b"%d" % at for at in range(100)}
        await asyncio.gather(*[c.ack(f) for c, f in zip(clients, frames, strict=True)])
        assert rig.broker.subscriptions.known("workers").unacked == 0
        assert rig.listener.counters.connections == 101

    play(scenario, uv=uv)


def test_connections_past_the_bound_are_closed_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        one = await rig.connect()
        assert await is_alive(one)
        assert await (await rig.connect()).wait_closed() == []
        assert await is_alive(one)
        assert rig.listener.counters.refused == 1

    play(scenario, config=NativeConfig(connections_max=1))


# ---- listener and config


def test_a_listener_says_where_it_is_and_shares_a_budget() -> None:
    async def scenario(rig: Rig) -> None:
        budget = RequestBudget(1 << 20)
        listener = NativeListener(rig.broker.gate, addresses=[Address("127.0.0.1", 0)], budget=budget)
        await listener.start()
        assert listener.budget is budget
        assert f"127.0.0.1:{listener.port} 0 connections" in repr(listener)
        with pytest.raises(ConfigError, match="--native-port"):
            await NativeListener(rig.broker.gate, addresses=listener.addresses).start()
        await listener.close()
        await listener.close()

    play(scenario)


@pytest.mark.parametrize(
    "settings",
    [
        {"heartbeat_interval_ms": 0},
        {"frame_bytes_max": 27},
        {"credit_default": 11, "credit_max": 10},
        {"request_timeout_s": 0.0},
        {"out_buffer_bytes_max": 0},
    ],
)
def test_bounds_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        NativeConfig(**settings)
