"""Scrapes of a broker in memory while it changes under them: in between two pieces anything may happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.broker.publishing import NewMessage
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.metrics import lag
from tailrace.metrics.exposition import Exporter
from tailrace.metrics.loop_lag import LoopLag
from tailrace.metrics.observed import Observed
from tailrace.metrics.snapshot import Bounds
from tailrace.model import BrokerId, TopicPartition
from tailrace.net import ListenerCounters
from tailrace.storage.memory import MemoryStorage
from tailrace.testing import FakeClock

NODE = BrokerId(1)

Samples = list[tuple[dict[str, str], float]]


class Rig:
    """A broker, a listener nobody comes through, and who shows both."""

    def __init__(self, broker: Broker, bounds: Bounds | None) -> None:
        self.broker = broker
        self.listener = ListenerCounters()
        observed = Observed(broker=broker, listeners={"kafka": self.listener})
        self._exporter = Exporter(observed, LoopLag(broker.clock), bounds=bounds)

    async def find(self, name: str) -> Samples:
        """The samples of a metric, of a scrape that is made now."""
        text = (await self._exporter.render(""))[0].decode()
        return [
            (sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]

    async def commit(self, group: str, *names: TopicPartition, offset: int = 0) -> None:
        offsets = {name: OffsetToCommit(offset) for name in names}
        await self.broker.groups.commit_offsets(CommitRequest(group_id=group, offsets=offsets))

    async def publish(self, topic: str, count: int) -> None:
        found = self.broker.topics.get(topic)
        assert found is not None
        self.broker.publisher.publish(found.partitions[0], [NewMessage(None, b"x")] * count)
        await found.partitions[0].wait_acknowledged(found.partitions[0].end_offset)


@asynccontextmanager
async def rig(bounds: Bounds | None = None) -> AsyncIterator[Rig]:
    clock = FakeClock()
    broker = Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=MemoryStorage(clock=clock),
        metadata=StoredMetadata(MemoryStore()),
        config=BrokerConfig.read(),
        clock=clock,
    )
    await broker.start()
    try:
        yield Rig(broker, bounds)
    finally:
        await broker.close()


def play(use: Callable[[Rig], Awaitable[None]], *, bounds: Bounds | None = None) -> None:
    async def main() -> None:
        async with rig(bounds) as it:
            await use(it)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_api_that_is_called_for_the_first_time_meanwhile_does_no_harm() -> None:
    async def use(it: Rig) -> None:
        async def call_others() -> None:
            for number in range(1000):
                it.listener.tally(f"later {number}").note(0.001)
                await asyncio.sleep(0)

        for number in range(20):
            it.listener.tally(f"api {number}").note(0.001)
        calling = asyncio.create_task(call_others())
        found = await it.find("tailrace_request_duration_seconds_count")
        assert len(found) >= 20
        await calling

    play(use)


def test_an_error_that_is_answered_for_the_first_time_meanwhile_does_no_harm() -> None:
    async def use(it: Rig) -> None:
        tally = it.listener.tally("Fetch")

        async def fail_otherwise() -> None:
            for number in range(1000):
                tally.fail(f"later {number}")
                await asyncio.sleep(0)

        tally.note(0.001, 2000)
        for number in range(200):
            tally.fail(f"error {number}")
        failing = asyncio.create_task(fail_otherwise())
        assert len(await it.find("tailrace_requests_total")) >= 200
        await failing

    play(use)


def test_a_group_that_is_being_removed_has_no_members_to_show() -> None:
    async def use(it: Rig) -> None:
        await it.broker.topics.create(NewTopic(name="t"))
        for group in ("goes", "stays"):
            await it.commit(group, TopicPartition("t", 0))
        removal = asyncio.ensure_future(it.broker.groups.delete(["goes"]))
        await asyncio.sleep(0)
        assert not removal.done()
        found = await it.find("kafka_consumergroup_members")
        assert ({"consumergroup": "stays"}, 0) in found
        await removal

    play(use)


def test_what_retention_took_is_nobodys_lag() -> None:
    async def use(it: Rig) -> None:
        await it.broker.topics.create(NewTopic(name="t"))
        await it.publish("t", 10)
        await it.commit("g", TopicPartition("t", 0), offset=2)
        topic = it.broker.topics.get("t")
        assert topic is not None
        await topic.partitions[0].delete_records(7)
        assert [value for _, value in await it.find("tailrace_group_lag")] == [3]
        assert [value for _, value in await it.find("kafka_consumergroup_lag")] == [3]

    play(use)


def test_a_group_that_committed_every_topic_does_not_make_a_scrape_large() -> None:
    async def use(it: Rig) -> None:
        names = [f"t{number}" for number in range(5)]
        for name in names:
            await it.broker.topics.create(NewTopic(name=name))
        await it.commit("modest", TopicPartition("t0", 0), offset=1)
        await it.commit("greedy", *(TopicPartition(name, 0) for name in names), offset=1)
        assert [labels["group"] for labels, _ in await it.find("tailrace_group_lag")] == ["modest"]
        assert ({"what": "groups"}, 1) in await it.find("tailrace_metrics_truncated")

    play(use, bounds=Bounds(group_topics=4))


def test_others_have_their_turn_while_a_large_group_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "_BREATH_POSITIONS", 10)

    async def use(it: Rig) -> None:
        await it.broker.topics.create(NewTopic(name="wide", partitions=100))
        await it.commit("g", *(TopicPartition("wide", index) for index in range(100)))
        turns = 0

        async def look() -> None:
            ((name, positions),) = [pair async for pair in lag.each_group(it.broker)]
            assert (name, len(positions)) == ("g", 100)

        looking = asyncio.create_task(look())
        while not looking.done():
            await asyncio.sleep(0)
            turns += 1
        await looking
        assert turns >= 10

    play(use)
