"""PUBLISH and PUBLISH_BATCH over real sockets: what is stored, as which batches, and what is answered."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from tests.unit.native.rig import TOPIC, Client, Refused, Rig, both_loops, play, refused

from tailrace.broker.topic import NewTopic
from tailrace.model import ErrorCode, StorageError
from tailrace.native import NativeConfig
from tailrace.wire.native import Frame, MessageType, write_entries, write_frame, write_properties

PUBLISH = MessageType.PUBLISH
PUBLISH_BATCH = MessageType.PUBLISH_BATCH


def publishes(client: Client, count: int, **properties: str) -> tuple[list[int], bytes]:
    """Several PUBLISH frames in one piece, and their sequences."""
    made = [client.frame(PUBLISH, {"_topic": TOPIC, **properties}, b"%d" % number) for number in range(count)]
    return [sequence for sequence, _ in made], b"".join(frame for _, frame in made)


@both_loops
def test_a_message_is_stored_and_its_place_is_told(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await rig.create_topic()
        await client.publish(b"first")
        reply = await client.publish(b"second", _key="k", colour="red")
        topic = rig.broker.topics.get(TOPIC)
        assert topic is not None
        assert reply.properties == {
            "_partition": "0",
            "_offset": "1",
            "_id": f"{topic.id.hex[:12]}-0-1",
        }
        _, batch = await rig.batches()
        (record,) = batch.records()
        assert (record.key, record.value, record.headers) == (b"k", b"second", (("colour", b"red"),))
        assert record.timestamp == reply.timestamp > 0

    play(scenario, uv=uv)


def test_a_topic_is_made_by_publishing_and_the_order_is_kept() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        sequences, data = publishes(client, 5)
        client.writer.write(data)
        replies = [await client.reply(sequence) for sequence in sequences]
        assert [reply.properties["_offset"] for reply in replies] == ["0", "1", "2", "3", "4"]
        assert await rig.values() == [b"0", b"1", b"2", b"3", b"4"]
        topic = rig.broker.topics.get(TOPIC)
        assert topic is not None and topic.settings.append_time and len(topic.partitions) == 1

    play(scenario)


@both_loops
def test_messages_of_one_read_are_one_batch_with_a_reply_each(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        sequences, data = publishes(client, 200)
        client.writer.write(data)
        replies = [await client.reply(sequence) for sequence in sequences]
        assert [int(reply.properties["_offset"]) for reply in replies] == list(range(200))
        batches = await rig.batches()
        assert [batch.count for batch in batches] == [200]

    play(scenario, uv=uv)


def test_a_frame_that_arrives_byte_by_byte_is_served() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        sequence, frame = client.frame(PUBLISH, {"_topic": TOPIC}, b"slowly")
        for byte in frame:
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        await client.reply(sequence)
        assert await rig.values() == [b"slowly"]

    play(scenario)


def test_what_is_published_is_stored_before_the_next_request_is_applied() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        sequences, data = publishes(client, 3)
        described, question = client.frame(MessageType.DESCRIBE, {"_what": "topic", "_name": TOPIC})
        more, rest = publishes(client, 2)
        client.writer.write(data + question + rest)
        answer = await client.reply(described)
        assert b'"end":3' in bytes(answer.body)
        for sequence in (*sequences, *more):
            await client.reply(sequence)
        assert [batch.count for batch in await rig.batches()] == [3, 2]

    play(scenario)


def test_several_partitions_and_producers_share_a_read() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic(_partitions=2)
        client = await rig.connect()
        frames, sequences = [], []
        for partition, producer, number in ((0, 7, 0), (1, 7, 0), (0, 7, 1), (0, 8, 0), (0, 8, 1)):
            properties = {
                "_topic": TOPIC,
                "_partition": str(partition),
                "_producer": str(producer),
                "_sequence": str(number),
            }
            sequence, frame = client.frame(PUBLISH, properties, b"%d-%d" % (producer, number))
            frames.append(frame)
            sequences.append(sequence)
        client.writer.write(b"".join(frames))
        for sequence in sequences:
            await client.reply(sequence)
        assert [batch.count for batch in await rig.batches()] == [2, 2]
        assert await rig.values() == [b"7-0", b"7-1", b"8-0", b"8-1"]
        assert await rig.values(partition=1) == [b"7-0"]

    play(scenario)


def test_only_sequences_that_follow_each_other_share_a_batch() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        made = [
            client.frame(
                PUBLISH, {"_topic": TOPIC, "_producer": str(producer), "_sequence": str(number)}, b"x"
            )
            for producer, number in ((7, 0), (7, 1), (7, 0), (7, 1), (7, 2), (8, 3), (8, 4))
        ]
        client.writer.write(b"".join(frame for _, frame in made))
        offsets = [(await client.reply(sequence)).properties["_offset"] for sequence, _ in made]
        assert offsets == ["0", "1", "0", "1", "2", "3", "4"]
        stored = [(batch.producer_id, batch.base_sequence, batch.count) for batch in await rig.batches()]
        assert stored == [(7, 0, 2), (7, 2, 1), (8, 3, 2)]

    play(scenario)


def test_what_follows_a_publish_that_makes_its_topic_waits_for_it() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        published, one = client.frame(PUBLISH, {"_topic": TOPIC}, b"x")
        described, two = client.frame(MessageType.DESCRIBE, {"_what": "topic", "_name": TOPIC})
        client.writer.write(one + two)
        assert b'"end":1' in bytes((await client.reply(described)).body)
        await client.reply(published)

    play(scenario)


def test_keys_choose_the_partition_and_messages_without_one_take_turns() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic(_partitions=4)
        client = await rig.connect()
        same = {(await client.publish(b"x", _key="k")).properties["_partition"] for _ in range(5)}
        assert len(same) == 1
        turns = {(await client.publish(b"x")).properties["_partition"] for _ in range(8)}
        assert turns == {"0", "1", "2", "3"}
        assert (await client.publish(b"x", _partition=3)).properties["_partition"] == "3"

    play(scenario)


def test_a_reply_waits_until_the_message_is_durable() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        rig.log().hold()
        published = client.send(PUBLISH, b"x", _topic=TOPIC)
        await client.ask(MessageType.DESCRIBE, _what="topics")  # is not held up
        assert not client.kept
        assert rig.connection_of(client).protocol.unanswered == 1
        rig.log().settle()
        await client.reply(published)
        assert rig.connection_of(client).protocol.unanswered == 0

    play(scenario)


def test_what_never_becomes_durable_is_an_error() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        rig.log().hold()
        sequences = [client.send(PUBLISH, b"x", _topic=TOPIC) for _ in range(2)]
        await client.ask(MessageType.DESCRIBE, _what="topics")
        rig.log().fail(StorageError("sync", "/d/journal", "input/output error"))
        for sequence in sequences:
            with pytest.raises(Refused) as caught:
                await client.reply(sequence)
            refused(caught, ErrorCode.KAFKA_STORAGE_ERROR, "input/output error")
            assert caught.value.retriable

    play(scenario)


def test_durability_that_takes_too_long_is_an_error() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        rig.log().hold()
        published = client.send(PUBLISH, b"x", _topic=TOPIC)
        with pytest.raises(Refused) as caught:
            await client.reply(published)
        refused(caught, ErrorCode.REQUEST_TIMED_OUT)
        rig.log().settle()  # which comes late and disturbs nobody
        await client.publish(b"y")

    play(scenario, config=NativeConfig(request_timeout_s=0.05, heartbeat_interval_ms=100))


def test_without_a_sequence_nothing_is_answered() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        for topic in (TOPIC, "no/topic"):
            client.writer.write(write_frame(PUBLISH, properties={"_topic": topic}, body=b"quiet"))
        await client.ask(MessageType.DESCRIBE, _what="topics")
        assert not client.kept
        assert await rig.values() == [b"quiet"]

    play(scenario)


def test_the_clients_own_time_is_kept_as_a_property() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for extra in ({}, {"created_at": "then"}, {"_headers": base64.b64encode(b'[["h",null]]').decode()}):
            sequence, frame = client.frame(PUBLISH, {"_topic": TOPIC, **extra}, b"x", timestamp=41)
            client.writer.write(frame)
            await client.reply(sequence)
        headers = [record.headers for batch in await rig.batches() for record in batch.records()]
        assert headers == [(("created_at", b"41"),), (("created_at", b"then"),), (("h", None),)]

    play(scenario)


def test_a_message_without_a_value_is_a_tombstone() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.publish(b"", _key="k", _null=1)
        assert await rig.values() == [None]

    play(scenario)


def batch_frame(
    client: Client, *entries: tuple[dict[str, str], bytes], **properties: str
) -> tuple[int, bytes]:
    body = write_entries([(write_properties(each), value) for each, value in entries])
    return client.frame(PUBLISH_BATCH, {"_topic": TOPIC, "_count": str(len(entries)), **properties}, body)


async def publish_batch(client: Client, *entries: tuple[dict[str, str], bytes], **properties: str) -> Frame:
    sequence, frame = batch_frame(client, *entries, **properties)
    client.writer.write(frame)
    return await client.reply(sequence)


def test_a_batch_has_one_reply() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        await client.publish(b"before")
        reply = await publish_batch(
            client, ({}, b"a"), ({"_key": "k", "c": "d"}, b"b"), ({"_null": "1"}, b"")
        )
        assert (reply.properties["_offset"], reply.properties["_count"]) == ("1", "3")
        assert reply.properties["_id"].endswith("-0-1")
        records = [record for batch in await rig.batches() for record in batch.records()][1:]
        assert [(each.key, each.value) for each in records] == [(None, b"a"), (b"k", b"b"), (None, None)]
        assert records[1].headers == (("c", b"d"),)

    play(scenario)


def test_a_batch_without_a_partition_goes_where_its_keys_belong() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic(_partitions=4)
        client = await rig.connect()
        alone = await client.publish(b"x", _key="a")
        together = await publish_batch(client, ({"_key": "a"}, b"1"), ({"_key": "a"}, b"2"))
        assert together.properties["_partition"] == alone.properties["_partition"]
        with pytest.raises(Refused) as caught:
            await publish_batch(client, *[({"_key": f"k{n}"}, b"x") for n in range(20)])
        refused(caught, ErrorCode.INVALID_REQUEST, "several partitions")

    play(scenario)


def test_a_message_of_a_batch_cannot_be_delayed() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        with pytest.raises(Refused) as caught:
            await publish_batch(client, ({}, b"a"), ({"delay_ms": "5"}, b"b"))
        refused(caught, ErrorCode.INVALID_REQUEST, "delayed")

    play(scenario)


def test_what_a_producer_sends_again_is_stored_once() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        hello = await client.ask(MessageType.HEARTBEAT, _producer="new")
        producer = hello.properties["_producer"]
        await client.publish(b"a", _producer=producer, _sequence=0)
        again = await client.publish(b"a", _producer=producer, _sequence=0)
        assert again.properties["_offset"] == "0"
        both = await publish_batch(client, ({}, b"a"), ({}, b"b"), _producer=producer, _sequence="0")
        assert both.properties["_offset"] == "0" and both.properties["_count"] == "2"
        assert await rig.values() == [b"a", b"b"]
        with pytest.raises(Refused) as caught:
            await client.publish(b"d", _producer=producer, _sequence=5)
        refused(caught, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    play(scenario)


def test_one_message_too_large_leaves_its_neighbours_alone() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic(**{"max.message.bytes": 2000})
        client = await rig.connect()
        made = [client.frame(PUBLISH, {"_topic": TOPIC}, body) for body in (b"a", b"x" * 3000, b"b")]
        client.writer.write(b"".join(frame for _, frame in made))
        (first, _), (large, _), (last, _) = made
        await client.reply(first)
        await client.reply(last)
        with pytest.raises(Refused) as caught:
            await client.reply(large)
        refused(caught, ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes")
        assert await rig.values() == [b"a", b"b"]

    play(scenario)


def test_one_message_without_a_key_leaves_its_neighbours_alone() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic(**{"cleanup.policy": "compact"})
        client = await rig.connect()
        keyed, one = client.frame(PUBLISH, {"_topic": TOPIC, "_key": "k"}, b"a")
        bare, two = client.frame(PUBLISH, {"_topic": TOPIC}, b"b")
        client.writer.write(one + two)
        await client.reply(keyed)
        with pytest.raises(Refused) as caught:
            await client.reply(bare)
        refused(caught, ErrorCode.INVALID_RECORD)

    play(scenario)


@pytest.mark.parametrize(
    ("properties", "code", "words"),
    [
        ({}, ErrorCode.INVALID_REQUEST, "_topic"),
        ({"_topic": ""}, ErrorCode.INVALID_REQUEST, "_topic"),
        ({"_topic": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "a b"),
        ({"_topic": "__consumer_offsets"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "belongs to the broker"),
        ({"_topic": TOPIC, "_partition": "7"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "7"),
        ({"_topic": TOPIC, "_partition": "-1"}, ErrorCode.INVALID_REQUEST, "_partition"),
        ({"_topic": TOPIC, "_partition": "٣"}, ErrorCode.INVALID_REQUEST, "_partition"),
        ({"_topic": TOPIC, "_producer": "1"}, ErrorCode.INVALID_REQUEST, "_sequence"),
        ({"_topic": TOPIC, "_sequence": "1"}, ErrorCode.INVALID_REQUEST, "_producer"),
        (
            {"_topic": TOPIC, "_producer": "1", "_sequence": str(1 << 31)},
            ErrorCode.INVALID_REQUEST,
            "_sequence",
        ),
        ({"_topic": TOPIC, "_key": "a", "_key64": "YQ=="}, ErrorCode.INVALID_REQUEST, "_key64"),
        ({"_topic": TOPIC, "_key64": "!"}, ErrorCode.INVALID_REQUEST, "base64"),
        ({"_topic": TOPIC, "_headers": "e30="}, ErrorCode.INVALID_REQUEST, "_headers"),
        ({"_topic": TOPIC, "_null": "1"}, ErrorCode.INVALID_REQUEST, "_null"),
        ({"_topic": TOPIC, "delay_ms": "soon"}, ErrorCode.INVALID_REQUEST, "delay_ms"),
        ({"_topic": TOPIC, "delay_ms": "1", "deliver_at": "1"}, ErrorCode.INVALID_REQUEST, "once"),
    ],
)
def test_a_publish_that_makes_no_sense_is_refused_and_the_connection_goes_on(
    properties: dict[str, str], code: ErrorCode, words: str
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create_topic()
        client = await rig.connect()
        with pytest.raises(Refused) as caught:
            await client.ask(PUBLISH, b"x", **properties)
        refused(caught, code, words)
        await client.publish(b"sense")
        assert await rig.values() == [b"sense"]

    play(scenario)


def test_topics_are_not_made_where_that_is_forbidden() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        with pytest.raises(Refused) as caught:
            await client.publish(b"x")
        refused(caught, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    play(scenario, values={"auto.create.topics.enable": "false"})


def test_a_delayed_message_has_no_place_until_it_is_due() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        reply = await client.publish(b"later", delay_ms=3_600_000)
        assert (reply.properties["_partition"], reply.properties["_offset"]) == ("-1", "-1")
        await client.publish(b"now", delay_ms=0)
        await client.publish(b"soon", delay_ms=20)
        await rig.wait_until(lambda: rig.log().end_offset == 2)
        assert await rig.values() == [b"now", b"soon"]

    play(scenario)


def test_a_delay_holds_beside_exact_headers() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        exact = base64.b64encode(b'[["h",null]]').decode()
        reply = await client.publish(b"later", delay_ms=3_600_000, _headers=exact)
        assert reply.properties["_offset"] == "-1"

    play(scenario)


def test_what_was_answered_is_there_after_a_restart(tmp_path: Path) -> None:
    async def before(rig: Rig) -> None:
        client = await rig.connect()
        sequences, data = publishes(client, 50)
        client.writer.write(data)
        for sequence in sequences:
            await client.reply(sequence)

    async def after(rig: Rig) -> None:
        assert await rig.values() == [b"%d" % number for number in range(50)]
        client = await rig.connect()
        assert (await client.publish(b"x")).properties["_offset"] == "50"

    play(before, after, directory=tmp_path)


def test_what_pipelines_tell_of_themselves_can_be_published_as_on_every_listener() -> None:
    async def scenario(rig: Rig) -> None:
        name = "__tailrace_pipelines"
        new = NewTopic(name=name, partitions=1, configs={"cleanup.policy": "compact"})
        await rig.broker.topics.create(new)
        client = await rig.connect()
        reply = await client.ask(PUBLISH, b"{}", _topic=name, _key="run")
        assert reply.properties["_offset"] == "0"

    play(scenario)
