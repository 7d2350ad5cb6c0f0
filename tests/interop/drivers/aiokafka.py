"""aiokafka as a driver: its loop runs in a thread beside the one that answers commands."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    OffsetAndMetadata,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError, for_code
from tests.interop.drivers.lines import Refused, Row, Rows, decode, encode, serve

R = TypeVar("R")


class Member:
    """A consumer, the task that reads it, and what it read."""

    def __init__(self, consumer: Any) -> None:
        """The task starts once the consumer has."""
        self.consumer = consumer
        self.rows = Rows()
        self.revoked: list[tuple[str, int]] = []
        self.task: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                batches = await self.consumer.getmany(timeout_ms=100)
            except KafkaError as error:
                self.rows.put(refused(error))
                await asyncio.sleep(0.2)
                continue
            for records in batches.values():
                for record in records:
                    self.rows.put(row(record))


class Driver:
    """One method per command."""

    def __init__(self, bootstrap: str) -> None:
        """Only the loop starts; nothing connects yet."""
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._producers: dict[tuple[object, ...], Any] = {}
        self._members: dict[str, Member] = {}
        self._admin_client: Any = None

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        with errors():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(40)

    def do_produce(self, topic: str, messages: list[Row], every_ms: int, **how: Any) -> list[Any]:
        return self._run(self._produce(topic, messages, every_ms, **how))

    async def _produce(self, topic: str, messages: list[Row], every_ms: int, **how: Any) -> list[Any]:
        producer = await self._producer(**how)
        futures = []
        for each in messages:
            future = await producer.send(
                topic,
                value=decode(each["value"]),
                key=decode(each["key"]),
                headers=[(name, decode(value)) for name, value in each["headers"]],
                partition=each["partition"],
                timestamp_ms=each["timestamp_ms"],
            )
            futures.append(future)
            if every_ms:
                await asyncio.sleep(every_ms / 1000)
        if how["acks"] == 0:
            await producer.flush()
            return []
        reports = await asyncio.gather(*futures)
        return [(report.partition, report.offset) for report in reports]

    async def _producer(
        self, codec: str, acks: int, idempotent: bool, linger_ms: int, bytes_max: int, timeout_ms: int
    ) -> Any:
        key = (codec, acks, idempotent, linger_ms, bytes_max, timeout_ms)
        if key not in self._producers:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                acks=acks,
                enable_idempotence=idempotent,
                linger_ms=linger_ms,
                max_request_size=bytes_max,
                request_timeout_ms=timeout_ms,
            )
            await producer.start()
            self._producers[key] = producer
        return self._producers[key]

    def do_open(self, handle: str, **reading: Any) -> None:
        self._members[handle] = self._run(self._open(**reading))

    async def _open(
        self,
        assign: list[Any] | None,
        topics: list[str],
        pattern: str | None,
        group: str | None,
        instance_id: str | None,
        strategy: str,
        reset: str,
        session_ms: int,
        fetch_bytes_max: int | None,
    ) -> Member:
        limits = {} if fetch_bytes_max is None else {"max_partition_fetch_bytes": fetch_bytes_max}
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            group_instance_id=instance_id,
            enable_auto_commit=False,
            auto_offset_reset=reset,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=(RangePartitionAssignor,),
            **limits,
        )
        member = Member(consumer)
        if assign is None:
            consumer.subscribe(
                topics=topics,
                pattern=None if pattern is None else re.compile(pattern).pattern,
                listener=Listener(member.revoked),
            )
        else:
            consumer.assign([TopicPartition(topic, partition) for topic, partition, _ in assign])
        await consumer.start()
        if assign is not None:
            await take_position(consumer, assign)
        member.task = asyncio.create_task(member.read())
        return member

    def do_poll(self, handle: str, count: int, timeout_ms: int) -> list[Row]:
        return self._members[handle].rows.take(count, timeout_ms)

    def do_assignment(self, handle: str) -> list[Any]:
        return [list(each) for each in self._members[handle].consumer.assignment()]

    def do_revoked(self, handle: str) -> list[Any]:
        return self._members[handle].revoked

    def do_commit(self, handle: str, offsets: list[Any]) -> None:
        rows = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata)
            for topic, partition, offset, metadata in offsets
        }
        self._run(self._members[handle].consumer.commit(rows))

    def do_close(self, handle: str) -> None:
        self._run(self._close(self._members.pop(handle)))

    async def _close(self, member: Member) -> None:
        assert member.task is not None
        member.task.cancel()
        await asyncio.wait([member.task])
        await member.consumer.stop()

    async def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await self._admin_client.start()
        return self._admin_client

    def _ask_admin(self, call: str, *arguments: Any, **named: Any) -> Any:
        admin = self._run(self._admin())
        return self._run(getattr(admin, call)(*arguments, **named))

    def do_create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        new = NewTopic(topic, partitions, replication_factor, topic_configs=configs)
        answer = self._ask_admin("create_topics", [new])
        for _, code, *text in answer.topic_errors:
            check(code, *text)

    def do_delete_topic(self, topic: str) -> None:
        for _, code, *_ in self._ask_admin("delete_topics", [topic]).topic_error_codes:
            check(code)

    def do_topics(self) -> dict[str, int]:
        found = self._ask_admin("describe_topics")
        return {topic["topic"]: len(topic["partitions"]) for topic in found}

    def do_add_partitions(self, topic: str, total: int) -> None:
        answer = self._ask_admin("create_partitions", {topic: NewPartitions(total)})
        for _, code, *text in answer.topic_errors:
            check(code, *text)

    def do_configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._ask_admin("describe_configs", [resource])
        ((code, text, _, _, entries),) = answer.resources
        check(code, text)
        return {entry[0]: entry[1] for entry in entries}

    def do_set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        (answer,) = self._ask_admin("alter_configs", [resource])
        for code, text, *_ in answer.resources:
            check(code, text)

    def do_offset_at(self, topic: str, partition: int, at: int | str) -> int:
        return self._run(self._offset_at(TopicPartition(topic, partition), at))

    async def _offset_at(self, where: Any, at: int | str) -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        try:
            if at == "earliest":
                return int((await consumer.beginning_offsets([where]))[where])
            if at == "latest":
                return int((await consumer.end_offsets([where]))[where])
            found = (await consumer.offsets_for_times({where: at}))[where]
            return -1 if found is None else int(found.offset)
        finally:
            await consumer.stop()

    def do_delete_records(self, topic: str, partition: int, before: int) -> int:
        where = TopicPartition(topic, partition)
        return int(self._ask_admin("delete_records", {where: RecordsToDelete(before)})[where])

    def do_groups(self) -> list[str]:
        return [group[0] for group in self._ask_admin("list_consumer_groups")]

    def do_describe_group(self, group: str) -> Row:
        (answer,) = self._ask_admin("describe_consumer_groups", [group])
        ((code, _, state, _, protocol, members, *_),) = answer.groups
        check(code)
        return {"state": state, "protocol": protocol, "members": len(members)}

    def do_group_offsets(self, group: str) -> list[Any]:
        found = self._ask_admin("list_consumer_group_offsets", group)
        return [(*where, each.offset, each.metadata) for where, each in found.items()]


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it is not typed
    """Notes what a rebalance takes away."""

    def __init__(self, revoked: list[tuple[str, int]]) -> None:
        """The list that it adds to."""
        self._revoked = revoked

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._revoked += [tuple(each) for each in revoked]

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Nothing to note."""


async def take_position(consumer: Any, assign: list[Any]) -> None:
    """Know every position before anything is produced."""
    for topic, partition, start in assign:
        where = TopicPartition(topic, partition)
        if start == "earliest":
            await consumer.seek_to_beginning(where)
        elif start == "latest":
            await consumer.seek_to_end(where)
        else:
            consumer.seek(where, start)
        await consumer.position(where)


def row(record: Any) -> Row:
    """A record as the protocol carries it."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": encode(record.key),
        "value": encode(record.value),
        "headers": [[name, encode(value)] for name, value in record.headers],
        "timestamp_ms": record.timestamp,
    }


def refused(error: KafkaError) -> Refused:
    """aiokafka's errors as the driver's."""
    return Refused(repr(error), getattr(error, "errno", None))


@contextmanager
def errors() -> Iterator[None]:
    """The same for whatever is raised."""
    try:
        yield
    except KafkaError as error:
        raise refused(error) from error


def check(code: int, text: str | None = None) -> None:
    """Its admin client hands out bare codes."""
    if code != 0:
        raise Refused(f"{for_code(code).__name__}: {text}", code)


if __name__ == "__main__":
    serve(Driver(sys.argv[1]))
