"""confluent-kafka (librdkafka) as a driver."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.interop.drivers.lines import Reader, Refused, Row, Rows, decode, encode, serve

_POLL_S = 0.1
_ADMIN_S = 20
_STARTS = {"earliest": -2, "latest": -1}


class Driver:
    """One method per command."""

    def __init__(self, bootstrap: str) -> None:
        """Nothing connects yet."""
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 2}
        self._producers: dict[tuple[object, ...], Producer] = {}
        self._readers: dict[str, Reader[Any]] = {}
        self._admin_client: Any = None

    def do_produce(self, topic: str, messages: list[Row], every_ms: int, **how: Any) -> list[Any]:
        producer = self._producer(**how)
        placed: list[Any] = [None] * len(messages)

        def delivered(index: int, error: KafkaError | None, message: Any) -> None:
            placed[index] = error or (message.partition(), message.offset())

        for index, row in enumerate(messages):
            fields: Row = {"headers": [(name, decode(value)) for name, value in row["headers"]]}
            if row["partition"] is not None:
                fields["partition"] = row["partition"]
            if row["timestamp_ms"] is not None:
                fields["timestamp"] = row["timestamp_ms"]
            producer.produce(
                topic,
                decode(row["value"]),
                decode(row["key"]),
                on_delivery=partial(delivered, index),
                **fields,
            )
            producer.poll(0)
            if every_ms:
                time.sleep(every_ms / 1000)
        producer.flush(how["timeout_ms"] / 1000 + 5)
        for result in placed:
            if result is None:
                raise Refused("no report for a message", None)
            if isinstance(result, KafkaError):
                raise refused(result)
        return placed

    def _producer(
        self, codec: str, acks: int, idempotent: bool, linger_ms: int, bytes_max: int, timeout_ms: int
    ) -> Producer:
        key = (codec, acks, idempotent, linger_ms, bytes_max, timeout_ms)
        if key not in self._producers:
            self._producers[key] = Producer(
                {
                    **self._common,
                    "compression.type": codec,
                    "acks": acks,
                    "enable.idempotence": idempotent,
                    "linger.ms": linger_ms,
                    "message.max.bytes": bytes_max,
                    "delivery.timeout.ms": timeout_ms,
                    "request.timeout.ms": 5000,
                    "reconnect.backoff.max.ms": 500,
                }
            )
        return self._producers[key]

    def do_open(
        self,
        handle: str,
        assign: list[Any] | None,
        topics: list[str],
        pattern: str | None,
        group: str | None,
        instance_id: str | None,
        strategy: str,
        reset: str,
        session_ms: int,
        fetch_bytes_max: int | None,
    ) -> None:
        config: dict[str, Any] = {
            **self._common,
            "group.id": group or "none",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": strategy,
            "topic.metadata.refresh.interval.ms": 1000,
            "reconnect.backoff.max.ms": 500,
        }
        if instance_id is not None:
            config["group.instance.id"] = instance_id
        if fetch_bytes_max is not None:
            config["fetch.message.max.bytes"] = fetch_bytes_max
        consumer = Consumer(config)
        reader: Reader[Any] = Reader(consumer, poll)
        if assign is not None:
            wanted = []
            for topic, partition, start in assign:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), _ADMIN_S)
                offset = {"earliest": low, "latest": high}.get(start, start)
                wanted.append(TopicPartition(topic, partition, offset))
            consumer.assign(wanted)
        else:

            def revoke(consumer: Any, partitions: list[Any]) -> None:
                reader.revoked += [(each.topic, each.partition) for each in partitions]

            subscribed = topics if pattern is None else ["^" + pattern.removeprefix("^")]
            consumer.subscribe(subscribed, on_revoke=revoke, on_lost=revoke)
        self._readers[handle] = reader
        reader.start()

    def do_poll(self, handle: str, count: int, timeout_ms: int) -> list[Row]:
        return self._readers[handle].rows.take(count, timeout_ms)

    def do_assignment(self, handle: str) -> list[Any]:
        assigned = self._readers[handle].call(lambda consumer: consumer.assignment())
        return [(each.topic, each.partition) for each in assigned]

    def do_revoked(self, handle: str) -> list[Any]:
        return self._readers[handle].revoked

    def do_commit(self, handle: str, offsets: list[Any]) -> None:
        rows = [
            TopicPartition(topic, partition, offset, metadata)
            for topic, partition, offset, metadata in offsets
        ]
        try:
            results = self._readers[handle].call(
                lambda consumer: consumer.commit(offsets=rows, asynchronous=False)
            )
        except KafkaException as error:
            raise refused(error.args[0]) from error
        for result in results:
            if result.error:
                raise refused(result.error)

    def do_close(self, handle: str) -> None:
        self._readers.pop(handle).stop().close()

    @property
    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = AdminClient(self._common)
        return self._admin_client

    def do_create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        new = NewTopic(topic, partitions, replication_factor, config=configs)
        wait(self._admin.create_topics([new], request_timeout=_ADMIN_S))

    def do_delete_topic(self, topic: str) -> None:
        wait(self._admin.delete_topics([topic], request_timeout=_ADMIN_S))

    def do_topics(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=_ADMIN_S).topics.values()
        return {topic.topic: len(topic.partitions) for topic in listed}

    def do_add_partitions(self, topic: str, total: int) -> None:
        wait(self._admin.create_partitions([NewPartitions(topic, total)], request_timeout=_ADMIN_S))

    def do_configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = wait(self._admin.describe_configs([resource], request_timeout=_ADMIN_S))
        return {name: entry.value for name, entry in entries.items()}

    def do_set_config(self, topic: str, name: str, value: str) -> None:
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        wait(self._admin.incremental_alter_configs([resource], request_timeout=_ADMIN_S))

    def do_offset_at(self, topic: str, partition: int, at: int | str) -> int:
        offsets: Any = OffsetSpec
        spec = getattr(offsets, at)() if isinstance(at, str) else offsets.for_timestamp(at)
        where = TopicPartition(topic, partition)
        return int(wait(self._admin.list_offsets({where: spec}, request_timeout=_ADMIN_S)).offset)

    def do_delete_records(self, topic: str, partition: int, before: int) -> int:
        deleted = self._admin.delete_records(
            [TopicPartition(topic, partition, before)], request_timeout=_ADMIN_S
        )
        return int(wait(deleted).low_watermark)

    def do_groups(self) -> list[str]:
        listed = result(self._admin.list_consumer_groups(request_timeout=_ADMIN_S))
        return [group.group_id for group in listed.valid]

    def do_describe_group(self, group: str) -> Row:
        found = wait(self._admin.describe_consumer_groups([group], request_timeout=_ADMIN_S))
        state = "".join(word.capitalize() for word in found.state.name.split("_"))
        return {"state": state, "protocol": found.partition_assignor, "members": len(found.members)}

    def do_group_offsets(self, group: str) -> list[Any]:
        wanted = [ConsumerGroupTopicPartitions(group)]
        found = wait(self._admin.list_consumer_group_offsets(wanted, request_timeout=_ADMIN_S))
        return [
            (each.topic, each.partition, each.offset, each.metadata or "") for each in found.topic_partitions
        ]

    def do_delete_group(self, group: str) -> None:
        wait(self._admin.delete_consumer_groups([group], request_timeout=_ADMIN_S))


def poll(consumer: Any, rows: Rows) -> None:
    """One read."""
    message = consumer.poll(_POLL_S)
    if message is None:
        return
    if message.error():
        if not message.error().retriable():
            rows.put(refused(message.error()))
        return
    rows.put(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "key": encode(message.key()),
            "value": encode(message.value()),
            "headers": [[name, encode(value)] for name, value in message.headers() or []],
            "timestamp_ms": message.timestamp()[1],
        }
    )


def wait(futures: dict[Any, Any]) -> Any:
    """The one result of an admin call for one thing."""
    (future,) = futures.values()
    return result(future)


def result(future: Any) -> Any:
    """What it answered, with its errors as ours."""
    try:
        return future.result(_ADMIN_S + 5)
    except KafkaException as error:
        raise refused(error.args[0]) from error


def refused(error: KafkaError) -> Refused:
    """librdkafka's own errors have negative codes; a fatal one names its cause in words only."""
    code = error.code() if error.code() > 0 else None
    if error.code() == KafkaError._FATAL and "Static consumer fenced" in error.str():
        code = KafkaError.FENCED_INSTANCE_ID
    return Refused(f"{error.name()}: {error.str()}", code)


if __name__ == "__main__":
    serve(Driver(sys.argv[1]))
