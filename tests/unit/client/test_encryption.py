"""Encryption in the clients, against a broker in this process.

From each client to each other, tampering on the way, and what becomes of a refused record.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

import tailrace
from tailrace.client import (
    AsyncClient,
    BrokerClient,
    Consumer,
    ConsumerConfig,
    Encryption,
    KafkaClient,
    MessageConsumer,
    MessageProducer,
    Producer,
    ProducerConfig,
    ProducerRecord,
    TopicPartition,
)
from tailrace.client.error import ClientError
from tailrace.client.membership import GroupConfig
from tailrace.errors import ConfigError, DecryptionFailed
from tailrace.model import ErrorCode
from tailrace.records import Record
from tailrace.security.messages.envelope import ENVELOPE, ORIGIN

KEY, OTHER_KEY = bytes(range(32)), bytes(range(100, 132))
PATIENCE_S = 30.0

numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"orders{next(numbers)}"


def encryption(**changes: Any) -> Encryption:
    return Encryption(**{"keys": {"k1": KEY}, "active": "k1", **changes})


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def produce(
    broker: tailrace.Broker, topic: str, *records: tuple[bytes | None, bytes | None, Any], **settings: Any
) -> None:
    async with (
        KafkaClient(broker.bootstrap_servers) as client,
        Producer(client, ProducerConfig(), **settings) as producer,
    ):
        for key, value, headers in records:
            await (await producer.send(topic, value, key=key, headers=headers))


async def consume(broker: tailrace.Broker, topic: str, count: int, **settings: Any) -> list[Record]:
    config = ConsumerConfig(reset="earliest")
    async with (
        KafkaClient(broker.bootstrap_servers) as client,
        Consumer(client, config, **settings) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        return await polled(consumer, count)


async def polled(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        for records in (await consumer.poll(0.2)).values():
            found += records
    return found


def native(broker: tailrace.Broker, **settings: Any) -> AsyncClient:
    return AsyncClient("127.0.0.1", broker.native_port, **settings)


# ---- from each client to each other


def test_the_broker_and_a_client_without_keys_see_no_value(broker: tailrace.Broker, topic: str) -> None:
    run(produce(broker, topic, (b"k", b"secret", [("colour", b"red")]), encryption=encryption()))
    (raw,) = run(consume(broker, topic, 1))
    assert raw.key == b"k" and b"secret" not in raw.value and len(raw.value) == 6 + 16
    assert [name for name, _ in raw.headers] == ["colour", ENVELOPE, ORIGIN]
    (record,) = run(consume(broker, topic, 1, encryption=encryption()))
    assert (record.key, record.value, record.headers) == (b"k", b"secret", (("colour", b"red"),))


def test_clients_for_threads_take_an_encryption(broker: tailrace.Broker, topic: str) -> None:
    props = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic}
    props |= {"value.deserializer": "StringDeserializer"}
    written = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50}
    with MessageProducer(written, encryption=encryption()) as producer:
        for number in range(100):
            producer.send(ProducerRecord(topic, key=b"k", value=b"v%d" % number))
    with MessageConsumer(props, encryption=encryption()) as consumer:
        consumer.subscribe([topic])
        values: list[str] = []
        while len(values) < 100:
            values += [record.value for record in consumer.poll(200)]
        assert values == [f"v{number}" for number in range(100)]
        assert consumer.read_counts is not None and consumer.read_counts.opened == 100


def test_kafka_to_native_and_back(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await produce(
            broker,
            topic,
            (b"k", b"from kafka", [("colour", b"red")]),
            (b"\xff", None, []),
            encryption=encryption(),
        )
        async with native(broker, encryption=encryption()) as client:
            await client.publish(topic, "from native", key="k", properties={"colour": "blue"})
            await client.publish(topic, None, key=b"")
            await client.publish(topic, b"", headers=[("n", None), ("n", b"\x00")], partition=0)
            async with client.transaction() as tx:
                await tx.publish(topic, b"in a transaction", colour="green")
            await client.create_subscription("s" + topic, topic)
            messages = [(await client.pull("s" + topic))[0] for _ in range(6)]
            for message in messages:
                await message.ack()
        seen = [(each.key, None if each.is_tombstone else each.body, each.headers) for each in messages]
        assert seen == [
            (b"k", b"from kafka", [("colour", b"red")]),
            (b"\xff", None, []),
            (b"k", b"from native", [("colour", b"blue")]),
            (b"", None, []),
            (None, b"", [("n", None), ("n", b"\x00")]),
            (None, b"in a transaction", [("colour", b"green")]),
        ]
        assert messages[0].properties == {"colour": "red"} and messages[0].text == "from kafka"
        read = await consume(broker, topic, 6, encryption=encryption())
        assert [(each.key, each.value, list(each.headers)) for each in read] == seen

    run(work())


def test_a_blocking_client_and_its_handlers_see_what_was_meant(broker: tailrace.Broker, topic: str) -> None:
    settings: dict[str, Any] = {"host": "127.0.0.1", "port": broker.native_port, "encryption": encryption()}
    with BrokerClient(**settings) as client:
        client.publish_text(topic, "hello", colour="red")
        with client.subscribe(topic) as subscription:
            message = next(iter(subscription))
        assert (message.text, message.properties) == ("hello", {"colour": "red"})
        assert client.read_counts is not None and client.read_counts.opened == 1
    assert b"hello" not in b"".join(record.value or b"" for record in broker.read(topic))


def test_a_delayed_message_is_readable_when_it_is_due(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        async with native(broker, encryption=encryption()) as client:
            await client.create_topic(topic)
            await client.publish(topic, b"later", key=b"k", delay_ms=20)
            async for message in await client.subscribe(topic):
                assert (message.body, message.key) == (b"later", b"k")
                return

    run(work())


def test_a_rotated_key_reads_what_the_old_one_wrote(broker: tailrace.Broker, topic: str) -> None:
    rotated = encryption(keys={"k1": KEY, "k2": OTHER_KEY}, active="k2")
    run(produce(broker, topic, (None, b"old", []), encryption=encryption()))
    run(produce(broker, topic, (None, b"new", []), encryption=rotated))
    assert [each.value for each in run(consume(broker, topic, 2, encryption=rotated))] == [b"old", b"new"]
    with pytest.raises(
        DecryptionFailed, match=f"{topic}-0 offset 1 is not handed out: .* key k2.* Seek past it"
    ):
        run(consume(broker, topic, 2, encryption=encryption()))


def test_an_encrypted_record_is_not_encrypted_again(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await produce(broker, topic, (b"k", b"secret", []), encryption=encryption())
        (raw,) = await consume(broker, topic, 1)
        with pytest.raises(ClientError, match="has the header tailrace-encryption already"):
            await produce(broker, "copies", (raw.key, raw.value, raw.headers), encryption=encryption())
        async with native(broker, encryption=encryption()) as client:
            with pytest.raises(ConfigError, match="has the header tailrace-origin already"):
                await client.publish("copies", b"v", properties={ORIGIN: "orders"})

    run(work())


def test_nothing_leaves_in_plain_without_an_active_key(broker: tailrace.Broker, topic: str) -> None:
    reader = Encryption(keys={"k1": KEY, "k2": OTHER_KEY})

    async def work() -> None:
        with pytest.raises(ConfigError, match="active names none of them"):
            await produce(broker, topic, (None, b"v", []), encryption=reader)
        async with native(broker, encryption=reader) as client:
            with pytest.raises(ConfigError, match="active names none of them"):
                await client.publish(topic, b"v")
            with pytest.raises(ConfigError, match="active names none of them"):
                async with client.transaction() as tx:
                    await tx.publish(topic, b"v")

    run(work())
    with pytest.raises(ConfigError, match="active names none of them"):
        MessageProducer({"bootstrap.servers": broker.bootstrap_servers}, encryption=reader)


def test_a_record_too_large_once_it_is_encrypted_is_refused(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        async with KafkaClient(broker.bootstrap_servers) as client:
            config = ProducerConfig(request_bytes_max=1000)
            async with Producer(client, config, encryption=encryption()) as producer:
                with pytest.raises(tailrace.TailraceError, match=r"over max\.request\.size, 1000") as caught:
                    await producer.send(topic, b"v" * 900)
                assert getattr(caught.value, "code", None) == ErrorCode.MESSAGE_TOO_LARGE

    run(work())


def test_clients_without_encryption_do_not_import_ciphers() -> None:
    code = (
        "import sys, tailrace.errors\n"
        "from tailrace.client import BrokerClient, Consumer, MessageConsumer, MessageProducer, Producer\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'cryptography'])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


# ---- what becomes of a refused record


async def with_a_forged_record(broker: tailrace.Broker, topic: str) -> None:
    """Good, forged, good: the forged one has the key of the first."""
    await produce(broker, topic, (b"a", b"first", []), encryption=encryption())
    (raw,) = await consume(broker, topic, 1)
    await produce(broker, topic, (b"b", raw.value, raw.headers))
    await produce(broker, topic, (b"c", b"last", []), encryption=encryption())


def test_a_consumer_stays_in_front_of_a_refused_record(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        target = TopicPartition(topic, 0)
        async with KafkaClient(broker.bootstrap_servers) as client:
            config = ConsumerConfig(reset="earliest", group=GroupConfig(group=topic), auto_commit=False)
            async with Consumer(client, config, encryption=encryption()) as consumer:
                consumer.assign([target])
                assert [each.value for each in await polled(consumer, 1)] == [b"first"]
                for _ in range(2):
                    with pytest.raises(
                        DecryptionFailed, match=f"{topic}-0 offset 1 .*does not verify with key k1"
                    ):
                        await polled(consumer, 1)
                await consumer.commit()
                assert await consumer.committed([target]) == {target: 1}
                consumer.seek(target, 2)
                assert [each.value for each in await polled(consumer, 1)] == [b"last"]
                assert consumer.read_counts is not None
                assert (consumer.read_counts.opened, consumer.read_counts.failed.total()) == (2, 2)

    run(work())


def test_a_consumer_skips_and_counts(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        async with KafkaClient(broker.bootstrap_servers) as client:
            skipping = encryption(on_failure="skip")
            async with Consumer(client, ConsumerConfig(reset="earliest"), encryption=skipping) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                assert [each.value for each in await polled(consumer, 2)] == [b"first", b"last"]
                assert consumer.read_counts is not None and consumer.read_counts.skipped == 1

    run(work())


def test_a_consumer_writes_a_dead_letter_before_it_goes_on(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        async with KafkaClient(broker.bootstrap_servers) as client:
            config = ConsumerConfig(reset="earliest", group=GroupConfig(group=topic), auto_commit=False)
            burying = encryption(on_failure="dead-letter")
            async with Consumer(client, config, encryption=burying) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                assert [each.value for each in await polled(consumer, 2)] == [b"first", b"last"]
                await consumer.commit()
                assert list((await consumer.committed([TopicPartition(topic, 0)])).values()) == [3]
                assert consumer.read_counts is not None and consumer.read_counts.dead_letters == 1
        (letter,) = await consume(broker, f"{topic}.dlq", 1)
        headers = dict(letter.headers)
        assert (
            letter.key == b"b" and headers["_dlq_topic"] == topic.encode() and headers["_dlq_offset"] == b"1"
        )
        assert headers["_dlq_subscription"] == topic.encode()
        assert b"does not verify" in (headers["_dlq_reason"] or b"") and ENVELOPE in headers

    run(work())


def test_what_is_not_buried_is_not_committed_and_comes_again(
    broker: tailrace.Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        target = TopicPartition(topic, 0)
        async with KafkaClient(broker.bootstrap_servers) as client:
            config = ConsumerConfig(reset="earliest", group=GroupConfig(group=topic), auto_commit=False)
            burying = encryption(on_failure="dead-letter", dead_letter_topic="not legal")
            async with Consumer(client, config, encryption=burying) as consumer:
                consumer.assign([target])
                with pytest.raises(tailrace.TailraceError):
                    await polled(consumer, 1)
                await consumer.commit()
                assert await consumer.committed([target]) == {target: 0}
                burying.dead_letter_topic = "letters" + topic
                assert [each.value for each in await polled(consumer, 2)] == [b"first", b"last"]
        assert len(await consume(broker, "letters" + topic, 1)) == 1

    run(work())


def test_a_dead_letter_topic_does_not_bury_into_itself(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        burying = encryption(on_failure="dead-letter", dead_letter_topic=topic)
        with pytest.raises(ConfigError, match="is the dead-letter topic itself"):
            await consume(broker, topic, 2, encryption=burying)

    run(work())


def test_a_subscription_ends_at_a_refused_message(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        async with native(broker, encryption=encryption()) as client:
            subscription = await client.subscribe(topic, prefetch=1)
            assert (await anext(subscription)).body == b"first"
            with pytest.raises(DecryptionFailed, match=f"{topic}-0 offset 1 .*Set on_failure to dead-letter"):
                await anext(subscription)
            assert subscription.ended.is_set()
            assert not (await client.describe_subscription(subscription.name))["members"]

    run(work())


def test_a_pull_raises_at_a_refused_message_and_goes_on_behind_it(
    broker: tailrace.Broker, topic: str
) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        async with native(broker, encryption=encryption()) as client:
            await client.create_subscription("p" + topic, topic, max_deliveries=2, backoff_ms=60_000)
            assert [each.body for each in await client.pull("p" + topic, 10)] == [b"first"]
            with pytest.raises(DecryptionFailed, match=f"{topic}-0 offset 1"):
                await client.pull("p" + topic, 10)
            assert [each.body for each in await client.pull("p" + topic, 10)] == [b"last"]
            assert client.read_counts is not None and client.read_counts.failed.total() == 1

    run(work())


def test_a_native_client_skips_and_counts(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        async with native(broker, encryption=encryption(on_failure="skip")) as client:
            seen: list[bytes] = []
            done = asyncio.Event()

            def handle(message: Any) -> None:
                seen.append(message.body)
                if message.body == b"last":
                    done.set()

            await client.subscribe(topic, handle, name="n" + topic)
            await done.wait()
            assert seen == [b"first", b"last"]
            assert client.read_counts is not None and client.read_counts.skipped == 1
            await client.unsubscribe_from_subscription("n" + topic)
            state = await client.describe_subscription("n" + topic)
            assert state["partitions"][0]["position"] == 3, state

    run(work())


def test_the_broker_buries_what_a_native_client_refuses(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await with_a_forged_record(broker, topic)
        name = "d" + topic
        async with native(broker, encryption=encryption(on_failure="dead-letter")) as client:
            seen: list[bytes] = []
            await client.create_topic(f"{name}.dlq")
            await client.subscribe(
                topic, lambda message: seen.append(message.body), name=name, max_deliveries=2, backoff_ms=1
            )
            (letter,) = await consume(broker, f"{name}.dlq", 1)
            assert seen == [b"first", b"last"]
            headers = dict(letter.headers)
            assert headers["_dlq_topic"] == topic.encode()
            assert (headers["_dlq_reason"] or b"").startswith(b"message encryption: it does not verify")
            assert client.read_counts is not None and client.read_counts.dead_letters == 2

    run(work())


# ---- moved by the broker


def test_a_dead_letter_and_its_redrive_are_readable(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        name = "r" + topic
        async with native(broker, encryption=encryption()) as client:
            await client.publish(topic, b"secret", key=b"k")
            await client.create_topic(f"{name}.dlq")
            await client.create_subscription(name, topic, max_deliveries=1)
            (message,) = await client.pull(name, wait_ms=20_000)
            await message.nack(reason="not today")
            (letter,) = await consume(broker, f"{name}.dlq", 1, encryption=encryption())
            assert (letter.key, letter.value) == (b"k", b"secret")
            assert await client.redrive(name) == 1
            (again,) = await client.pull(name, wait_ms=20_000)
            assert (again.topic, again.body, again.key) == (f"{name}.dlq", b"secret", b"k")
            await again.ack()

    run(work())


def test_a_record_that_was_copied_to_another_topic_is_refused(broker: tailrace.Broker, topic: str) -> None:
    async def work() -> None:
        await produce(broker, topic, (b"k", b"secret", []), encryption=encryption())
        (raw,) = await consume(broker, topic, 1)
        await produce(broker, f"us.{topic}", (raw.key, raw.value, raw.headers))
        with pytest.raises(DecryptionFailed, match=r"was written to topic .* Set mirrors to the alias"):
            await consume(broker, f"us.{topic}", 1, encryption=encryption())
        (read,) = await consume(broker, f"us.{topic}", 1, encryption=encryption(mirrors=["us"]))
        assert read.value == b"secret"

    run(work())


def test_plain_records_are_refused_or_allowed(broker: tailrace.Broker, topic: str) -> None:
    run(produce(broker, topic, (None, b"plain", [])))
    with pytest.raises(DecryptionFailed, match="it is not encrypted, and encryption is required here"):
        run(consume(broker, topic, 1, encryption=encryption()))
    (record,) = run(consume(broker, topic, 1, encryption=encryption(policy="allow")))
    assert record.value == b"plain"


def test_random_bytes_do_not_open(broker: tailrace.Broker, topic: str) -> None:
    headers = [(ENVELOPE, b"1;k1;" + b"0" * 64 + b";" + b"0" * 24), (ORIGIN, topic.encode())]
    run(produce(broker, topic, *[(b"k", os.urandom(size), headers) for size in (0, 1, 15, 16, 17, 1000)]))
    with pytest.raises(DecryptionFailed):
        run(consume(broker, topic, 1, encryption=encryption()))
