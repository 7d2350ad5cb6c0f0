"""Publishing with AsyncClient against a scripted listener: frames, coalescing, order, what is sent again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from tests.unit.client.native.conftest import FakeListener, M, Peer, entries_of, run

from tailrace.client.error import TimedOut
from tailrace.client.native.error import BrokerGone, InvalidMessage
from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.kafka.partitioner import partition_of_key
from tailrace.wire.native import Frame


def test_a_lone_message_is_a_publish_and_learns_its_place() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            published = await client.publish("t", b"one", key="k", properties={"colour": "red", "n": 7})
        assert (published.topic, published.partition, published.offset) == ("t", 0, 0)
        assert published.id == "cafe-0-0"
        assert published.timestamp == 1_000
        (frame,) = listener.of(M.PUBLISH)
        assert frame.properties == {
            "_topic": "t",
            "_partition": "0",
            "_producer": "1",
            "_sequence": "0",
            "_key": "k",
            "colour": "red",
            "n": "7",
        }
        assert bytes(frame.body) == b"one"

    run(test)


def test_messages_of_one_turn_leave_as_one_frame_and_one_reply_answers_all() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.publish("t", b"first")
            sent = [client.publish("t", b"%d" % n, properties={"n": n}) for n in range(20)]
            published = await asyncio.gather(*sent)
        (frame,) = listener.of(M.PUBLISH_BATCH)
        assert frame.properties["_sequence"] == "1"
        assert frame.properties["_count"] == "20"
        assert entries_of(frame)[3] == ({"n": "3"}, b"3")
        assert [each.offset for each in published] == list(range(1, 21))
        assert published[4].id == "cafe-0-5"

    run(test)


def test_many_messages_are_stored_once_and_in_order() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client(in_flight_max=100) as client:
            published = await asyncio.gather(*(client.publish("t", b"%d" % n) for n in range(3_000)))
        assert listener.log["t", 0] == [b"%d" % n for n in range(3_000)]
        assert [each.offset for each in published] == list(range(3_000))

    run(test)


def test_no_more_is_unanswered_than_allowed() -> None:
    async def test(listener: FakeListener) -> None:
        held: list[tuple[Peer, Frame]] = []
        listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = lambda peer, frame: held.append((peer, frame))
        async with listener.client(in_flight_max=3) as client:
            tasks = [asyncio.ensure_future(client.publish("t", b"x")) for _ in range(5)]
            await listener.until(lambda: bool(held))
            assert sum(len(entries_of(frame)) for _, frame in held) == 3
            listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = listener.publish
            for peer, frame in held:
                listener.publish(peer, frame)
            await asyncio.gather(*tasks)
        assert len(listener.log["t", 0]) == 5

    run(test)


def test_no_more_bytes_are_unanswered_than_allowed_but_a_large_message_goes_alone() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client(in_flight_bytes_max=1_000) as client:
            published = await asyncio.gather(*(client.publish("t", b"x" * 5_000) for _ in range(3)))
        assert [each.offset for each in published] == [0, 1, 2]
        assert len(listener.of(M.PUBLISH)) == 3

    run(test)


def test_a_key_chooses_the_partition_as_kafka_does_and_the_others_take_turns() -> None:
    async def test(listener: FakeListener) -> None:
        listener.topics["wide"] = 4
        async with listener.client() as client:
            with_key = await client.publish("wide", b"x", key=b"customer-7")
            others = [(await client.publish("wide", b"x")).partition for _ in range(8)]
            told = await client.publish("wide", b"x", partition=3, key=b"customer-7")
            assert client.topics == {"wide": 4}
        assert with_key.partition == partition_of_key(b"customer-7", partitions=4)
        assert sorted(others) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert told.partition == 3
        assert len(listener.of(M.DESCRIBE)) == 1

    run(test)


def test_a_topic_that_does_not_exist_yet_is_published_to_and_asked_for_again() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            assert (await client.publish("new", b"x")).partition == 0
            assert client.topics == {}
            await client.publish("new", b"y")
            assert client.topics == {"new": 1}
        assert listener.log["new", 0] == [b"x", b"y"]

    run(test)


def test_keys_and_headers_that_are_not_text_and_tombstones() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.publish("t", None, key=b"\xff")
            await client.publish("t", "grüße", headers=[("h", b"\xff"), ("h", None)], properties={"p": "v"})
        first, second = listener.of(M.PUBLISH)
        assert (first.properties["_key64"], first.properties["_null"], bytes(first.body)) == (
            "/w==",
            "1",
            b"",
        )
        assert "_headers" in second.properties
        assert second.properties["p"] == "v"
        assert bytes(second.body) == "grüße".encode()

    run(test)


def test_delayed_messages_go_alone_under_numbers_of_their_own() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.PUBLISH] = lambda peer, frame: peer.reply(
            frame, {"_partition": "-1", "_offset": "-1", "_id": "d-1"}
        )
        async with listener.client() as client:
            published = await client.publish("t", b"x", delay_ms=500, ttl_ms=9, priority=7, created_at=5)
            await client.publish("t", b"x", deliver_at=datetime(2030, 1, 1, tzinfo=UTC))
            await client.publish_text("t", "x", delay_ms=1)
        assert (published.partition, published.offset, published.id) == (-1, -1, "d-1")
        first, second, third = listener.of(M.PUBLISH)
        numbers = [
            (each.properties["_producer"], each.properties["_sequence"]) for each in (first, second, third)
        ]
        assert [sequence for _, sequence in numbers] == ["0", "1", "2"]
        assert len({producer for producer, _ in numbers}) == 1
        assert first.properties == {
            "_topic": "t",
            "_producer": numbers[0][0],
            "_sequence": "0",
            "delay_ms": "500",
            "ttl_ms": "9",
            "priority": "7",
            "created_at": "5",
        }
        assert second.properties["deliver_at"] == "1893456000000"
        assert third.properties["delay_ms"] == "1"

    run(test)


def test_a_delayed_message_is_repeated_under_its_number_after_a_lost_connection() -> None:
    async def test(listener: FakeListener) -> None:
        def first_time(peer: Peer, frame: Frame) -> None:
            listener.on[M.PUBLISH] = lambda peer, frame: peer.reply(
                frame, {"_partition": "-1", "_offset": "-1"}
            )
            peer.drop()

        listener.on[M.PUBLISH] = first_time
        async with listener.client() as client:
            await client.publish("t", b"x", delay_ms=500)
        lost, again = listener.of(M.PUBLISH)
        assert lost.properties == again.properties
        assert lost.properties["_sequence"] == "0"

    run(test)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"properties": {"_mine": "x"}}, 'begins with "_"'),
        ({"priority": 10}, "priority = 10 is not between 0 and 9"),
        ({"delay_ms": -1}, "delay_ms = -1 is below 0"),
    ],
)
def test_what_cannot_be_a_message_is_refused_before_it_is_sent(
    settings: dict[str, object], text: str
) -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            with pytest.raises(InvalidMessage, match=text):
                await client.publish("t", b"x", **settings)  # type: ignore[arg-type]
        assert not listener.of(M.PUBLISH)

    run(test)


@pytest.mark.parametrize("properties", [{"a=b": "x"}, {"": "x"}, {"a": "nul\0"}, {"a": "\ud800"}])
def test_properties_that_cannot_be_encoded_are_refused(properties: dict[str, str]) -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            with pytest.raises(BrokerError) as caught:
                await client.publish("t", b"x", properties=properties)
            assert caught.value.code == ErrorCode.INVALID_REQUEST
            await client.publish("t", b"the client goes on")
        assert listener.log["t", 0] == [b"the client goes on"]

    run(test)


def test_a_message_over_the_frame_limit_is_refused_here() -> None:
    async def test(listener: FakeListener) -> None:
        listener.hello["_frame_bytes_max"] = "10000"
        async with listener.client() as client:
            with pytest.raises(BrokerError, match="larger than the") as caught:
                await client.publish("t", b"x" * 9_000)
            assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
            await client.publish("t", b"x" * 1_000)

    run(test)


def test_an_unanswered_message_is_sent_again_with_its_sequence_and_stored_once() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.publish("t", b"zero")

            def store_and_drop(peer: Peer, frame: Frame) -> None:
                listener.store(peer, frame)
                listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = listener.publish
                peer.drop()

            listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = store_and_drop
            await asyncio.gather(*(client.publish("t", b"%d" % n) for n in range(3)))
            await client.publish("t", b"last")
        assert listener.log["t", 0] == [b"zero", b"0", b"1", b"2", b"last"]
        first, second = listener.of(M.PUBLISH_BATCH)
        assert first.properties == second.properties
        assert len(listener.peers) == 2
        assert listener.producers == 1

    run(test)


def test_messages_published_while_there_is_no_connection_wait_and_keep_their_order() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.publish("t", b"zero")
            held: list[Frame] = []
            listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = lambda _, frame: held.append(frame)
            early = [asyncio.ensure_future(client.publish("t", b"a%d" % n)) for n in range(3)]
            await listener.until(lambda: bool(held))
            await listener.close()
            late = [asyncio.ensure_future(client.publish("t", b"b%d" % n, partition=0)) for n in range(3)]
            listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = listener.publish
            await listener.open()
            await asyncio.gather(*early, *late)
        assert listener.log["t", 0] == [b"zero", b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]

    run(test)


def test_a_retriable_refusal_is_tried_again_without_loss_or_change_of_order() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.publish("t", b"zero")
            refusals = 0

            def busy_at_first(peer: Peer, frame: Frame) -> None:
                nonlocal refusals
                if refusals < 2 and frame.properties["_sequence"] == "1":
                    refusals += 1
                    peer.refuse(frame, ErrorCode.THROTTLING_QUOTA_EXCEEDED, "busy", retriable=True)
                else:
                    listener.publish(peer, frame)

            listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = busy_at_first
            published = await asyncio.gather(*(client.publish("t", b"%d" % n) for n in range(300)))
        assert refusals == 2
        assert listener.log["t", 0] == [b"zero", *(b"%d" % n for n in range(300))]
        assert [each.offset for each in published] == list(range(1, 301))
        assert listener.producers == 1

    run(test)


def test_one_bad_message_fails_alone_and_its_neighbours_are_stored_once() -> None:
    async def test(listener: FakeListener) -> None:
        def refuse_bad(peer: Peer, frame: Frame) -> None:
            if any(body == b"bad" for _, body in entries_of(frame)):
                peer.refuse(frame, ErrorCode.MESSAGE_TOO_LARGE, "too large")
            else:
                listener.publish(peer, frame)

        listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = refuse_bad
        async with listener.client() as client:
            await client.publish("t", b"zero")
            bodies = [b"bad" if n == 70 else b"%d" % n for n in range(200)]
            results = await asyncio.gather(*(client.publish("t", b) for b in bodies), return_exceptions=True)
            await client.publish("t", b"last")
        failed = [n for n, result in enumerate(results) if isinstance(result, BaseException)]
        assert failed == [70]
        assert isinstance(results[70], BrokerError)
        assert results[70].code == ErrorCode.MESSAGE_TOO_LARGE
        assert sorted(listener.log["t", 0]) == sorted([b"zero", b"last", *(b for b in bodies if b != b"bad")])

    run(test)


def test_a_broker_that_knows_another_sequence_gets_the_messages_from_a_new_producer() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.publish("t", b"zero")
            listener.sequences["t", 0, "1"] = 0  # as if it had lost the newest batches
            listener.log["t", 0].clear()
            await asyncio.gather(*(client.publish("t", b"%d" % n) for n in range(100)))
        assert listener.log["t", 0] == [b"%d" % n for n in range(100)]
        assert listener.producers == 2

    run(test)


def test_a_broker_that_never_takes_the_sequence_is_believed_in_the_end() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.PUBLISH] = lambda peer, frame: peer.refuse(
            frame, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        async with listener.client() as client:
            with pytest.raises(BrokerError) as caught:
                await client.publish("t", b"x")
            assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            listener.on[M.PUBLISH] = listener.publish
            await client.publish("t", b"y")
        assert listener.log["t", 0] == [b"y"]

    run(test)


def test_an_unknown_topic_is_an_error_and_forgotten() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.publish("t", b"x")
            listener.on[M.PUBLISH] = lambda peer, frame: peer.refuse(
                frame, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"
            )
            with pytest.raises(BrokerError, match=r"gone \(UNKNOWN_TOPIC_OR_PARTITION\)"):
                await client.publish("t", b"x")
            assert client.topics == {}

    run(test)


def test_a_topic_made_anew_with_fewer_partitions_is_asked_for_again() -> None:
    async def test(listener: FakeListener) -> None:
        listener.topics["t"] = 3

        def publish(peer: Peer, frame: Frame) -> None:
            if int(frame.properties["_partition"]) < listener.topics["t"]:
                listener.publish(peer, frame)
            else:
                peer.refuse(frame, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t has 1 partitions")

        listener.on[M.PUBLISH] = publish
        async with listener.client() as client:
            await client.publish("t", b"0")
            listener.topics["t"] = 1
            for number in range(1, 5):
                assert (await client.publish("t", b"%d" % number)).partition == 0
            with pytest.raises(BrokerError, match="t has 1 partitions"):
                await client.publish("t", b"there", partition=2)
        assert listener.log["t", 0] == [b"0", b"1", b"2", b"3", b"4"]

    run(test)


def test_what_was_refused_for_now_and_stored_is_not_stored_again_because_of_another() -> None:
    async def test(listener: FakeListener) -> None:
        held: list[tuple[Peer, Frame]] = []

        def refuse_bad(peer: Peer, frame: Frame) -> None:
            if bytes(frame.body) == b"bad":
                peer.refuse(frame, ErrorCode.MESSAGE_TOO_LARGE)
            else:
                listener.publish(peer, frame)

        async with listener.client() as client:
            await client.publish("t", b"0")
            listener.on[M.PUBLISH] = lambda peer, frame: held.append((peer, frame))
            slow = asyncio.ensure_future(client.publish("t", b"slow"))
            await listener.until(lambda: len(held) == 1)
            bad = asyncio.ensure_future(client.publish("t", b"bad"))
            await listener.until(lambda: len(held) == 2)
            listener.on[M.PUBLISH] = refuse_bad
            (peer, first), (_, second) = held
            listener.store(peer, first)
            peer.refuse(first, ErrorCode.REQUEST_TIMED_OUT, retriable=True)
            peer.refuse(second, ErrorCode.MESSAGE_TOO_LARGE)
            await slow
            with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
                await bad
            await client.publish("t", b"1")
        assert listener.log["t", 0] == [b"0", b"slow", b"1"]

    run(test)


def test_the_first_flight_of_a_lane_goes_alone_until_it_is_taken() -> None:
    async def test(listener: FakeListener) -> None:
        held: list[tuple[Peer, Frame]] = []
        listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = lambda peer, frame: held.append((peer, frame))
        async with listener.client() as client:
            first = asyncio.ensure_future(client.publish("t", b"0"))
            await listener.until(lambda: len(held) == 1)
            second = asyncio.ensure_future(client.publish("t", b"1"))
            for _ in range(2):
                await client.describe_topics()  # round trips: the second would have arrived before the last
            assert len(held) == 1
            listener.on[M.PUBLISH] = listener.on[M.PUBLISH_BATCH] = listener.publish
            listener.publish(*held[0])
            await asyncio.gather(first, second)

    run(test)


def test_a_cancelled_message_that_has_not_left_is_never_sent() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client() as client:
            await client.publish("t", b"zero")
            tasks = [asyncio.ensure_future(client.publish("t", b"%d" % n)) for n in range(3)]
            tasks[1].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[1], asyncio.CancelledError)
            waiting = asyncio.ensure_future(client.publish("t", b"x"))
            await asyncio.sleep(0)  # it is in its lane, and the lane has not sent
            waiting.cancel()
            await client.publish("t", b"last")
        assert listener.log["t", 0] == [b"zero", b"0", b"2", b"last"]

    run(test)


def test_what_is_not_confirmed_in_time_is_given_up() -> None:
    async def test(listener: FakeListener) -> None:
        async with listener.client(publish_timeout_s=0.05) as client:
            await client.publish("t", b"zero")
            listener.on[M.PUBLISH] = lambda _, frame: None
            with pytest.raises(TimedOut, match=r"did not confirm a message to t-0 within 0\.05 s"):
                await client.publish("t", b"lost")
            listener.on[M.PUBLISH] = listener.publish
            await client.publish("t", b"next")
        assert listener.log["t", 0] == [b"zero", b"next"]

    run(test)


def test_replies_may_come_in_another_order() -> None:
    async def test(listener: FakeListener) -> None:
        held: list[tuple[Peer, Frame]] = []
        async with listener.client() as client:
            await asyncio.gather(client.publish("t", b"zero"), client.publish("u", b"zero"))
            listener.on[M.PUBLISH] = lambda peer, frame: held.append((peer, frame))
            first = asyncio.ensure_future(client.publish("t", b"first"))
            second = asyncio.ensure_future(client.publish("u", b"second", partition=0))
            await listener.until(lambda: len(held) == 2)
            described = await client.describe_topics()
            for peer, frame in reversed(held):
                listener.publish(peer, frame)
            assert [(await each).topic for each in (first, second)] == ["t", "u"]
            assert described["what"] == "topics"

    run(test)


def test_without_a_policy_a_lost_connection_fails_what_is_unanswered() -> None:
    async def test(listener: FakeListener) -> None:
        listener.on[M.PUBLISH] = lambda peer, _: peer.drop()
        async with listener.client(reconnect=None) as client:
            with pytest.raises(BrokerGone, match="closed the connection"):
                await client.publish("t", b"x")
            with pytest.raises(ConnectionError, match=r"127.0.0.1:\d+"):
                await client.publish("t", b"x", partition=0)

    run(test)
