"""Subscriptions through the native listener: joining, deliveries, settling, pulling, moving, over sockets."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.native.rig import TOPIC, Client, Refused, Rig, both_loops, play, refused, settling

from tailrace.model import ErrorCode
from tailrace.native import NativeConfig
from tailrace.wire.native import Frame, MessageType, write_frame

SUBSCRIBE = MessageType.SUBSCRIBE
UNSUBSCRIBE = MessageType.UNSUBSCRIBE
CREATE_SUBSCRIPTION = MessageType.CREATE_SUBSCRIPTION
DELETE_SUBSCRIPTION = MessageType.DELETE_SUBSCRIPTION
PULL = MessageType.PULL
ACK = MessageType.ACK
NACK = MessageType.NACK
EXTEND = MessageType.EXTEND
SEEK = MessageType.SEEK
CREDIT = MessageType.CREDIT
REDRIVE = MessageType.REDRIVE
DESCRIBE = MessageType.DESCRIBE


async def fill(rig: Rig, *bodies: bytes, **properties: object) -> Client:
    client = await rig.connect()
    for body in bodies:
        await client.publish(body, **properties)
    return client


async def describe(client: Client, **properties: object) -> Any:
    return json.loads(bytes((await client.ask(DESCRIBE, **properties)).body))


async def wait_held(rig: Rig, count: int, name: str = "workers") -> None:
    """Until so many messages are with members."""
    subscription = rig.broker.subscriptions.known(name)
    await rig.wait_until(lambda: subscription.unacked == count)


def failures(rig: Rig) -> dict[int, int]:
    """Which messages failed how often, in the only partition."""
    (partition,) = rig.broker.subscriptions.known("workers").partitions
    return dict(partition.machine.failures)


def bodies(frames: list[Frame]) -> list[bytes]:
    return [bytes(frame.body) for frame in frames]


# ---- push


@both_loops
def test_a_message_is_delivered_with_everything_that_it_has(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = await fill(rig, b"first")
        reply = await publisher.publish(b"second", _key="k", colour="red")
        client = await rig.connect()
        joined = await client.ask(SUBSCRIBE, _subscription="workers", _topic=TOPIC, ack_timeout_ms=20_000)
        assert joined.properties == {"_ack_timeout_ms": "20000"}
        first, second = await client.data(), await client.data()
        assert (first.sequence, bytes(first.body)) == (0, b"first")
        assert (second.sequence, second.timestamp) == (1, reply.timestamp)
        assert bytes(second.body) == b"second"
        assert second.properties == {
            "_subscription": "workers",
            "_topic": TOPIC,
            "_partition": "0",
            "_epoch": second.properties["_epoch"],
            "_id": reply.properties["_id"],
            "_delivery": "1",
            "_key": "k",
            "colour": "red",
        }

    play(scenario, uv=uv)


def test_binary_keys_headers_and_missing_values_come_as_they_went() -> None:
    async def scenario(rig: Rig) -> None:
        publisher = await fill(rig)
        headers = base64.b64encode(b'[["h",null],["h","/w=="]]').decode()
        await publisher.publish(b"", _key64="/w==", _headers=headers, _null=1)
        client = await rig.subscriber()
        data = await client.data()
        assert data.properties["_key64"] == "/w==" and data.properties["_null"] == "1"
        assert json.loads(base64.b64decode(data.properties["_headers"])) == [["h", None], ["h", "/w=="]]

    play(scenario)


def test_credit_bounds_what_is_unacknowledged_and_can_be_changed() -> None:
    async def scenario(rig: Rig) -> None:
        await fill(rig, *[b"%d" % number for number in range(10)])
        client = await rig.subscriber(_credit=2)
        held = [await client.data(), await client.data()]
        await client.ask(DESCRIBE, _what="topics")
        assert not client.kept
        await client.ack(*held)
        held = [await client.data(), await client.data()]
        client.writer.write(write_frame(CREDIT, properties={"_subscription": "workers", "_credit": "5"}))
        held += [await client.data() for _ in range(3)]
        assert bodies(held) == [b"2", b"3", b"4", b"5", b"6"]
        await client.ask(SUBSCRIBE, _subscription="workers", _credit=0)  # a second time: only the credit
        await client.ack(*held)
        state = await describe(client, _what="subscription", _name="workers")
        assert len(state["members"]) == 1 and state["unacknowledged"] == 0

    play(scenario)


def test_members_share_messages_in_turn() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        one, two = await rig.subscriber(), await rig.subscriber()
        await fill(rig, *[b"%d" % number for number in range(10)])
        got = [[await client.data() for _ in range(5)] for client in (one, two)]
        assert sorted(bodies(got[0]) + bodies(got[1])) == [b"%d" % number for number in range(10)]

    play(scenario)


@both_loops
def test_a_member_that_dies_returns_its_messages_at_once(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await fill(rig, b"a", b"b", b"c")
        one = await rig.subscriber()
        first = [await one.data() for _ in range(3)]
        two = await rig.subscriber()
        one.close()
        again = [await two.data() for _ in range(3)]
        assert bodies(again) == bodies(first)
        assert {frame.properties["_delivery"] for frame in again} == {"2"}

    play(scenario, uv=uv)


def test_a_member_that_leaves_returns_its_messages_and_gets_no_more() -> None:
    async def scenario(rig: Rig) -> None:
        publisher = await fill(rig, b"a")
        one, two = await rig.subscriber(), await rig.connect()
        await one.data()
        await one.ask(UNSUBSCRIBE, _subscription="workers")
        await two.ask(SUBSCRIBE, _subscription="workers")
        again = await two.data()
        assert bytes(again.body) == b"a"
        assert failures(rig) == {}  # which counts as no failure
        await publisher.publish(b"b")
        await two.data()
        with pytest.raises(Refused) as caught:
            await one.ask(UNSUBSCRIBE, _subscription="workers")
        refused(caught, ErrorCode.UNKNOWN_MEMBER_ID, "workers")
        assert not one.kept

    play(scenario)


def test_a_member_that_never_acknowledges_does_not_stop_the_others() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        silent, busy = await rig.subscriber(_credit=3), await rig.connect()
        await busy.ask(SUBSCRIBE, _subscription="workers", _credit=3)
        await fill(rig, *[b"%d" % number for number in range(30)])
        for _ in range(27):
            await busy.ack(await busy.data())
        assert len([await silent.data() for _ in range(3)]) == 3
        await wait_held(rig, 3)

    play(scenario)


def test_a_subscription_that_is_deleted_tells_its_members() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client, other = await rig.subscriber(), await rig.connect()
        await other.ask(DELETE_SUBSCRIPTION, _subscription="workers")
        notice = await client.notice()
        assert (notice.properties["_subscription"], notice.properties["_event"]) == ("workers", "deleted")
        with pytest.raises(Refused) as caught:
            await client.ask(SUBSCRIBE, _subscription="workers")
        refused(caught, ErrorCode.RESOURCE_NOT_FOUND)
        await client.ask(SUBSCRIBE, _subscription="workers", _topic=TOPIC)  # it is made anew
        await fill(rig, b"new")
        assert bytes((await client.data()).body) == b"new"

    play(scenario)


def test_an_exclusive_subscription_has_one_member() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        await rig.subscriber(mode="exclusive")
        other = await rig.connect()
        with pytest.raises(Refused) as caught:
            await other.ask(SUBSCRIBE, _subscription="workers")
        refused(caught, ErrorCode.GROUP_MAX_SIZE_REACHED, "exclusive")

    play(scenario)


def test_a_subscription_is_joined_as_it_is_and_not_with_other_settings() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        await rig.create_topic("other")
        client = await rig.subscriber(max_deliveries=3)
        await client.ask(SUBSCRIBE, _subscription="workers", _topic=TOPIC)
        await client.ask(SUBSCRIBE, _subscription="workers", _topic=TOPIC, max_deliveries=3)
        for properties in ({"_topic": TOPIC, "max_deliveries": 4}, {"_topic": "other"}):
            with pytest.raises(Refused) as caught:
                await client.ask(SUBSCRIBE, _subscription="workers", **properties)
            refused(caught, ErrorCode.DUPLICATE_RESOURCE)

    play(scenario)


def test_a_connection_may_be_in_so_many_subscriptions() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        for name in ("a", "b"):
            await client.ask(SUBSCRIBE, _subscription=name, _topic=TOPIC)
        with pytest.raises(Refused) as caught:
            await client.ask(SUBSCRIBE, _subscription="c", _topic=TOPIC)
        refused(caught, ErrorCode.POLICY_VIOLATION, "2")
        await client.ask(UNSUBSCRIBE, _subscription="a")
        await client.ask(SUBSCRIBE, _subscription="c", _topic=TOPIC)

    play(scenario, config=NativeConfig(subscriptions_max=2))


# ---- settling


def test_an_acknowledgement_is_answered_when_it_is_durable() -> None:
    async def scenario(rig: Rig) -> None:
        await fill(rig, b"a", b"b", b"c")
        client = await rig.subscriber()
        held = [await client.data() for _ in range(3)]
        logs = [rig.log("__tailrace_cursors", index) for index in range(4)]
        for log in logs:
            log.hold()
        asked = client.send(ACK, **settling(*held[:2]))
        await client.ask(DESCRIBE, _what="topics")
        assert not client.kept
        for log in logs:
            log.settle()
        assert (await client.reply(asked)).properties == {"_count": "2"}
        assert (await client.ack(*held)).properties == {"_count": "1"}  # two of them were done already

    play(scenario)


def test_whoever_lost_its_connection_may_still_acknowledge() -> None:
    async def scenario(rig: Rig) -> None:
        await fill(rig, b"a")
        one = await rig.subscriber()
        held = await one.data()
        one.close()
        two = await rig.connect()
        assert (await two.ack(held)).properties == {"_count": "1"}
        assert (await describe(two, _what="subscription", _name="workers"))["lag"] == 0

    play(scenario)


def test_a_refused_message_comes_again() -> None:
    async def scenario(rig: Rig) -> None:
        await fill(rig, b"a", b"b")
        client = await rig.subscriber()
        first, second = await client.data(), await client.data()
        reply = await client.ask(NACK, **settling(first), _delay_ms=0, _reason="not now")
        assert reply.properties == {"_count": "1"}
        again = await client.data()
        assert (again.sequence, again.properties["_delivery"]) == (first.sequence, "2")
        other = await rig.connect()
        assert (await other.ask(NACK, **settling(second))).properties == {"_count": "0"}

    play(scenario)


def test_a_message_that_is_not_settled_in_time_comes_again_unless_it_is_extended() -> None:
    async def scenario(rig: Rig) -> None:
        await fill(rig, b"slow", b"late")
        client = await rig.subscriber(ack_timeout_ms=1_000, backoff_ms=0, backoff_ms_max=0)
        slow, late = await client.data(), await client.data()
        reply = await client.ask(EXTEND, **settling(slow), _extend_ms=60_000)
        assert reply.properties == {"_count": "1"}
        again = await client.data()
        assert (again.sequence, again.properties["_delivery"]) == (late.sequence, "2")

    play(scenario)


def test_a_message_that_fails_too_often_is_a_dead_letter_and_can_be_redriven() -> None:
    async def scenario(rig: Rig) -> None:
        await fill(rig, b"poison", _key="k")
        client = await rig.subscriber(max_deliveries=2)
        for _ in range(2):
            await client.ask(NACK, **settling(await client.data()), _delay_ms=0, _reason="bad")
        subscription = rig.broker.subscriptions.known("workers")
        await rig.wait_until(lambda: subscription.unacked == 0)
        letters = await describe(client, _what="dead_letters", _name="workers")
        assert (letters[0]["key"], letters[0]["value"]) == ("k", "poison")
        assert "bad" in json.dumps(letters[0])
        assert (await client.ask(REDRIVE, _subscription="workers")).properties == {"_count": "1"}
        data = await client.data()
        assert (data.properties["_topic"], bytes(data.body)) == ("workers.dlq", b"poison")
        assert (await client.ack(data)).properties == {"_count": "1"}

    play(scenario)


@both_loops
def test_a_seek_begins_a_new_epoch(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await fill(rig, b"a", b"b", b"c")
        client = await rig.subscriber()
        held = [await client.data() for _ in range(3)]
        await client.ack(*held)
        reply = await client.ask(SEEK, _subscription="workers", _to="offset:1")
        again = [await client.data() for _ in range(2)]
        assert bodies(again) == [b"b", b"c"]
        assert {frame.properties["_epoch"] for frame in again} == {reply.properties["_epoch"]}
        assert reply.properties["_epoch"] != held[0].properties["_epoch"]
        assert (await client.ack(*held[1:])).properties == {"_count": "0"}
        assert (await client.notice()).properties["_event"] == "seek"

    play(scenario, uv=uv)


def test_where_a_subscription_starts() -> None:
    async def scenario(rig: Rig) -> None:
        publisher = await fill(rig, b"a", b"b", b"c")
        starts = {"all": None, "new": "latest", "from": "offset:2", "old": "earliest", "time": "time:1"}
        for name, start in starts.items():
            properties = {} if start is None else {"_start": start}
            await publisher.ask(CREATE_SUBSCRIPTION, _subscription=name, _topic=TOPIC, **properties)
        lags = {each["name"]: each["lag"] for each in await describe(publisher, _what="subscriptions")}
        assert lags == {"all": 3, "new": 0, "from": 1, "old": 3, "time": 3}

    play(scenario)


def test_what_was_acknowledged_is_not_delivered_after_a_restart(tmp_path: Path) -> None:
    async def before(rig: Rig) -> None:
        await fill(rig, *[b"%d" % number for number in range(20)])
        client = await rig.subscriber()
        held = [await client.data() for _ in range(20)]
        await client.ack(*held[:5], *held[10:])

    async def after(rig: Rig) -> None:
        client = await rig.connect()
        await client.ask(SUBSCRIBE, _subscription="workers")
        again = [await client.data() for _ in range(5)]
        assert sorted(bodies(again)) == [b"5", b"6", b"7", b"8", b"9"]

    play(before, after, directory=tmp_path)


# ---- pull


async def pull(client: Client, count: int, **properties: object) -> tuple[list[Frame], Frame]:
    """What a PULL brought, and its end."""
    sequence = client.send(PULL, _subscription="workers", _count=count, **properties)
    frames: list[Frame] = []
    while True:
        frame = await client.find(
            lambda each: each.type in (MessageType.DATA, MessageType.ACK, MessageType.ERROR)
        )
        if frame.type == MessageType.ERROR:
            raise Refused(frame)
        if frame.type == MessageType.ACK:
            assert frame.sequence == sequence
            return frames, frame
        assert frame.properties["_pull"] == str(sequence)
        frames.append(frame)


async def pulling_client(rig: Rig, **properties: object) -> Client:
    await rig.create_topic()
    client = await rig.connect()
    await client.ask(CREATE_SUBSCRIPTION, _subscription="workers", _topic=TOPIC, **properties)
    return client


@both_loops
def test_a_pull_brings_what_is_there_and_no_more_than_was_asked_for(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        await fill(rig, *[b"%d" % number for number in range(5)])
        frames, end = await pull(client, 3)
        assert bodies(frames) == [b"0", b"1", b"2"] and end.properties == {"_count": "3"}
        frames, end = await pull(client, 3)
        assert bodies(frames) == [b"3", b"4"] and end.properties == {"_count": "2"}
        frames, end = await pull(client, 3)
        assert frames == [] and end.properties == {"_count": "0"}

    play(scenario, uv=uv)


def test_a_pull_waits_for_the_first_message_and_then_ends() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        waiting = asyncio.ensure_future(pull(client, 10, _wait_ms=20_000))
        await rig.wait_until(lambda: rig.connection_of(client).protocol.unanswered == 1)
        await fill(rig, b"work")
        frames, end = await waiting
        assert bodies(frames) == [b"work"] and end.properties == {"_count": "1"}

    play(scenario)


def test_a_pull_ends_when_its_time_is_over() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        began = asyncio.get_running_loop().time()
        frames, end = await pull(client, 10, _wait_ms=50)
        assert frames == [] and end.properties == {"_count": "0"}
        assert asyncio.get_running_loop().time() - began >= 0.04
        await fill(rig, b"later")
        assert not client.kept  # what was wanted then is not sent now
        frames, _ = await pull(client, 10)
        assert bodies(frames) == [b"later"]

    play(scenario)


def test_pulls_are_served_in_the_order_of_asking() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        first = client.send(PULL, _subscription="workers", _count=2, _wait_ms=20_000)
        second = client.send(PULL, _subscription="workers", _count=2, _wait_ms=20_000)
        await rig.wait_until(lambda: rig.connection_of(client).protocol.unanswered == 2)
        publisher = await rig.connect()
        made = [publisher.frame(MessageType.PUBLISH, {"_topic": TOPIC}, b"%d" % n)[1] for n in range(4)]
        publisher.writer.write(b"".join(made))
        frames = [await client.data() for _ in range(4)]
        assert [frame.properties["_pull"] for frame in frames] == [str(first)] * 2 + [str(second)] * 2
        for sequence in (first, second):
            assert (await client.reply(sequence)).properties == {"_count": "2"}

    play(scenario)


def test_a_pull_that_times_out_leaves_the_others_what_they_wanted() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        short = client.send(PULL, _subscription="workers", _count=3, _wait_ms=20)
        long = client.send(PULL, _subscription="workers", _count=1, _wait_ms=20_000)
        assert (await client.reply(short)).properties == {"_count": "0"}
        await fill(rig, b"a", b"b")
        assert (await client.data()).properties["_pull"] == str(long)
        assert (await client.reply(long)).properties == {"_count": "1"}
        subscription = rig.broker.subscriptions.known("workers")
        assert subscription.unacked == 1  # the second message was not sent to nobody

    play(scenario)


def test_a_large_pull_is_served_in_several_turns() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        publisher = await rig.connect()
        made = [publisher.frame(MessageType.PUBLISH, {"_topic": TOPIC}, b"x") for _ in range(1000)]
        publisher.writer.write(b"".join(frame for _, frame in made))
        await publisher.reply(made[-1][0])
        got = 0
        while got < 1000:
            frames, _ = await pull(client, 1000 - got, _wait_ms=1000)
            assert frames
            got += len(frames)

    play(scenario)


def test_a_pull_that_does_not_wait_still_finds_what_must_be_read_first() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        await fill(rig, b"cold")
        rig.log().reads_are_cold = True
        frames, _ = await pull(client, 5)
        assert bodies(frames) == [b"cold"]

    play(scenario)


def test_a_pull_finds_messages_that_are_only_on_the_disk(tmp_path: Path) -> None:
    async def before(rig: Rig) -> None:
        await pulling_client(rig)
        await fill(rig, b"cold")

    async def after(rig: Rig) -> None:
        client = await rig.connect()
        frames, _ = await pull(client, 5)
        assert bodies(frames) == [b"cold"]

    play(before, after, directory=tmp_path)


def test_a_pull_at_most_once_does_not_lose_what_is_on_its_way() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig, delivery="at_most_once")
        await fill(rig, b"a", b"b")
        logs = [rig.log("__tailrace_cursors", index) for index in range(4)]
        for log in logs:
            log.hold()
        sequence = client.send(PULL, _subscription="workers", _count=5, _wait_ms=30)
        await asyncio.sleep(0.1)  # its time is over, and the cursor is not durable
        await client.ask(DESCRIBE, _what="topics")
        assert not client.kept
        for log in logs:
            log.settle()
        assert bodies([await client.data(), await client.data()]) == [b"a", b"b"]
        assert (await client.reply(sequence)).properties == {"_count": "2"}

    play(scenario)


def test_leaving_ends_the_pulls() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        sequence = client.send(PULL, _subscription="workers", _count=5, _wait_ms=20_000)
        await client.ask(UNSUBSCRIBE, _subscription="workers")
        assert (await client.reply(sequence)).properties == {"_count": "0"}
        sequence = client.send(PULL, _subscription="workers", _count=5, _wait_ms=20_000)
        await client.ask(DELETE_SUBSCRIPTION, _subscription="workers")
        assert (await client.reply(sequence)).properties == {"_count": "0"}
        assert (await client.notice()).properties["_event"] == "deleted"

    play(scenario)


def test_what_was_pulled_can_be_settled_beside_what_was_pushed() -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        await fill(rig, b"a", b"b")
        frames, _ = await pull(client, 1)
        await client.ask(SUBSCRIBE, _subscription="workers")
        pushed = await client.data()
        both = settling(*frames, pushed)
        assert (await client.ask(EXTEND, _extend_ms=1000, **both)).properties == {"_count": "2"}
        assert (await client.ask(NACK, _delay_ms=60_000, **both)).properties == {"_count": "2"}

    play(scenario)


# ---- what makes no sense

SETTLE = {"_subscription": "workers", "_partition": "0", "_epoch": "0", "_offsets": "0"}


@pytest.mark.parametrize(
    ("kind", "properties", "code", "words"),
    [
        (CREATE_SUBSCRIPTION, {"_topic": TOPIC}, "INVALID_REQUEST", "_subscription"),
        (CREATE_SUBSCRIPTION, {"_subscription": "s"}, "INVALID_REQUEST", "_topic"),
        (CREATE_SUBSCRIPTION, {"_subscription": "s", "_topic": "none"}, "UNKNOWN_TOPIC_OR_PARTITION", "none"),
        (CREATE_SUBSCRIPTION, {"_subscription": "a b", "_topic": TOPIC}, "INVALID_CONFIG", "a b"),
        (CREATE_SUBSCRIPTION, {"_subscription": "s", "_topic": TOPIC, "mood": "x"}, "INVALID_CONFIG", "mode"),
        (
            CREATE_SUBSCRIPTION,
            {"_subscription": "s", "_topic": TOPIC, "_start": "soon"},
            "INVALID_REQUEST",
            "soon",
        ),
        (
            CREATE_SUBSCRIPTION,
            {"_subscription": "workers", "_topic": TOPIC, "mode": "failover"},
            "DUPLICATE_RESOURCE",
            "mode",
        ),
        (DELETE_SUBSCRIPTION, {"_subscription": "none"}, "RESOURCE_NOT_FOUND", "none"),
        (SUBSCRIBE, {"_subscription": "none"}, "RESOURCE_NOT_FOUND", "none"),
        (SUBSCRIBE, {"_subscription": "workers", "_credit": "10001"}, "INVALID_REQUEST", "10000"),
        (SUBSCRIBE, {"_subscription": "workers", "_credit": "-1"}, "INVALID_REQUEST", "_credit"),
        (SUBSCRIBE, {"_subscription": "workers", "_credit": "1_0"}, "INVALID_REQUEST", "_credit"),
        (UNSUBSCRIBE, {"_subscription": "none"}, "UNKNOWN_MEMBER_ID", "none"),
        (CREDIT, {"_subscription": "none", "_credit": "5"}, "UNKNOWN_MEMBER_ID", "none"),
        (ACK, {**SETTLE, "_offsets": "x"}, "INVALID_REQUEST", "_offsets"),
        (ACK, {**SETTLE, "_offsets": "5-3"}, "INVALID_REQUEST", "_offsets"),
        (ACK, {**SETTLE, "_offsets": ""}, "INVALID_REQUEST", "_offsets"),
        (ACK, {**SETTLE, "_partition": "9"}, "UNKNOWN_TOPIC_OR_PARTITION", "9"),
        (ACK, {**SETTLE, "_topic": "elsewhere"}, "UNKNOWN_TOPIC_OR_PARTITION", "elsewhere"),
        (ACK, {**SETTLE, "_epoch": "new"}, "INVALID_REQUEST", "_epoch"),
        (ACK, {**SETTLE, "_subscription": "none"}, "RESOURCE_NOT_FOUND", "none"),
        (NACK, {**SETTLE, "_delay_ms": str(10**12)}, "INVALID_REQUEST", "_delay_ms"),
        (EXTEND, SETTLE, "INVALID_REQUEST", "_extend_ms"),
        (EXTEND, {**SETTLE, "_extend_ms": "0"}, "INVALID_REQUEST", "_extend_ms"),
        (PULL, {"_subscription": "none", "_count": "1"}, "RESOURCE_NOT_FOUND", "none"),
        (PULL, {"_subscription": "workers"}, "INVALID_REQUEST", "_count"),
        (PULL, {"_subscription": "workers", "_count": "0"}, "INVALID_REQUEST", "_count"),
        (PULL, {"_subscription": "workers", "_count": "1001"}, "INVALID_REQUEST", "1000"),
        (
            PULL,
            {"_subscription": "workers", "_count": "1", "_wait_ms": "60001"},
            "INVALID_REQUEST",
            "_wait_ms",
        ),
        (SEEK, {"_subscription": "workers"}, "INVALID_REQUEST", "_to"),
        (SEEK, {"_subscription": "workers", "_to": "offset:99"}, "OFFSET_OUT_OF_RANGE", "99"),
        (
            SEEK,
            {"_subscription": "workers", "_to": "latest", "_partition": "3"},
            "UNKNOWN_TOPIC_OR_PARTITION",
            "3",
        ),
        (REDRIVE, {"_subscription": "workers", "_count": "0"}, "INVALID_REQUEST", "_count"),
        (DESCRIBE, {}, "INVALID_REQUEST", "_what"),
        (DESCRIBE, {"_what": "everything"}, "INVALID_REQUEST", "everything"),
        (DESCRIBE, {"_what": "topic", "_name": "none"}, "UNKNOWN_TOPIC_OR_PARTITION", "none"),
        (DESCRIBE, {"_what": "subscription", "_name": "none"}, "RESOURCE_NOT_FOUND", "none"),
        (DESCRIBE, {"_what": "dead_letters", "_name": "none"}, "RESOURCE_NOT_FOUND", "none"),
        (
            DESCRIBE,
            {"_what": "dead_letters", "_name": "workers", "_count": "1001"},
            "INVALID_REQUEST",
            "_count",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_the_connection_goes_on(
    kind: int, properties: dict[str, str], code: str, words: str
) -> None:
    async def scenario(rig: Rig) -> None:
        client = await pulling_client(rig)
        with pytest.raises(Refused) as caught:
            await client.ask(kind, **properties)
        refused(caught, ErrorCode[code], words)
        await fill(rig, b"a")
        frames, _ = await pull(client, 1)
        assert bodies(frames) == [b"a"]

    play(scenario)
