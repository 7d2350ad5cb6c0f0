"""The consumer against a broker in this process: positions, groups, commits, and what goes wrong."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests import unhurried
from tests.unit.client.conftest import FakeBroker

import tailrace
from tailrace.client.admin import add_partitions, create_topic, delete_records
from tailrace.client.consumer import Consumer, ConsumerConfig
from tailrace.client.error import ClientClosed, ClientError, NoOffset, UnknownTopic
from tailrace.client.fetcher import FetchConfig
from tailrace.client.kafka import KafkaClient
from tailrace.client.membership import GroupConfig
from tailrace.client.producer import Producer
from tailrace.model import BrokerError, TopicPartition
from tailrace.records import BatchError, build_batch
from tailrace.wire.kafka import FETCH, FetchRequest, FetchResult, write_fetch_response

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
DEADLINE_S = 60.0


class Piece:
    """Record bytes as a broker hands them over."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)


def with_client(test: Callable[[KafkaClient], Awaitable[None]], *, partitions: int = 2) -> None:
    async def run() -> None:
        async with tailrace.AsyncBroker() as broker, KafkaClient(broker.bootstrap_servers) as client:
            await create_topic(client, "t", partitions=partitions)
            async with asyncio.timeout(2 * DEADLINE_S):
                await test(client)

    unhurried.run(run())


async def fill(
    client: KafkaClient, count: int, *, topic: str = "t", partitions: int = 2, first: int = 0
) -> None:
    """Records first, first + 1 ... dealt to the partitions in turn."""
    async with Producer(client) as producer:
        for index in range(first, first + count):
            await producer.send(topic, b"%d" % index, partition=index % partitions)


async def read(consumer: Consumer, count: int) -> list[int]:
    """At least so many values, as they come."""
    found: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            for records in (await consumer.poll(0.5)).values():
                found += [int(record.value or b"-1") for record in records]
    return found


def group(name: str = "g", **settings: Any) -> ConsumerConfig:
    fast = {"heartbeat_interval_s": 0.05, **settings.pop("group", {})}
    return ConsumerConfig(**{"reset": "earliest", **settings}, group=GroupConfig(group=name, **fast))


def damaged(offset: int) -> bytes:
    data = build_batch([(0, None, b"lost", ())], base_offset=offset)
    data[-1] ^= 1
    return bytes(data)


# ---- assigned by hand


def test_assigned_partitions_are_read_from_the_earliest_record() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 100)
        async with Consumer(client, ConsumerConfig(reset="earliest")) as consumer:
            consumer.assign([P0, P1])
            assert sorted(await read(consumer, 100)) == list(range(100))
            assert await consumer.position(P0) == 50
            assert consumer.high_watermark(P0) == 50
            assert await consumer.poll(0.0) == {}

    with_client(test)


def test_from_the_latest_only_new_records_are_read() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 10)
        async with Consumer(client, ConsumerConfig(reset="latest")) as consumer:
            consumer.assign([P0, P1])
            assert await consumer.position(P0) == 5
            await fill(client, 4, first=10)
            assert sorted(await read(consumer, 4)) == [10, 11, 12, 13]

    with_client(test)


def test_a_partition_is_read_in_order_and_no_more_at_once_than_asked_for() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 100)
        found: list[int] = []
        async with Consumer(client, ConsumerConfig(reset="earliest", records_max=7)) as consumer:
            consumer.assign([P0])
            while len(found) < 50:
                records = (await consumer.poll(1)).get(P0, [])
                assert len(records) <= 7
                found += [int(record.value or b"") for record in records]
        assert found == list(range(0, 100, 2))

    with_client(test)


def test_seeking_goes_back_and_forth_while_a_fetch_is_under_way() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 100)
        async with Consumer(client, ConsumerConfig(reset="earliest", records_max=5)) as consumer:
            consumer.assign([P0])
            await read(consumer, 10)
            consumer.seek(P0, 3)
            assert (await read(consumer, 1))[0] == 6
            consumer.seek(P0, 40)
            assert (await read(consumer, 1))[0] == 80
            await consumer.seek_to_beginning()
            assert (await read(consumer, 1))[0] == 0
            await consumer.seek_to_end([P0])
            assert await consumer.position(P0) == 50

    with_client(test)


def test_a_paused_partition_waits_until_it_is_resumed() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 20)
        async with Consumer(client, ConsumerConfig(reset="earliest")) as consumer:
            consumer.assign([P0, P1])
            consumer.pause([P0])
            assert consumer.paused == {P0}
            assert sorted(await read(consumer, 10)) == list(range(1, 20, 2))
            assert await consumer.poll(0.05) == {}
            consumer.resume([P0])
            assert sorted(await read(consumer, 10)) == list(range(0, 20, 2))

    with_client(test)


def test_an_offset_that_is_gone_is_reset_as_configured() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 40)
        await delete_records(client, {P0: 15})
        async with Consumer(client, ConsumerConfig(reset="earliest")) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 2)
            assert (await read(consumer, 5))[0] == 30
        async with Consumer(client, ConsumerConfig(reset="none")) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 2)
            with pytest.raises(NoOffset, match=r"auto\.offset\.reset is none"):
                await read(consumer, 1)

    with_client(test)


def test_without_a_policy_a_position_is_needed() -> None:
    async def test(client: KafkaClient) -> None:
        async with Consumer(client, ConsumerConfig(reset="none")) as consumer:
            consumer.assign([P0])
            with pytest.raises(NoOffset, match="seek"):
                await read(consumer, 1)
            consumer.seek(P0, 0)
            await fill(client, 1)
            assert await read(consumer, 1) == [0]

    with_client(test)


def test_a_partition_that_does_not_exist_is_an_error() -> None:
    async def test(client: KafkaClient) -> None:
        async with Consumer(client, ConsumerConfig(reset="earliest")) as consumer:
            consumer.assign([TopicPartition("t", 9)])
            with pytest.raises(UnknownTopic, match="t has no partition 9"):
                await read(consumer, 1)

    with_client(test)


def test_large_records_come_though_they_are_over_the_fetch_size() -> None:
    async def test(client: KafkaClient) -> None:
        async with Producer(client) as producer:
            for _ in range(3):
                await producer.send("t", bytes(50_000), partition=0)
        config = ConsumerConfig(reset="earliest", fetch=FetchConfig(partition_bytes_max=1000, bytes_max=1000))
        async with Consumer(client, config) as consumer:
            consumer.assign([P0])
            sizes: list[int] = []
            while len(sizes) < 3:
                sizes += [len(each.value or b"") for each in (await consumer.poll(1)).get(P0, [])]
        assert sizes == [50_000] * 3

    with_client(test)


def test_a_poll_without_time_still_gets_records_in_the_end() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 2)
        async with Consumer(client, group()) as consumer:
            consumer.subscribe(["t"])
            found = 0
            async with asyncio.timeout(DEADLINE_S):
                while found < 2:
                    found += sum(map(len, (await consumer.poll(0)).values()))

    with_client(test)


def test_a_reply_to_a_fetch_from_before_a_seek_is_dropped() -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client() as client:
            release = asyncio.Event()
            batch = bytes(build_batch([(0, None, b"%d" % index, ()) for index in range(10)]))

            async def fetch(version: int, request: FetchRequest) -> bytes:
                if request.topics[0].partitions[0].fetch_offset == 0:
                    await release.wait()
                result: FetchResult[Any] = FetchResult(0, high_watermark=10, records=Piece(batch))
                pieces = write_fetch_response(version, topics=[("t", [result])])
                return b"".join(each.data if isinstance(each, Piece) else each for each in pieces)

            fake.handlers[FETCH] = fetch
            async with Consumer(client, ConsumerConfig()) as consumer:
                consumer.assign([P0])
                consumer.seek(P0, 0)
                while not fake.requested():
                    assert await consumer.poll(0.01) == {}
                consumer.seek(P0, 5)
                release.set()
                assert await read(consumer, 5) == [5, 6, 7, 8, 9]

    unhurried.run(run())


# ---- groups


def test_damage_in_one_partition_costs_no_record_before_it_or_beside_it() -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client() as client:
            fake.topics["t"] = 2
            good = bytes(build_batch([(0, None, b"0", ()), (0, None, b"1", ())]))
            logs = {0: {0: good}, 1: {0: good + damaged(2), 2: damaged(2)}}

            def fetch(version: int, request: FetchRequest) -> bytes:
                results: list[FetchResult[Any]] = []
                for each in request.topics[0].partitions:
                    data = logs[each.index].get(each.fetch_offset)
                    records = None if data is None else Piece(data)
                    results.append(FetchResult(each.index, high_watermark=9, records=records))
                pieces = write_fetch_response(version, topics=[("t", results)])
                return b"".join(each.data if isinstance(each, Piece) else each for each in pieces)

            fake.handlers[FETCH] = fetch
            async with Consumer(client) as consumer:
                consumer.assign([P0, P1])
                consumer.seek(P0, 0)
                consumer.seek(P1, 0)
                assert sorted(await read(consumer, 4)) == [0, 0, 1, 1]
                for _ in range(2):  # until somebody seeks past it
                    with pytest.raises(
                        BatchError,
                        match=r"^t-1 cannot be read at offset 2: .*batch at offset 2.*Seek past it",
                    ):
                        await read(consumer, 1)
                assert await consumer.position(P1) == 2

    unhurried.run(run())


def test_a_group_goes_on_where_it_stopped() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 20)
        async with Consumer(client, group()) as consumer:
            consumer.subscribe(["t"])
            assert sorted(await read(consumer, 20)) == list(range(20))
        await fill(client, 6, first=20)
        async with Consumer(client, group()) as consumer:
            consumer.subscribe(["t"])
            assert sorted(await read(consumer, 6)) == list(range(20, 26))
            assert await consumer.committed([P0, P1]) == {P0: 10, P1: 10}
            await consumer.commit()
            assert await consumer.committed([P0, P1]) == {P0: 13, P1: 13}

    with_client(test)


def test_records_that_poll_has_not_returned_are_not_committed() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 20)
        async with Consumer(client, group(records_max=3)) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 3)
        committed = await client.committed("g")
        assert sum(each.offset for each in committed.values()) == 3

    with_client(test)


def test_without_auto_commit_nothing_is_committed() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 4)
        async with Consumer(client, group(auto_commit=False)) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 4)
        assert await client.committed("g") == {}

    with_client(test)


def test_auto_commit_happens_while_polling() -> None:
    async def test(client: KafkaClient) -> None:
        await fill(client, 4)
        async with Consumer(client, group(auto_commit_interval_s=0.0)) as consumer:
            consumer.subscribe(["t"])
            await read(consumer, 4)
            async with asyncio.timeout(DEADLINE_S):
                while sum(each.offset for each in (await client.committed("g")).values()) < 4:
                    await consumer.poll(0.01)

    with_client(test)


async def until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    """Poll all of them at once until something is so."""

    async def polling(consumer: Consumer) -> None:
        while not condition():
            await consumer.poll(0.05)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*map(polling, consumers))


def test_members_share_the_partitions_and_take_over_from_one_that_leaves() -> None:
    async def test(client: KafkaClient) -> None:
        heard: list[tuple[str, int]] = []

        def noting(what: str) -> Callable[[Sequence[TopicPartition]], None]:
            return lambda partitions: heard.append((what, len(partitions)))

        first, second = Consumer(client, group()), Consumer(client, group())
        first.subscribe(["t"], on_assigned=noting("got"), on_revoked=noting("lost"))
        second.subscribe(["t"])
        await until(lambda: len(first.assignment) == 4, first)
        await until(lambda: len(first.assignment) == len(second.assignment) == 2, first, second)
        assert not first.assignment & second.assignment
        await second.close()
        await until(lambda: len(first.assignment) == 4, first)
        assert heard == [("got", 4), ("lost", 4), ("got", 2), ("lost", 2), ("got", 4)]
        await first.close()

    with_client(test, partitions=4)


@pytest.mark.slow
def test_a_member_that_dies_is_replaced_when_its_session_ends() -> None:
    async def test(client: KafkaClient) -> None:
        dead = Consumer(client, group(group={"session_timeout_s": 6.0, "heartbeat_interval_s": 100.0}))
        dead.subscribe(["t"])
        await until(lambda: len(dead.assignment) == 2, dead)
        async with Consumer(client, group()) as alive:
            alive.subscribe(["t"])
            await until(lambda: len(alive.assignment) == 2, alive)
        await dead.close()

    with_client(test)


def test_who_does_not_poll_leaves_the_group() -> None:
    async def test(client: KafkaClient) -> None:
        slow = Consumer(client, group(group={"poll_interval_max_s": 0.3}))
        slow.subscribe(["t"])
        await until(lambda: len(slow.assignment) == 2, slow)
        async with Consumer(client, group()) as other:
            other.subscribe(["t"])
            await until(lambda: len(other.assignment) == 2, other)
            await until(lambda: len(slow.assignment) == 1, slow, other)
        await slow.close()

    with_client(test)


def test_a_pattern_finds_topics_that_come_later() -> None:
    async def test(client: KafkaClient) -> None:
        async with Consumer(client, group(metadata_age_max_s=0.1)) as consumer:
            consumer.subscribe(re.compile("log-.*"))
            await consumer.poll(0.3)
            assert not consumer.assignment
            await create_topic(client, "log-a", partitions=1)
            await create_topic(client, "not-log-a", partitions=1)
            await until(lambda: consumer.assignment == {TopicPartition("log-a", 0)}, consumer)
            assert consumer.subscription == {"log-a"}

    with_client(test)


def test_new_partitions_are_read_too() -> None:
    async def test(client: KafkaClient) -> None:
        async with Consumer(client, group(metadata_age_max_s=0.1)) as consumer:
            consumer.subscribe(["t"])
            await until(lambda: len(consumer.assignment) == 2, consumer)
            await add_partitions(client, "t", 3)
            await until(lambda: len(consumer.assignment) == 3, consumer)

    with_client(test)


def test_a_static_member_keeps_its_place() -> None:
    async def test(client: KafkaClient) -> None:
        static = group(group={"instance_id": "one"})
        async with Consumer(client, static) as consumer:
            consumer.subscribe(["t"])
            await until(lambda: len(consumer.assignment) == 2, consumer)
        async with Consumer(client, static) as consumer:
            consumer.subscribe(["t"])
            await until(lambda: len(consumer.assignment) == 2, consumer)

    with_client(test)


def test_a_member_that_the_broker_will_never_take_hears_so_at_every_poll() -> None:
    async def test(client: KafkaClient) -> None:
        async with Consumer(client, group(group={"session_timeout_s": 0.001})) as consumer:
            consumer.subscribe(["t"])
            for _ in range(2):
                with pytest.raises(BrokerError, match="invalid session timeout"):
                    await read(consumer, 1)

    with_client(test)


# ---- misuse


def test_what_contradicts_itself_is_refused() -> None:
    async def test(client: KafkaClient) -> None:
        alone = Consumer(client, ConsumerConfig())
        with pytest.raises(ClientError, match=r"group\.id"):
            alone.subscribe(["t"])
        with pytest.raises(ClientError, match=r"group\.id"):
            await alone.commit()
        with pytest.raises(ClientError, match="t-0 is not assigned"):
            alone.seek(P0, 1)
        member = Consumer(client, group())
        member.subscribe(["t"])
        with pytest.raises(ClientError, match="by hand"):
            member.assign([P0])
        assigned = Consumer(client, group())
        assigned.assign([P0])
        with pytest.raises(ClientError, match="by hand"):
            assigned.subscribe(["t"])
        for consumer in (alone, member, assigned):
            await consumer.close()
        with pytest.raises(ClientClosed):
            await alone.poll(0)

    with_client(test)
