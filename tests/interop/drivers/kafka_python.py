"""kafka-python as a driver."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka.errors
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from tests.interop.drivers.lines import Reader, Refused, Row, Rows, decode, encode, serve

_POLL_MS = 100
_STRATEGIES = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class Driver:
    """One method per command."""

    def __init__(self, bootstrap: str) -> None:
        """Nothing connects yet."""
        self._bootstrap = bootstrap
        self._producers: dict[tuple[object, ...], Any] = {}
        self._readers: dict[str, Reader[Any]] = {}
        self._admin_client: Any = None

    def do_produce(self, topic: str, messages: list[Row], every_ms: int, **how: Any) -> list[Any]:
        producer = self._producer(**how)
        futures = []
        with errors():
            for row in messages:
                future = producer.send(
                    topic,
                    value=decode(row["value"]),
                    key=decode(row["key"]),
                    headers=[(name, decode(value)) for name, value in row["headers"]],
                    partition=row["partition"],
                    timestamp_ms=row["timestamp_ms"],
                )
                futures.append(future)
                if every_ms:
                    time.sleep(every_ms / 1000)
            reports = [future.get(how["timeout_ms"] / 1000 + 5) for future in futures]
        return [(report.partition, report.offset) for report in reports]

    def _producer(
        self, codec: str, acks: int, idempotent: bool, linger_ms: int, bytes_max: int, timeout_ms: int
    ) -> Any:
        key = (codec, acks, idempotent, linger_ms, bytes_max, timeout_ms)
        if key not in self._producers:
            self._producers[key] = KafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                acks=acks,
                enable_idempotence=idempotent,
                linger_ms=linger_ms,
                max_request_size=bytes_max,
                delivery_timeout_ms=timeout_ms,
                request_timeout_ms=5000,
                reconnect_backoff_max_ms=500,
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
        limits = {} if fetch_bytes_max is None else {"max_partition_fetch_bytes": fetch_bytes_max}
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            group_instance_id=instance_id,
            enable_auto_commit=False,
            auto_offset_reset=reset,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=1000,
            reconnect_backoff_max_ms=500,
            partition_assignment_strategy=(_STRATEGIES[strategy],),
            **limits,
        )
        reader: Reader[Any] = Reader(consumer, poll)
        if assign is not None:
            take_position(consumer, assign)
        else:
            consumer.subscribe(topics=topics, pattern=pattern, listener=Listener(reader.revoked))
        self._readers[handle] = reader
        reader.start()

    def do_poll(self, handle: str, count: int, timeout_ms: int) -> list[Row]:
        return self._readers[handle].rows.take(count, timeout_ms)

    def do_assignment(self, handle: str) -> list[Any]:
        return [list(each) for each in self._readers[handle].call(lambda consumer: consumer.assignment())]

    def do_revoked(self, handle: str) -> list[Any]:
        return self._readers[handle].revoked

    def do_commit(self, handle: str, offsets: list[Any]) -> None:
        rows = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, -1)
            for topic, partition, offset, metadata in offsets
        }
        with errors():
            self._readers[handle].call(lambda consumer: consumer.commit(rows))

    def do_close(self, handle: str) -> None:
        self._readers.pop(handle).stop().close(autocommit=False)

    @property
    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        return self._admin_client

    def do_create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        new = {"num_partitions": partitions, "replication_factor": replication_factor, "configs": configs}
        with errors():
            self._admin.create_topics({topic: new})

    def do_delete_topic(self, topic: str) -> None:
        with errors():
            self._admin.delete_topics([topic])

    def do_topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def do_add_partitions(self, topic: str, total: int) -> None:
        with errors():
            self._admin.create_partitions({topic: total})

    def do_configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with errors():
            found = self._admin.describe_configs([resource], config_filter="all")
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def do_set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        with errors():
            answer = self._admin.alter_configs([resource], raise_on_unknown=False)
            check(answer["topic"][topic])

    def do_offset_at(self, topic: str, partition: int, at: int | str) -> int:
        where = TopicPartition(topic, partition)
        spec = {"earliest": -2, "latest": -1}[at] if isinstance(at, str) else at
        with errors():
            return int(self._admin.list_partition_offsets({where: spec})[where].offset)

    def do_delete_records(self, topic: str, partition: int, before: int) -> int:
        where = TopicPartition(topic, partition)
        with errors():
            return int(self._admin.delete_records({where: before})[where]["low_watermark"])

    def do_groups(self) -> list[str]:
        return [group["group_id"] for group in self._admin.list_groups()]

    def do_describe_group(self, group: str) -> Row:
        with errors():
            found = self._admin.describe_groups([group])[group]
        return {
            "state": found["group_state"],
            "protocol": found["protocol_data"],
            "members": len(found["members"]),
        }

    def do_group_offsets(self, group: str) -> list[Any]:
        with errors():
            found = self._admin.list_group_offsets({group: None})[group]
        return [(*where, each.offset, each.metadata) for where, each in found.items()]

    def do_delete_group(self, group: str) -> None:
        with errors():
            check(self._admin.delete_groups([group])[group])


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it is not typed
    """Notes what a rebalance takes away."""

    def __init__(self, revoked: list[tuple[str, int]]) -> None:
        """The list that it adds to."""
        self._revoked = revoked

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._revoked += [tuple(each) for each in revoked]

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Nothing to note."""


def take_position(consumer: Any, assign: list[Any]) -> None:
    """Assign, and know every position before anything is produced."""
    consumer.assign([TopicPartition(topic, partition) for topic, partition, _ in assign])
    for topic, partition, start in assign:
        where = TopicPartition(topic, partition)
        if start == "earliest":
            consumer.seek_to_beginning(where)
        elif start == "latest":
            consumer.seek_to_end(where)
        else:
            consumer.seek(where, start)
        consumer.position(where)


def poll(consumer: Any, rows: Rows) -> None:
    """One read."""
    coordinator = consumer._coordinator
    if coordinator is not None and coordinator.rejoining:
        coordinator.request_rejoin()  # kafka-python 3.0 forgets a join that ends between two short polls
    for records in consumer.poll(_POLL_MS).values():
        for record in records:
            rows.put(
                {
                    "topic": record.topic,
                    "partition": record.partition,
                    "offset": record.offset,
                    "key": encode(record.key),
                    "value": encode(record.value),
                    "headers": [[name, encode(value)] for name, value in record.headers],
                    "timestamp_ms": record.timestamp,
                }
            )


@contextmanager
def errors() -> Iterator[None]:
    """kafka-python's errors as the driver's."""
    try:
        yield
    except KafkaError as error:
        raise Refused(str(error), getattr(error, "errno", None)) from error


def check(outcome: str) -> None:
    """Some admin calls return an error in words instead of raising it."""
    if outcome != "OK":
        number = re.match(r"\[Error (\d+)\]", outcome)
        named = getattr(getattr(kafka.errors, outcome, None), "errno", None)
        raise Refused(outcome, int(number[1]) if number else named)


if __name__ == "__main__":
    serve(Driver(sys.argv[1]))
