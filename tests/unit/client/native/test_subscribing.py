"""Subscriptions of AsyncClient against a scripted listener: handlers, iteration, settling, leases."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.unit.client.native.conftest import FakeListener, M, Peer, run

from tailrace.client.error import ClientError, TimedOut
from tailrace.client.native.message import AsyncMessage
from tailrace.client.native.settlement import clean_reason, ranges_of
from tailrace.client.native.subscriptions import Notice
from tailrace.model import BrokerError, ConfigError, ErrorCode
from tailrace.wire.native import Frame, write_frame


def test_every_request_says_what_the_protocol_wants() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.SEEK] = lambda peer, frame: peer.reply(frame, {"_epoch": "4"})
        async with listener.client(client_id="me") as client:
            await client.create_topic("events", 3, configs={"retention.ms": 60_000})
            await client.create_subscription("g", "events", start_offset=7, mode="key_shared", priority=False)
            await client.create_subscription("h", "events")
            await client.create_subscription("i", "events", start=datetime(1970, 1, 2, tzinfo=UTC))
            await client.delete_subscription("h")
            await client.seek("g", "latest", partition=2)
            assert await client.redrive("g", 5) == 1
            await client.redrive("g")
            await client.describe_topic("events")
            await client.describe_dead_letters("g", 3)
            await client.subscribe("events", print, start="latest")
            client.set_prefetch("events.me", 0)
            await client.unsubscribe_from_subscription("events.me")
            assert client.topics == {"events": 3}
        told = [(frame.type, frame.properties) for frame in listener.frames[1:]]
        assert told == [
            (M.CREATE_TOPIC, {"_topic": "events", "_partitions": "3", "retention.ms": "60000"}),
            (
                M.CREATE_SUBSCRIPTION,
                {
                    "_subscription": "g",
                    "_topic": "events",
                    "_start": "offset:7",
                    "mode": "key_shared",
                    "priority": "false",
                },
            ),
            (M.CREATE_SUBSCRIPTION, {"_subscription": "h", "_topic": "events", "_start": "earliest"}),
            (M.CREATE_SUBSCRIPTION, {"_subscription": "i", "_topic": "events", "_start": "time:86400000"}),
            (M.DELETE_SUBSCRIPTION, {"_subscription": "h"}),
            (M.SEEK, {"_subscription": "g", "_to": "latest", "_partition": "2"}),
            (M.REDRIVE, {"_subscription": "g", "_count": "5"}),
            (M.REDRIVE, {"_subscription": "g"}),
            (M.DESCRIBE, {"_what": "topic", "_name": "events"}),
            (M.DESCRIBE, {"_what": "dead_letters", "_name": "g", "_count": "3"}),
            (
                M.SUBSCRIBE,
                {"_subscription": "events.me", "_credit": "100", "_topic": "events", "_start": "latest"},
            ),
            (M.CREDIT, {"_subscription": "events.me", "_credit": "0"}),
            (M.UNSUBSCRIBE, {"_subscription": "events.me"}),
        ]

    run(test)


def test_a_client_without_an_id_joins_the_default_subscription_of_a_topic() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.subscribe("events")
        assert listener.of(M.SUBSCRIBE)[0].properties["_subscription"] == "events.default"

    run(test)


@pytest.mark.parametrize("start", [-1, "offset:", "offset:-1", "time:soon", "newest", ""])
def test_a_start_that_makes_no_sense_is_refused(start: str | int) -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            with pytest.raises(ConfigError, match="start = "):
                await client.create_subscription("g", "t", start=start)

    run(test)


def test_a_message_has_everything_that_was_delivered() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client, await client.subscribe_to_subscription("s") as subscription:
            headers: list[tuple[str, bytes | None]] = [("colour", b"red"), ("created_at", b"55")]
            listener.peer.deliver(7, "grüße".encode(), key=b"k", count=2, headers=headers)
            listener.peer.deliver(8, None, key=b"\xff", headers=[("h", None), ("ok", b"1")])
            first = await anext(subscription)
            second = await anext(subscription)
            assert (first.body, first.text, first.key) == ("grüße".encode(), "grüße", b"k")
            assert (first.topic, first.partition, first.offset, first.id) == ("t", 0, 7, "cafe-0-7")
            assert (first.timestamp, first.delivery_count, first.subscription) == (1_007, 2, "s")
            assert first.properties == {"colour": "red", "created_at": "55"}
            assert first.created_at == 55
            assert not first.is_tombstone
            assert (second.body, second.key, second.is_tombstone) == (b"", b"\xff", True)
            assert second.headers == [("h", None), ("ok", b"1")]
            assert second.properties == {"ok": "1"}
            assert second.created_at is None

    run(test)


def test_a_handler_that_returns_acknowledges_all_of_a_turn_in_one_frame() -> None:
    async def test(listener: FakeListener) -> None:
        handled: list[int] = []
        async with listener.client() as client:
            await client.subscribe_to_subscription("s", lambda message: handled.append(message.offset))
            for offset in (5, 7, 8, 9):
                listener.peer.deliver(offset)
            await listener.got(M.ACK)
            await client.unsubscribe_from_subscription("s")
            assert client.cursors == {"s": {0: 9}}
        assert handled == [5, 7, 8, 9]
        properties = listener.of(M.ACK)[0].properties
        assert properties == {
            "_subscription": "s",
            "_topic": "t",
            "_partition": "0",
            "_epoch": "3",
            "_offsets": "5,7-9",
        }

    run(test)


def test_an_async_handler_runs_one_at_a_time_in_order_by_default() -> None:
    async def test(listener: FakeListener) -> None:
        running, most, handled = 0, 0, []

        async def handler(message: AsyncMessage) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            handled.append(message.offset)

        async with listener.client() as client:
            await client.subscribe_to_subscription("s", handler)
            for offset in range(10):
                listener.peer.deliver(offset)
            await listener.until(lambda: len(handled) == 10)
        assert most == 1
        assert handled == list(range(10))

    run(test)


def test_concurrency_lets_more_handlers_run() -> None:
    async def test(listener: FakeListener) -> None:
        all_there = asyncio.Barrier(3)

        async def handler(message: AsyncMessage) -> None:
            await all_there.wait()

        async with listener.client() as client:
            await client.subscribe_to_subscription("s", handler, concurrency=3)
            for offset in range(3):
                listener.peer.deliver(offset)
            await listener.until(lambda: bool(listener.of(M.ACK)))

    run(test)


def test_a_handler_that_raises_gives_its_message_back_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(listener: FakeListener) -> None:
        def handler(message: AsyncMessage) -> None:
            if message.offset == 1:
                raise ValueError("bad\0thing")

        async with listener.client() as client:
            await client.subscribe_to_subscription("s", handler)
            for offset in range(3):
                listener.peer.deliver(offset)
            (nack,) = await listener.got(M.NACK)
            await listener.got(M.ACK)
        assert nack.properties["_offsets"] == "1"
        assert nack.properties["_reason"] == "ValueError: bad thing"
        assert "_delay_ms" not in nack.properties
        assert listener.of(M.ACK)[0].properties["_offsets"] == "0,2"

    run(test)
    assert caplog.text.count("handler of s failed on t-0 offset 1") == 1


def test_without_auto_ack_the_handler_decides() -> None:
    async def test(listener: FakeListener) -> None:
        async def handler(message: AsyncMessage) -> None:
            if message.offset == 0:
                await message.ack()
                await message.ack()  # a second time does nothing
            elif message.offset == 1:
                await message.nack(delay_ms=250, reason="later")
            elif message.offset == 2:
                await message.extend(9_000)

        async with listener.client() as client:
            await client.subscribe_to_subscription("s", handler, auto_ack=False)
            for offset in range(4):
                listener.peer.deliver(offset)
            await listener.got(M.EXTEND)
            await client.unsubscribe_from_subscription("s")
        assert [frame.properties["_offsets"] for frame in listener.of(M.ACK)] == ["0"]
        (nack,) = listener.of(M.NACK)
        assert (nack.properties["_delay_ms"], nack.properties["_reason"]) == ("250", "later")
        (extend,) = listener.of(M.EXTEND)
        assert (extend.properties["_offsets"], extend.properties["_extend_ms"]) == ("2", "9000")

    run(test)


def test_ack_returns_when_the_broker_has_confirmed() -> None:
    async def test(listener: FakeListener) -> None:
        held: list[tuple[Peer, Frame]] = []
        listener.on[M.ACK] = lambda peer, frame: held.append((peer, frame))
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s", auto_ack=False)
            listener.peer.deliver(0)
            acking = asyncio.ensure_future((await anext(subscription)).ack())
            await listener.until(lambda: bool(held))
            assert not acking.done()
            assert client.cursors == {}
            held[0][0].reply(held[0][1], {"_count": "1"})
            await acking
            assert client.cursors == {"s": {0: 0}}

    run(test)


def test_a_refused_acknowledgement_is_an_error_for_who_waits() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.ACK] = lambda peer, frame: peer.refuse(frame, ErrorCode.RESOURCE_NOT_FOUND, "deleted")
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s", auto_ack=False)
            listener.peer.deliver(0)
            message = await anext(subscription)
            with pytest.raises(BrokerError, match="deleted"):
                await message.ack()

    run(test)


def test_iteration_acknowledges_a_message_when_the_next_is_asked_for() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            for_each = await client.subscribe_to_subscription("s")
            listener.peer.deliver(0)
            listener.peer.deliver(1)
            seen = []
            async for message in for_each:
                seen.append(message.offset)
                if message.offset == 1:
                    break
            await listener.got(M.ACK)
            await for_each.close()
            assert [message async for message in for_each] == []
        assert seen == [0, 1]
        assert [frame.properties["_offsets"] for frame in listener.of(M.ACK)] == ["0"]

    run(test)


def test_a_subscription_with_a_handler_cannot_be_iterated_over() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s", print)
            with pytest.raises(ClientError, match="has a handler"):
                aiter(subscription)

    run(test)


def test_a_subscription_is_joined_once_per_client() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.subscribe_to_subscription("s")
            with pytest.raises(ConfigError, match="has joined s already"):
                await client.subscribe_to_subscription("s")
            await client.unsubscribe_from_subscription("s")
            with pytest.raises(ConfigError, match="has not joined s"):
                await client.unsubscribe_from_subscription("s")
            await client.subscribe_to_subscription("s")

    run(test)


def test_a_refused_join_is_an_error_and_can_be_tried_again() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.SUBSCRIBE] = lambda peer, frame: peer.refuse(
            frame, ErrorCode.RESOURCE_NOT_FOUND, "no s"
        )
        async with listener.client() as client:
            with pytest.raises(BrokerError, match="no s"):
                await client.subscribe_to_subscription("s")
            del listener.on[M.SUBSCRIBE]
            await client.subscribe_to_subscription("s")

    run(test)


def test_pull_collects_what_belongs_to_it() -> None:
    async def test(listener: FakeListener) -> None:
        def answer(peer: Peer, frame: Frame) -> None:
            peer.deliver(4, b"a", pull=frame.sequence)
            peer.deliver(9, b"pushed")
            peer.deliver(5, b"b", pull=frame.sequence)
            peer.reply(frame, {"_count": "2"})

        listener.on[M.PULL] = answer
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s")
            first, second = await client.pull("s", 2, wait_ms=50)
            assert (first.body, second.body) == (b"a", b"b")
            assert (await anext(subscription)).body == b"pushed"
            await asyncio.gather(first.ack(), second.nack())
        assert listener.of(M.PULL)[0].properties == {"_subscription": "s", "_count": "2", "_wait_ms": "50"}
        assert listener.of(M.ACK)[0].properties["_offsets"] == "4"
        assert listener.of(M.NACK)[0].properties["_offsets"] == "5"

    run(test)


def test_a_pull_cut_off_by_a_lost_connection_is_made_again() -> None:
    async def test(listener: FakeListener) -> None:
        def cut(peer: Peer, frame: Frame) -> None:
            peer.deliver(4, pull=frame.sequence)
            peer.transport.close()
            listener.on[M.PULL] = lambda peer, frame: peer.reply(frame, {"_count": "0"})

        listener.on[M.PULL] = cut
        async with listener.client() as client:
            assert await client.pull("s") == []
        assert len(listener.of(M.PULL)) == 2

    run(test)


@pytest.mark.parametrize(("count", "wait_ms"), [(0, 1), (1, -1)])
def test_a_pull_that_makes_no_sense_is_refused(count: int, wait_ms: int) -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            with pytest.raises(ConfigError, match="count ="):
                await client.pull("s", count, wait_ms)

    run(test)


# ---- coming back


def test_a_subscription_is_joined_again_and_late_acknowledgements_follow() -> None:
    async def test(listener: FakeListener) -> None:
        release = asyncio.Event()
        handled: list[tuple[int, int]] = []

        async def handler(message: AsyncMessage) -> None:
            await release.wait()
            handled.append((message.offset, message.delivery_count))

        async with listener.client() as client:
            await client.subscribe_to_subscription("s", handler, prefetch=7)
            for offset in range(3):
                listener.peer.deliver(offset)
            await client.describe_topics()  # by then the first is being handled
            listener.peer.drop()
            await listener.got(M.SUBSCRIBE, 2)
            listener.peer.deliver(1, count=2)
            release.set()
            await listener.until(lambda: len(handled) == 2)
            await client.unsubscribe_from_subscription("s")
        assert handled == [(0, 1), (1, 2)]  # what nobody had begun with was dropped
        assert listener.of(M.SUBSCRIBE)[1].properties == {"_subscription": "s", "_credit": "7"}
        kinds = [frame.type for frame in listener.peer.frames]
        assert kinds.index(M.SUBSCRIBE) < kinds.index(M.ACK)
        offsets = {frame.properties["_offsets"] for frame in listener.peer.frames if frame.type == M.ACK}
        assert offsets in ({"0-1"}, {"0", "1"})

    run(test)


def test_an_acknowledgement_without_a_reply_is_sent_again() -> None:
    async def test(listener: FakeListener) -> None:
        def drop_once(peer: Peer, frame: Frame) -> None:
            del listener.on[M.ACK]
            peer.drop()

        listener.on[M.ACK] = drop_once
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s", auto_ack=False)
            listener.peer.deliver(4)
            await (await anext(subscription)).ack()
        first, second = listener.of(M.ACK)
        assert first.properties == second.properties

    run(test)


def test_who_waits_for_a_confirmation_waits_as_long_as_for_any_request() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.ACK] = lambda peer, _: None
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s", auto_ack=False)
            listener.peer.deliver(4)
            message = await anext(subscription)
            assert client._parts is not None
            client._parts.settlements._timeout_s = 0.01
            with pytest.raises(TimedOut, match=r"did not confirm within 0\.01 s"):
                await message.ack()
            del listener.on[M.ACK]
            listener.peer.drop()
            await listener.got(M.ACK, 2)

    run(test)


def test_a_subscription_may_be_left_on_another_connection_than_it_was_joined_on() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.UNSUBSCRIBE] = lambda peer, frame: peer.refuse(frame, ErrorCode.UNKNOWN_MEMBER_ID)
        begun, release = asyncio.Event(), asyncio.Event()

        async def handle(_: AsyncMessage) -> None:
            begun.set()
            await release.wait()

        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s", handle)
            listener.peer.deliver(4)
            await begun.wait()
            leaving = asyncio.ensure_future(subscription.close())
            await asyncio.sleep(0)
            listener.peer.drop()
            await listener.until(lambda: len(listener.peers) == 2)
            await client.describe_topics()
            release.set()
            await leaving

    run(test)


def test_a_refusal_whose_connection_is_lost_has_no_meaning_any_more() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.NACK] = lambda peer, _: peer.drop()
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s", auto_ack=False)
            listener.peer.deliver(4)
            await (await anext(subscription)).nack()
            await listener.got(M.SUBSCRIBE, 2)
        assert len(listener.of(M.NACK)) == 1

    run(test)


def test_a_broker_that_still_sees_the_old_connection_is_asked_again() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s")

            def refuse_once(peer: Peer, frame: Frame) -> None:
                del listener.on[M.SUBSCRIBE]
                peer.refuse(frame, ErrorCode.GROUP_MAX_SIZE_REACHED, "exclusive")

            listener.on[M.SUBSCRIBE] = refuse_once
            listener.peer.drop()
            await listener.got(M.SUBSCRIBE, 3)
            listener.peer.deliver(0)
            assert (await anext(subscription)).offset == 0

    run(test)


def test_a_subscription_that_is_gone_ends_with_the_reason() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s")
            listener.on[M.SUBSCRIBE] = lambda peer, frame: peer.refuse(
                frame, ErrorCode.RESOURCE_NOT_FOUND, "no s"
            )
            listener.peer.drop()
            with pytest.raises(BrokerError, match="no s"):
                await anext(subscription)
            with pytest.raises(BrokerError, match="no s"):
                await subscription.wait_ended()

    run(test)


def test_without_a_policy_a_lost_connection_ends_the_iteration() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client(reconnect=None) as client:
            subscription = await client.subscribe_to_subscription("s")
            listener.peer.drop()
            with pytest.raises(ConnectionError):
                await anext(subscription)

    run(test)


# ---- notices, leases, bounds


def test_notices_are_told_and_a_deleted_subscription_ends() -> None:
    async def test(listener: FakeListener) -> None:
        told: list[Notice] = []
        async with listener.client(on_notice=told.append) as client:
            subscription = await client.subscribe_to_subscription("s")
            skipped = {
                "_subscription": "s",
                "_event": "skipped",
                "_partition": "0",
                "_count": "5",
                "_reason": "old",
            }
            listener.peer.send(write_frame(M.NOTICE, properties=skipped))
            listener.peer.send(write_frame(M.NOTICE, properties={"_subscription": "s", "_event": "deleted"}))
            with pytest.raises(BrokerError, match="was deleted"):
                await anext(subscription)
        assert told[0] == Notice(subscription="s", event="skipped", partition=0, count=5, reason="old")

    run(test)


def test_a_seek_drops_what_was_delivered_before_it() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s")
            listener.peer.deliver(8, epoch=3)
            listener.peer.send(write_frame(M.NOTICE, properties={"_subscription": "s", "_event": "seek"}))
            listener.peer.deliver(0, epoch=4)
            assert (await anext(subscription)).offset == 0

    run(test)


def test_messages_of_a_slow_handler_and_those_behind_it_are_kept() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.SUBSCRIBE] = lambda peer, frame: peer.reply(frame, {"_ack_timeout_ms": "60"})
        done = asyncio.Event()

        async def handler(message: AsyncMessage) -> None:
            await done.wait()

        async with listener.client() as client:
            await client.subscribe_to_subscription("s", handler)
            for offset in range(3):
                listener.peer.deliver(offset)
            extends = await listener.got(M.EXTEND, 2)
            done.set()
            await listener.got(M.ACK)
        assert extends[0].properties["_offsets"] == "0-2"
        assert extends[0].properties["_extend_ms"] == "60"

    run(test)


def test_leases_are_not_renewed_if_nobody_wants_that() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.SUBSCRIBE] = lambda peer, frame: peer.reply(frame, {"_ack_timeout_ms": "30"})
        async with listener.client() as client:
            await client.subscribe_to_subscription("s", extend=False)
            listener.peer.deliver(0)
            await asyncio.sleep(0.1)  # three timeouts, in which a renewal would have come
        assert not listener.of(M.EXTEND)

    run(test)


def test_a_broker_that_delivers_beyond_the_prefetch_does_not_fill_the_memory() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            subscription = await client.subscribe_to_subscription("s", prefetch=1)
            for offset in range(500):
                listener.peer.deliver(offset)
            await client.describe_topics()  # all of them have arrived
            assert (await anext(subscription)).offset == 500 - 102

    run(test)


def test_unsubscribing_waits_for_the_running_handler_and_its_acknowledgement() -> None:
    async def test(listener: FakeListener) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def handler(message: AsyncMessage) -> None:
            begun.set()
            await go_on.wait()

        async with listener.client() as client:
            await client.subscribe_to_subscription("s", handler)
            listener.peer.deliver(0)
            listener.peer.deliver(1)
            await begun.wait()
            leaving = asyncio.ensure_future(client.unsubscribe_from_subscription("s"))
            await client.describe_topics()
            assert not leaving.done()
            held: list[tuple[Peer, Frame]] = []
            listener.on[M.ACK] = lambda peer, frame: held.append((peer, frame))
            go_on.set()
            await listener.until(lambda: bool(held))
            for _ in range(2):
                await client.describe_topics()
            assert not listener.of(M.UNSUBSCRIBE)
            held[0][0].reply(held[0][1], {"_count": "1"})
            await leaving
        kinds = [frame.type for frame in listener.frames if frame.type in (M.ACK, M.UNSUBSCRIBE)]
        assert kinds == [M.ACK, M.UNSUBSCRIBE]
        assert listener.of(M.ACK)[0].properties["_offsets"] == "0"

    run(test)


def test_a_handler_may_leave_its_own_subscription() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:

            async def handler(message: AsyncMessage) -> None:
                await client.unsubscribe_from_subscription("s")

            subscription = await client.subscribe_to_subscription("s", handler)
            listener.peer.deliver(0)
            await listener.got(M.UNSUBSCRIBE)
            await subscription.wait_ended()

    run(test)


def test_disconnect_waits_for_automatic_acknowledgements() -> None:
    async def test(listener: FakeListener) -> None:
        def reply_later(peer: Peer, frame: Frame) -> None:
            asyncio.get_running_loop().call_later(0.05, peer.reply, frame, {"_count": "1"})

        listener.on[M.ACK] = reply_later
        client = listener.client()
        await client.connect()
        handled = asyncio.Event()
        await client.subscribe_to_subscription("s", lambda _: handled.set())
        listener.peer.deliver(0)
        await handled.wait()
        await client.disconnect()
        assert len(listener.of(M.ACK)) == 1

    run(test)


# ---- the small parts


@pytest.mark.parametrize(
    ("offsets", "ranges"),
    [
        ([5], [(5, 6)]),
        ([1, 2, 3], [(1, 4)]),
        ([3, 1, 2], [(1, 4)]),
        ([9, 5, 7, 8], [(5, 6), (7, 10)]),
        ([4, 4, 6], [(4, 5), (6, 7)]),
        ([1, 1, 3], [(1, 2), (3, 4)]),
        ([4, 4], [(4, 5)]),
    ],
)
def test_offsets_become_ranges(offsets: list[int], ranges: list[tuple[int, int]]) -> None:
    assert ranges_of(offsets) == ranges


def test_a_reason_is_made_fit_to_travel() -> None:
    assert clean_reason("a\0b\ud800" + "x" * 1_000) == "a b?" + "x" * 496
