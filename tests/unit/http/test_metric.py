"""Metrics of a real node: exact numbers after known traffic of real clients, every name, bounds, odd names.

The names are in tests/golden/metrics.txt: a dashboard that was made for them must go on working.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import httpx
import msgspec
import pytest
import websockets
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.poison import undecodable

from tailrace.broker import NewTopic
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.client import AsyncClient
from tailrace.client.kafka import KafkaClient
from tailrace.http.error import Code
from tailrace.http.service import HttpService
from tailrace.metrics.exposition import Exporter
from tailrace.metrics.free_space import FreeSpace
from tailrace.metrics.sampler import Sampler
from tailrace.metrics.snapshot import Bounds
from tailrace.model import Offset, TopicPartition
from tailrace.records import read_batch
from tailrace.server.node import Node
from tailrace.spark.pipelines.run_topic import ensure_topic, write_entries
from tailrace.wire.json.run_record import new_run, run_key, write_record

from .conftest import Run, check_error, wait_until

GOLDEN = Path(__file__).parents[2] / "golden" / "metrics.txt"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"

Labels = dict[str, str]


def service_of(node: Node) -> HttpService:
    assert node._http is not None
    return node._http.service


def parse_open_metrics(text: str) -> Iterable[Metric]:
    families: Iterable[Metric] = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return families


class Scrape:
    """What /metrics said, by name."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))

    def find(self, name: str, **labels: str) -> list[tuple[Labels, float]]:
        return [
            (sample.labels, sample.value)
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        ((_, value),) = self.find(name, **labels)
        return value


async def scrape(client: httpx.AsyncClient, **query: str) -> Scrape:
    answer = await client.get("/metrics", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(answer.text)


def produce_with_kafka(address: str, topic: str, values: list[bytes]) -> None:
    """One request for each value, into two partitions in turn."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})
    for place, value in enumerate(values):
        producer.produce(topic, value, partition=place % 2)
        assert producer.flush(60) == 0


def consume_with_kafka(address: str, topic: str, count: int, *, group: str) -> None:
    """Both partitions, without a rebalance in which something might be fetched twice."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in (0, 1)])
    for _ in range(count):
        message = consumer.poll(20)
        assert message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()


async def use_everything(node: Node) -> None:
    """A node on which something of every kind has happened."""
    await node.broker.topics.create(NewTopic(name="orders", partitions=2))
    await asyncio.to_thread(produce_with_kafka, node.kafka_address, "orders", [b"a", b"b", b"c"])
    await asyncio.to_thread(consume_with_kafka, node.kafka_address, "orders", 3, group="billing")
    # A fetch that waits when its client leaves would be given what comes next.
    await wait_until(lambda: node.observed.listeners["kafka"].connections == 0)
    async with AsyncClient(port=node.native_port) as client:
        await client.create_topic("jobs")
        await client.create_subscription("workers", "jobs")
        for text in ("one", "two"):
            await client.publish_text("jobs", text)
        for message in await client.pull("workers", 2):
            await message.ack()


@pytest.fixture
def busy(run: Run, node: Node) -> Node:
    async def begin() -> None:
        await service_of(
            node
        ).metrics.sampler.stop()  # a test takes its samples itself, and none comes in between
        await use_everything(node)

    run(begin())
    return node


# ---- names


def names_of(text: str) -> list[str]:
    """Every family that is exported, with its type and labels: what a dashboard relies on."""
    lines = []
    for family in text_string_to_metric_families(text):
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        lines.append(f"{family.name} {family.type} {','.join(labels)}".rstrip())
    return sorted(lines)


def test_every_name_is_as_it_was(run: Run, busy: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        text = (await client.get("/metrics", params={"partitions": "true"})).text
        expected = GOLDEN.read_text().splitlines()
        if sys.platform != "linux":  # who else tells of a process, tells less
            expected = [line for line in expected if not line.startswith("process_")]
        assert names_of(text) == expected

    run(main())


def test_open_metrics_has_the_same_families(run: Run, busy: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        answer = await client.get("/metrics", headers={"accept": OPEN_METRICS})
        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        found = {family.name for family in parse_open_metrics(answer.text)}
        plain = {family.name for family in (await scrape(client)).families}
        assert found == plain

    run(main())


# ---- exact numbers


def test_what_lakes_miss_is_told_by_their_archives(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    progress = {"offsets": {"orders": {"3": 18}}, "missing_offsets": {"orders": {"3": 8}}}

    async def main() -> None:
        assert (await scrape(client)).find("tailrace_lake_missing_offsets") == []
        told = new_run(pipeline="archive", name="lake", config={"to": "./lake"})
        told = msgspec.structs.replace(told, progress=progress)
        async with KafkaClient(node.kafka_address, client_id="test") as clerk:
            await ensure_topic(clerk)
            await write_entries(clerk, [(run_key(told.id), write_record(told))])
        assert (await scrape(client)).find("tailrace_lake_missing_offsets") == [
            ({"lake": "./lake", "topic": "orders", "partition": "3"}, 8)
        ]

    run(main())


def test_traffic_of_kafka_clients_is_counted(run: Run, busy: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        found = await scrape(client)
        assert found.value("tailrace_topic_records_in_total", topic="orders") == 3
        assert found.value("tailrace_topic_records_out_total", topic="orders") == 3
        topic = busy.broker.topics.get("orders")
        assert topic is not None
        stored = sum(each.size_bytes for each in topic.partitions)
        assert found.value("tailrace_topic_bytes_in_total", topic="orders") == stored
        assert found.value("tailrace_topic_bytes_out_total", topic="orders") == stored
        assert found.value("tailrace_topic_log_bytes", topic="orders") == stored
        assert found.value("tailrace_requests_total", listener="kafka", api="Produce", error="none") == 3
        assert found.value("tailrace_requests_total", listener="kafka", api="OffsetCommit", error="none") == 1
        assert found.value("tailrace_group_lag", group="billing", topic="orders") == 0
        assert found.value("kafka_consumergroup_lag_sum", consumergroup="billing", topic="orders") == 0
        assert found.value("kafka_consumergroup_current_offset_sum", consumergroup="billing") == 3
        assert found.value("kafka_topic_partitions", topic="orders") == 2
        ends = found.find("kafka_topic_partition_current_offset", topic="orders")
        assert sum(value for _, value in ends) == 3

    run(main())


def test_traffic_of_native_clients_is_counted(run: Run, busy: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        found = await scrape(client)
        assert found.value("tailrace_topic_records_in_total", topic="jobs") == 2
        assert found.value("tailrace_topic_records_out_total", topic="jobs") == 2
        assert found.value("tailrace_topic_bytes_out_total", topic="jobs") == len("one" + "two")
        assert found.value("tailrace_records_in_total") == 2 + 3
        published = found.find("tailrace_requests_total", listener="native", api="PUBLISH")
        batches = found.find("tailrace_requests_total", listener="native", api="PUBLISH_BATCH")
        assert sum(value for _, value in published + batches) == 2
        assert found.value("tailrace_requests_total", listener="native", api="PULL") == 1
        assert found.value("tailrace_subscription_acknowledged_total", subscription="workers") == 2
        assert found.value("tailrace_subscription_delivered_total", subscription="workers") == 2
        assert found.value("tailrace_subscription_lag", subscription="workers") == 0
        assert found.value("tailrace_subscription_in_flight", subscription="workers") == 0
        assert found.value("tailrace_delivery_latency_seconds_count") >= 1
        assert found.value("tailrace_ack_latency_seconds_count") == 1
        assert found.value("tailrace_request_duration_seconds_count", listener="native", api="ACK") >= 1

    run(main())


def test_what_is_not_read_is_lag(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        await node.broker.topics.create(NewTopic(name="orders", partitions=2))
        await asyncio.to_thread(produce_with_kafka, node.kafka_address, "orders", [b"x"] * 5)
        names = [TopicPartition("orders", index) for index in (0, 1)]
        offsets = {name: OffsetToCommit(0) for name in names}
        await node.broker.groups.commit_offsets(CommitRequest(group_id="late", offsets=offsets))
        async with AsyncClient(port=node.native_port) as native:
            await native.create_subscription("idle", "orders", start="earliest")
        found = await scrape(client)
        assert found.value("tailrace_group_lag", group="late", topic="orders") == 5
        by_partition = found.find("kafka_consumergroup_lag", consumergroup="late")
        assert sum(value for _, value in by_partition) == 5
        assert found.value("tailrace_subscription_lag", subscription="idle", topic="orders") == 5
        sample = await service_of(node).metrics.sampler.sample()
        assert sample.lag == 10

    run(main())


def test_what_is_not_visible_yet_is_neither_an_offset_nor_lag(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def main() -> None:
        topic = await node.broker.topics.create(NewTopic(name="orders", partitions=1))
        (partition,) = topic.partitions
        await asyncio.to_thread(produce_some, node.kafka_address, "orders", 3)
        name = TopicPartition("orders", 0)
        await node.broker.groups.commit_offsets(
            CommitRequest(group_id="late", offsets={name: OffsetToCommit(1)})
        )
        async with AsyncClient(port=node.native_port) as native:
            await native.create_subscription("idle", "orders", start="earliest")
        # The log has three records, and two of them may be shown.
        partition.high_watermark = partition.last_stable_offset = Offset(2)
        assert partition.log is not None and partition.log.end_offset == 3
        found = await scrape(client, partitions="true")
        assert found.value("kafka_topic_partition_current_offset", topic="orders") == 2
        assert found.value("kafka_topic_partition_oldest_offset", topic="orders") == 0
        assert found.value("tailrace_partition_end_offset", topic="orders") == 3
        assert found.value("kafka_consumergroup_lag", consumergroup="late") == 1
        assert found.value("tailrace_group_lag", group="late") == 1
        assert found.value("tailrace_subscription_lag", subscription="idle") == 2

    run(main())


def produce_some(address: str, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    for _ in range(count):
        producer.produce(topic, b"v", partition=0)
    assert producer.flush(60) == 0


def test_skipped_messages_are_counted_by_reason(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        topic = await node.broker.topics.create(NewTopic(name="orders", partitions=1))
        (partition,) = topic.partitions
        async with AsyncClient(port=node.native_port) as native:
            await native.create_subscription("work", "orders", start="earliest")
            partition.append(read_batch(undecodable(3, time_ms=node.broker.clock.now_ms())))
            await native.publish_text("orders", "sound")
            (message,) = await native.pull("work", 1)
            await message.ack()
        found = await scrape(client)
        name = "tailrace_subscription_skipped_total"
        assert found.value(name, subscription="work", reason="unreadable") == 3
        assert found.value(name, subscription="work", reason="gone") == 0

    run(main())


def test_errors_are_counted_by_name(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": node.kafka_address})
        for future in admin.delete_topics(["nobody"], operation_timeout=60).values():
            with pytest.raises(confluent_kafka.KafkaException):
                await asyncio.to_thread(future.result, 20)
        async with AsyncClient(port=node.native_port) as native:
            with pytest.raises(Exception, match="does not exist"):
                await native.describe_subscription("nobody")
        found = await scrape(client)
        error = "UNKNOWN_TOPIC_OR_PARTITION"
        assert found.value("tailrace_requests_total", listener="kafka", api="DeleteTopics", error=error) == 1
        assert found.value("tailrace_requests_total", listener="kafka", api="DeleteTopics", error="none") == 0
        error = "RESOURCE_NOT_FOUND"
        assert found.value("tailrace_requests_total", listener="native", api="DESCRIBE", error=error) == 1

    run(main())


def test_a_deleted_topic_stays_in_the_totals(run: Run, busy: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        before = await scrape(client)
        await busy.broker.delete_topic("jobs")
        after = await scrape(client)
        assert after.find("tailrace_topic_records_in_total", topic="jobs") == []
        for name in ("tailrace_records_in_total", "tailrace_bytes_out_total"):
            assert after.value(name) == before.value(name)

    run(main())


def test_connections_are_counted_by_listener(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        async with AsyncClient(port=node.native_port):
            found = await scrape(client)
            assert found.value("tailrace_connections", listener="native") == 1
        await wait_until(lambda: node.observed.listeners["native"].connections == 0)
        found = await scrape(client)
        assert found.value("tailrace_connections", listener="native") == 0
        assert found.value("tailrace_connections_accepted_total", listener="native") == 1

    run(main())


# ---- bounds and odd names


def test_request_bytes_are_shown_by_listener(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        budget = node.budget.share("native")
        assert budget.take_nowait(12_345)
        found = await scrape(client)
        budget.give(12_345)
        used = {each["listener"]: value for each, value in found.find("tailrace_request_budget_used_bytes")}
        assert used == {"kafka": 0, "native": 12_345, "http": 0}
        limits = found.find("tailrace_request_budget_limit_bytes")
        assert [value for _, value in limits] == [128 << 20] * 3

    run(scenario())


def test_unread_bytes_are_shown_by_listener(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    class Silent:
        buffered_bytes = 70_000

        def close_unread(self) -> None:
            raise AssertionError("there is room")

    async def scenario() -> None:
        silent, unread = Silent(), node.budget.share("kafka").unread
        unread.note(silent, 90_000)
        unread.note(silent, 70_000)
        found = await scrape(client)
        shown = {each["listener"]: value for each, value in found.find("tailrace_unread_bytes")}
        assert shown == {"kafka": 70_000, "native": 0, "http": 0}
        assert node.budget.unread.bytes == 70_000
        unread.forget(silent)
        assert (await scrape(client)).value("tailrace_unread_bytes", listener="kafka") == 0

    run(scenario())


def test_the_memory_of_subscriptions_is_shown(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        found = await scrape(client)
        assert found.value("tailrace_subscriptions_memory_bytes") == 0
        assert found.value("tailrace_subscriptions_memory_limit_bytes") == 128 << 20
        async with AsyncClient(port=node.native_port) as native:
            await native.create_topic("kept")
            await native.create_subscription("work", "kept", start="earliest")
            await native.publish("kept", bytes(50_000))
            (message,) = await native.pull("work", 1)
            memory = node.broker.subscriptions.memory
            assert memory.bytes >= 50_000
            found = await scrape(client)
            assert found.value("tailrace_subscriptions_memory_bytes") == memory.bytes
            await message.ack()

    run(scenario())


def test_partitions_are_shown_in_full_when_asked_for(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        await node.broker.topics.create(NewTopic(name="wide", partitions=50))
        assert (await scrape(client)).find("tailrace_partition_end_offset") == []
        shown = (await scrape(client, partitions="true")).find("tailrace_partition_end_offset", topic="wide")
        assert sorted(int(labels["partition"]) for labels, _ in shown) == list(range(50))

    run(main())


def test_topics_past_the_bound_are_left_out_and_counted(run: Run, node: Node) -> None:
    async def main() -> None:
        service = service_of(node)
        for name in ("a", "b", "c"):
            await node.broker.topics.create(NewTopic(name=name, partitions=3))
        node.broker.topics.get("b").counters.records_in = 9  # type: ignore[union-attr]
        bounds = Bounds(topics=1, partition_series=7 * 3 * 2)
        text, _ = await Exporter(node.observed, service.metrics.sampler.loop_lag, bounds=bounds).render("")
        found = Scrape(text.decode())
        assert [labels["topic"] for labels, _ in found.find("tailrace_topic_records_in_total")] == ["b"]
        assert found.value("tailrace_metrics_truncated", what="topics") == 2
        shown = {labels["topic"] for labels, _ in found.find("kafka_topic_partition_current_offset")}
        assert shown == {"a", "b"}
        assert found.value("tailrace_metrics_truncated", what="topic_partitions") == 3
        assert found.value("tailrace_records_in_total") == 9

    run(main())


def test_groups_past_the_bound_are_left_out_and_counted(run: Run, node: Node) -> None:
    async def main() -> None:
        service = service_of(node)
        await node.broker.topics.create(NewTopic(name="t", partitions=2))
        offsets = {TopicPartition("t", index): OffsetToCommit(0) for index in (0, 1)}
        for name in ("g1", "g2", "g3"):
            await node.broker.groups.commit_offsets(CommitRequest(group_id=name, offsets=offsets))
        bounds = Bounds(readers=2, partition_series=4)
        text, _ = await Exporter(node.observed, service.metrics.sampler.loop_lag, bounds=bounds).render("")
        found = Scrape(text.decode())
        assert [labels["group"] for labels, _ in found.find("tailrace_group_lag")] == ["g1", "g2"]
        assert found.value("tailrace_metrics_truncated", what="groups") == 1
        assert {labels["consumergroup"] for labels, _ in found.find("kafka_consumergroup_lag")} == {"g1"}
        assert found.value("tailrace_metrics_truncated", what="group_partitions") == 4

    run(main())


@pytest.mark.parametrize(
    "group", ['quo"ted', "back\\slash", "two\nlines", "\\n", "naïve 組", 'le="1"} 5', "#", " ", "\r"]
)
@pytest.mark.parametrize("accept", ["", OPEN_METRICS])
def test_odd_group_names_come_back_as_they_are(run: Run, node: Node, group: str, accept: str) -> None:
    async def main() -> None:
        await node.broker.topics.create(NewTopic(name="t"))
        offsets = {TopicPartition("t", 0): OffsetToCommit(0)}
        await node.broker.groups.commit_offsets(CommitRequest(group_id=group, offsets=offsets))
        text = (await service_of(node).metrics.exporter.render(accept))[0].decode()
        parse = parse_open_metrics if accept else text_string_to_metric_families
        groups = [
            sample.labels["group"]
            for family in parse(text)
            for sample in family.samples
            if sample.name == "tailrace_group_lag"
        ]
        assert groups == [group]

    run(main())


def test_a_family_in_many_pieces_has_one_head(run: Run, node: Node) -> None:
    async def main() -> None:
        await node.broker.topics.create(NewTopic(name="wide", partitions=1000))
        text = (await service_of(node).metrics.exporter.render(""))[0].decode()
        assert text.count("# TYPE kafka_topic_partition_current_offset gauge\n") == 1
        assert text.count('kafka_topic_partition_current_offset{partition="') == 1000

    run(main())


# ---- JSON


async def get(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(f"/api/v1/metrics/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_broker_tells_its_totals_and_its_history(run: Run, busy: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        sampler = service_of(busy).metrics.sampler
        await sampler.sample()
        await asyncio.to_thread(produce_with_kafka, busy.kafka_address, "orders", [b"more"] * 4)
        await sampler.sample()
        (figures,) = (await get(client, "brokers"))["brokers"]
        assert figures["node_id"] == 1
        assert (figures["records_in_total"], figures["records_out_total"]) == (9, 5)
        assert figures["records_in_per_s"] > 0
        assert figures["connections"].keys() == {"kafka", "native", "http"}
        assert figures["lag"] == 4
        assert figures["disk_free_bytes"] is None  # in memory there is no disk
        assert figures["memory_bytes"] > 1_000_000
        series = figures["history"]["series"]
        assert set(series) >= {"records_in_per_s", "bytes_in_per_s", "produce_p99_ms", "lag", "cpu_share"}
        assert len({len(values) for values in series.values()}) == 1
        assert series["records_in_per_s"][-1] == figures["records_in_per_s"]
        assert series["lag"][-1] == 4

    run(main())


def test_free_space_is_what_the_sampler_found(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(_: FreeSpace) -> int:
        raise AssertionError("this may wait for a disk")

    async def main() -> None:
        await service_of(node).metrics.sampler.stop()
        monkeypatch.setattr(FreeSpace, "read_bytes", ask)
        node.observed.free_space.newest_bytes = 12345
        (figures,) = (await get(client, "brokers"))["brokers"]
        assert figures["disk_free_bytes"] == 12345
        assert (await scrape(client)).value("tailrace_disk_free_bytes") == 12345

    run(main())


def test_before_two_samples_there_are_no_rates(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        await service_of(node).metrics.sampler.stop()
        service_of(node).metrics.sampler = Sampler(node.observed)
        (figures,) = (await get(client, "brokers"))["brokers"]
        assert figures["records_in_per_s"] is None
        assert figures["history"] == {
            "interval_ms": 5000,
            "end_ms": None,
            "series": {name: [] for name in figures["history"]["series"]},
        }

    run(main())


def test_topics_tell_what_they_hold_and_what_happens(run: Run, busy: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        sampler = service_of(busy).metrics.sampler
        await sampler.sample()
        await asyncio.to_thread(produce_with_kafka, busy.kafka_address, "orders", [b"more"] * 4)
        await sampler.sample()
        answer = await get(client, "topics")
        assert [each["topic"] for each in answer["topics"]] == ["jobs", "orders"]  # none of the broker's own
        jobs, orders = answer["topics"]
        assert (jobs["records"], orders["records"]) == (2, 7)
        assert jobs["records_in_per_s"] == 0
        assert orders["records_in_per_s"] == orders["sparkline"][-1] > 0
        assert len(orders["sparkline"]) == len(jobs["sparkline"]) == 20
        alone = await get(client, "topics/orders")
        assert alone["history"]["series"]["records_in_per_s"][-1] == orders["records_in_per_s"]

    run(main())


def test_readers_tell_how_far_behind_they_were(run: Run, busy: Node, client: httpx.AsyncClient) -> None:
    async def main() -> None:
        sampler = service_of(busy).metrics.sampler
        await sampler.sample()
        await asyncio.to_thread(produce_with_kafka, busy.kafka_address, "orders", [b"more"] * 4)
        await sampler.sample()
        group = await get(client, "groups/billing")
        assert group["lag"][-2:] == [0, 4]
        subscription = await get(client, "subscriptions/workers")
        assert subscription["lag"][-1] == 0
        assert group["end_ms"] == subscription["end_ms"] is not None

    run(main())


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("topics/nobody", Code.TOPIC_NOT_FOUND),
        ("groups/nobody", Code.GROUP_NOT_FOUND),
        ("subscriptions/nobody", Code.SUBSCRIPTION_NOT_FOUND),
    ],
)
def test_who_does_not_exist_has_no_figures(
    run: Run, node: Node, client: httpx.AsyncClient, path: str, code: Code
) -> None:
    async def main() -> None:
        check_error(await client.get(f"/api/v1/metrics/{path}"), code, "nobody")

    run(main())


@pytest.mark.parametrize(
    "path",
    [
        "/metrics?partitions=maybe",
        "/metrics?partition=true",
        "/api/v1/metrics/brokers?x=1",
        "/api/v1/metrics/topics?x=1",
    ],
)
def test_parameters_that_there_are_not_are_refused(run: Run, client: httpx.AsyncClient, path: str) -> None:
    async def main() -> None:
        check_error(await client.get(path), Code.INVALID_REQUEST)

    run(main())


def test_requests_of_this_listener_are_counted_by_operation_and_error(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def main() -> None:
        for path in ("/api/v1/topics", "/api/v1/topics", "/api/v1/topics/nowhere", "/api/v1/topics?x=1"):
            await client.get(path)

    run(main())
    tallies = node.http_app().service.counters.tallies
    assert (tallies["listTopics"].requests, tallies["listTopics"].errors) == (3, {"INVALID_REQUEST": 1})
    assert (tallies["getTopic"].requests, tallies["getTopic"].errors) == (1, {"TOPIC_NOT_FOUND": 1})
    assert tallies["listTopics"].duration.count == 3


def test_requests_that_come_to_no_operation_are_counted_under_one_name(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def main() -> None:
        for path in ("/nothing", "/api/v1/nothing"):
            assert (await client.get(path)).status_code == 404
        for path in ("/api/v1/topics", "/openapi.json", "/"):
            assert (await client.put(path)).status_code == 405
        assert (await client.get("/health", headers={"host": "attacker.example"})).status_code == 403
        for path in ("/nothing", "/api/v1/topics/nowhere/tail", "/api/v1/topics/nowhere/tail?x=1"):
            with pytest.raises(websockets.InvalidStatus):
                async with websockets.connect(f"ws://{node.http_address}{path}", proxy=None):
                    pass
        found = await scrape(client)
        for error, count in (
            ("none", 0),
            ("INVALID_REQUEST", 2 + 3 + 2),
            ("AUTHORIZATION_FAILED", 1),
            ("TOPIC_NOT_FOUND", 1),
        ):
            assert found.value("tailrace_requests_total", listener="http", api="other", error=error) == count

    run(main())
    counters = node.http_app().service.counters
    assert counters.requests == 2 + 3 + 1 + 1  # a WebSocket is none
    assert counters.tallies["other"].duration.count == 0  # nothing was done for them
