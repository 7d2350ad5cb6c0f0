"""What a subscription says of itself: everything is there, in numbers that are right, and fit for JSON."""

from __future__ import annotations

import json

from tailrace.broker.publishing import NewMessage
from tailrace.broker.subscriptions import describe, summarize
from tailrace.model import Offset
from tailrace.records import build_batch, read_batch

from .rig import Rig, play


def test_a_summary_is_one_line() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=2)
        work = await rig.subscribe(mode="key_shared")
        await rig.publish(b"a", b"b")
        await rig.publish(b"c", partition=1)
        expected = {
            "name": "work",
            "topic": "orders",
            "mode": "key_shared",
            "state": "idle",
            "member_count": 0,
            "members": 0,
            "lag": 3,
            "unacknowledged": 0,
        }
        assert summarize(work) == expected
        ann = rig.join(work, credit=2)
        await rig.turns()
        await ann.ack(ann.got[0].record.offset, partition=ann.got[0].source.partition)
        await rig.turns()
        assert summarize(work) == expected | {
            "state": "active",
            "member_count": 1,
            "members": 1,
            "lag": 2,
            "unacknowledged": 2,
        }

    play(scenario)


def test_a_description_tells_everything() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        created_ms = rig.clock.now_ms()
        work = await rig.subscribe(max_deliveries=2, backoff_ms=10, unacked_max=3)
        ann = rig.join(work)
        await rig.publish(b"a", ttl_ms="1")
        rig.clock.advance(5)
        await rig.publish(b"b", b"c", b"d", b"e")
        await rig.turns()
        await ann.ack(2)
        ann.nack(1)
        await rig.advance(10)
        shown = describe(work)
        assert json.loads(json.dumps(shown)) == shown
        assert shown["state"] == "paused" and "unacked_max" in shown["reason"]
        assert shown["settings"] == {"max_deliveries": "2", "backoff_ms": "10", "unacked_max": "3"}
        assert (shown["dead_letter_topic"], shown["created_ms"]) == ("work.dlq", created_ms)
        assert shown["members"] == [{"name": "ann", "held": 3, "credit": 100}]
        assert (shown["in_flight"], shown["unacknowledged"], shown["retry_buffer_bytes"] > 0) == (3, 3, True)
        assert (shown["delivered"], shown["redelivered"], shown["acknowledged"]) == (5, 1, 1)
        assert (shown["dead"], shown["expired"], shown["skipped"]) == (0, 1, 0)
        assert shown["partitions"] == [
            {
                "topic": "orders",
                "partition": 0,
                "position": 1,
                "acknowledged_beyond": 1,
                "end_offset": 5,
                "end": 5,
                "lag": 3,
                "in_flight": 3,
                "unacknowledged": 3,
                "epoch": 0,
                "error": "",
            }
        ]

    play(scenario)


def test_trouble_with_a_partition_is_shown_and_hides_nothing_else() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic(partitions=2)
        work = await rig.subscribe()
        ann = rig.join(work)
        await rig.publish(b"a")
        await rig.publish(b"b", partition=1)
        await rig.turns()
        rig.partition(0).close()
        await rig.turns()
        first, second = describe(work)["partitions"]
        assert "not available" in first["error"] and (first["end"], first["lag"]) == (0, 0)
        assert (second["error"], second["lag"]) == ("", 1)
        assert summarize(work)["lag"] == 1 and len(ann.got) == 2

    play(scenario)


def test_dead_letters_are_listed_as_people_can_read_them() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(b"text", key=b"k")
        raw_headers = [("trace", b"7"), ("raw", b"\xff"), ("none", None)]
        rig.broker.publisher.publish(rig.partition(), [NewMessage(b"\xfa", b"\xff\xfe", raw_headers)])
        await rig.publish(None)
        await rig.turns()
        ann.nack(0, 1, 2, reason="no")
        await rig.wait_until(lambda: work.dead == 3)
        listed = await rig.broker.subscriptions.dead_letters("work", 10)
        assert listed[0] == {
            "offset": 0,
            "timestamp": rig.clock.now_ms(),
            "key": "k",
            "value": "text",
            "headers": [
                {"name": "_dlq_subscription", "value": "work"},
                {"name": "_dlq_topic", "value": "orders"},
                {"name": "_dlq_partition", "value": "0"},
                {"name": "_dlq_offset", "value": "0"},
                {"name": "_dlq_reason", "value": "no"},
                {"name": "_dlq_deliveries", "value": "1"},
                {"name": "_dlq_time", "value": str(rig.clock.now_ms())},
            ],
            "origin": {"topic": "orders", "partition": 0, "offset": 0},
            "reason": "no",
            "delivery_count": 1,
            "deliveries": 1,
        }
        raw, tombstone = listed[1:]
        assert (raw["key"], raw["key_encoding"]) == ("+g==", "base64")
        assert (raw["value"], raw["value_encoding"]) == ("//4=", "base64")
        assert raw["headers"][:3] == [
            {"name": "trace", "value": "7"},
            {"name": "raw", "value": "/w==", "encoding": "base64"},
            {"name": "none", "value": None},
        ]
        assert (tombstone["key"], tombstone["value"]) == (None, None)
        assert "value_encoding" not in listed[0] and "value_encoding" not in tombstone
        assert json.loads(json.dumps(listed)) == listed

    play(scenario)


def test_no_more_dead_letters_are_listed_than_wanted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(max_deliveries=1)
        ann = rig.join(work)
        await rig.publish(*[b"%d" % number for number in range(20)])
        await rig.turns()
        ann.nack(*range(20))
        await rig.wait_until(lambda: work.dead == 20)
        dead_letters = rig.broker.subscriptions.dead_letters
        assert [each["value"] for each in await dead_letters("work", 3)] == ["0", "1", "2"]
        assert await dead_letters("work", 0) == []
        await rig.partition(topic="work.dlq").delete_records(18)
        assert [each["value"] for each in await dead_letters("work", 10)] == ["18", "19"]

    play(scenario)


def test_what_others_wrote_into_the_topic_is_listed_too() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic("work.dlq")
        await rig.subscribe()
        await rig.publish(b"by hand", topic="work.dlq")
        broken = build_batch([(rig.clock.now_ms(), None, b"v", ())] * 2)
        broken[61:] = b"\xff" * (len(broken) - 61)
        rig.partition(topic="work.dlq").append(read_batch(broken))
        await rig.publish(b"last", topic="work.dlq")
        listed = await rig.broker.subscriptions.dead_letters("work", 10)
        assert [each["value"] for each in listed] == ["by hand", "last"]

    play(scenario)


def test_dead_letters_are_listed_up_to_the_last_stable_offset() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        await rig.topic("work.dlq")
        await rig.subscribe()
        for value in (b"first", b"second"):
            await rig.publish(value, topic="work.dlq")
        rig.partition(topic="work.dlq").last_stable_offset = Offset(1)
        listed = await rig.broker.subscriptions.dead_letters("work", 10)
        assert [each["value"] for each in listed] == ["first"]

    play(scenario)


def test_a_shared_dead_letter_topic_gives_each_subscription_its_own() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        first = await rig.subscribe("first", max_deliveries=1, dead_letter_topic="dead")
        second = await rig.subscribe("second", max_deliveries=1, dead_letter_topic="dead")
        ann, ben = rig.join(first), rig.join(second, "ben")
        await rig.publish(b"0", b"1")
        await rig.turns()
        ann.nack(0)
        await rig.wait_until(lambda: first.dead == 1)
        ben.nack(1)
        await rig.wait_until(lambda: second.dead == 1)
        dead_letters = rig.broker.subscriptions.dead_letters
        assert [each["value"] for each in await dead_letters("first", 10)] == ["0"]
        assert [each["value"] for each in await dead_letters("second", 10)] == ["1"]
        await second.redrive()
        await rig.wait_until(lambda: ben.has(3))
        await rig.turns()
        assert ben.values == [b"0", b"1", b"1"]

    play(scenario)
