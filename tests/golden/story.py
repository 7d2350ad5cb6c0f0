"""A server that a golden directory is written with, and every way of writing to it.

Each way tells the account what it did. Where a client chooses the bytes it is somebody else's, or our own;
`produce_raw` sends one batch exactly as it is.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from tests.golden import wire
from tests.golden.account import Account, Header, Place
from tests.golden.opening import BROKER_SETTINGS, client_of, http_of, post
from tests.interop.deadline import wait_until
from tests.interop.raw import connect
from tests.interop.server import ServerProcess

from tailrace.client import BrokerClient, Message, MessageProducer, ProducerRecord
from tailrace.records import Compression, build_batch

_FOREVER = {"retention.ms": "-1"}
_HEADERS: list[Header] = [("trace", b"1"), ("empty", b""), ("none", None), ("trace", b"2")]

Record = tuple[bytes | None, bytes | None]
"""Key and value."""


class Story:
    """One server on one directory, and the account of what happened to it."""

    def __init__(self, place: Path, *, account: Account | None = None) -> None:
        self.place = place
        self.account = account or Account()
        self._held: list[Message] = []
        eager = {**BROKER_SETTINGS, "retention.check.interval.ms": 200}  # so that compaction gets to work
        self.server = ServerProcess(place / "data", broker=eager)

    @property
    def http(self) -> str:
        return http_of(self.server.data_dir)

    def client(self) -> BrokerClient:
        return client_of(self.server.data_dir)

    # ---- topics

    def create(self, name: str, partitions: int, **configs: str) -> None:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        post(
            f"{self.http}/topics", {"name": name, "partitions": partitions, "configs": {**_FOREVER, **dotted}}
        )

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            assert future.result(30).low_watermark == before

    def command(self, *arguments: str) -> None:
        """One `tailrace` command against the server."""
        subprocess.run(
            [sys.executable, "-m", "tailrace", *arguments, "--bootstrap", self.server.bootstrap],
            check=True,
            cwd=self.place,
            stdout=subprocess.DEVNULL,
        )

    # ---- producing

    def produce_confluent(
        self,
        topic: str,
        partition: int,
        records: Iterable[Record],
        *,
        at_ms: int,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": 50,
            }
        )
        for number, (key, value) in enumerate(records):
            headers: list[Header] = _HEADERS if number % 2 else []
            producer.produce(
                topic,
                value,
                key,
                partition,
                timestamp=at_ms + number,
                headers=list(headers),
                on_delivery=partial(self._delivered, (key, value), headers),
            )
        assert producer.flush(30) == 0

    def _delivered(self, record: Record, headers: list[Header], error: Any, message: Any) -> None:
        assert error is None, error
        self.account.sent((message.topic(), message.partition(), message.offset()), *record, headers)

    def produce_kafka_python(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.server.bootstrap, compression_type="gzip", linger_ms=50
        )
        futures = [(value, producer.send(topic, value, partition=partition)) for value in values]
        producer.flush(30)
        for value, future in futures:
            self.account.sent((topic, partition, future.get(30).offset), None, value, [])
        producer.close()

    def produce_own(self, topic: str, partition: int, values: Iterable[bytes]) -> None:
        properties = {
            "bootstrap.servers": self.server.bootstrap,
            "compression.type": "zstd",
            "key.serializer": "BytesSerializer",
            "value.serializer": "BytesSerializer",
        }
        with MessageProducer(properties) as producer:
            futures = [
                (value, producer.send(ProducerRecord(topic, partition, b"own", value))) for value in values
            ]
            producer.flush()
            for value, future in futures:
                self.account.sent((topic, partition, future.result().offset), b"own", value, [])

    def produce_raw(
        self,
        topic: str,
        partition: int,
        values: list[bytes],
        *,
        at_ms: int,
        producer: tuple[int, int] = (-1, -1),
        sequence: int = -1,
        codec: Compression = Compression.NONE,
    ) -> int:
        """One batch, as it is; returns its base offset."""
        batch = build_batch(
            [(at_ms + number, b"raw", value, ()) for number, value in enumerate(values)],
            compression=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
        with connect(self.server.bootstrap) as connection:
            error, base = wire.produce(connection, topic, partition, bytes(batch))
        assert error == 0, error
        for number, value in enumerate(values):
            self.account.sent((topic, partition, base + number), b"raw", value, [])
        return base

    # ---- groups

    def commit(self, group: str, offsets: list[TopicPartition]) -> None:
        consumer = Consumer({"bootstrap.servers": self.server.bootstrap, "group.id": group})
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    def join(self, group: str, topic: str, offsets: Mapping[int, int]) -> Consumer:
        """A member of a group that has every partition of a topic, and has committed."""
        consumer = Consumer(
            {"bootstrap.servers": self.server.bootstrap, "group.id": group, "enable.auto.commit": False}
        )
        consumer.subscribe([topic])

        def assigned() -> bool:
            consumer.poll(0.1)
            return len(consumer.assignment()) == len(offsets)

        wait_until(assigned, within_s=60, what=f"{group} was given nothing")
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=wanted, asynchronous=False)
        return consumer

    # ---- native

    def publish(self, client: BrokerClient, topic: str, text: str, **given: Any) -> None:
        published = client.publish(topic, text, **given)
        key = given.get("key")
        headers = [(name, value.encode()) for name, value in (given.get("properties") or {}).items()]
        place = (topic, published.partition, published.offset)
        self.account.sent(place, key and key.encode(), text.encode(), headers)

    def pull(self, client: BrokerClient, subscription: str, count: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < count:
            got = client.pull(subscription, count - len(taken), wait_ms=10_000)
            assert got, f"{subscription} gave {len(taken)} of {count} messages"
            taken += got
        self._held += taken
        return taken

    def lose_held(self) -> None:
        """A client is gone without a word: every message that it held counts as a failed delivery."""
        for message in self._held:
            if not message.is_settled:
                self.account.failed(message.subscription, place_of(message))
        self._held.clear()

    def acknowledge(self, message: Message) -> None:
        message.ack()
        self.account.settled(message.subscription, place_of(message))

    def refuse(self, message: Message, *, reason: str = "", is_dead: bool = False) -> None:
        message.nack(delay_ms=0, reason=reason)
        if is_dead:
            self.account.settled(message.subscription, place_of(message))
        else:
            self.account.failed(message.subscription, place_of(message))


def place_of(message: Message) -> Place:
    return message.topic, message.partition, message.offset
