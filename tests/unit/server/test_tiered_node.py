"""A node on the tiered engine while PostgreSQL is away: what producers hear, what is read."""

from __future__ import annotations

import asyncio
import json

import httpx
from tests.postgres import PostgresServer

from tailrace.client.kafka import KafkaClient
from tailrace.model import TopicPartition
from tailrace.records import build_batch, iter_batches
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node


def _batch(value: bytes) -> bytearray:
    return build_batch([(1_750_000_000_000, None, value, ())])


def test_producers_wait_while_the_database_is_away_and_what_is_hot_is_read(
    own_postgres: PostgresServer,
) -> None:
    async def scenario() -> None:
        config = ServerConfig(
            engine="tiered",
            engine_settings={"postgres_dsn": own_postgres.dsn()},
            kafka_port=0,
            native_port=0,
            http_port=0,
        )
        node = Node(config, owns_loop=False)
        await node.start()
        try:
            async with (
                KafkaClient(node.kafka_address) as client,
                httpx.AsyncClient(base_url=f"http://{node.http_address}") as http,
            ):
                await client.topic("t", create=True)
                await client.produce("t", 0, _batch(b"before"))
                metrics = (await http.get("/metrics")).text
                assert "tailrace_tiered_writer_connected 1.0" in metrics
                assert 'engine="tiered"' in metrics

                await asyncio.to_thread(own_postgres.kill)
                waiting = asyncio.ensure_future(client.produce("t", 0, _batch(b"during")))
                while not node.broker.storage.counters.trouble():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                assert not waiting.done(), "a record was acknowledged that no database has"
                partition = node.broker.topics.find_partition(TopicPartition("t", 0))
                assert partition is not None
                log = node.broker.storage.get(partition.id)
                assert log is not None
                hot = log.read_nowait(log.start_offset, bytes_max=1 << 20, up_to=log.durable_offset)
                assert hot is not None
                records = [
                    bytes(each.value or b"")
                    for batch in iter_batches(await hot.load())
                    for each in batch.records()
                ]
                assert records == [b"before"]
                ready = await http.get("/health/ready")
                assert ready.status_code == 200
                assert json.loads(ready.text)["status"] == "degraded"
                assert "writes wait for the database" in ready.text
                assert "boss" not in ready.text

                await asyncio.to_thread(own_postgres.start)
                await waiting
                await client.produce("t", 0, _batch(b"after"))
                assert json.loads((await http.get("/health/ready")).text)["status"] == "ready"
                assert log.durable_offset == 3
        finally:
            await node.close()

    asyncio.run(asyncio.wait_for(scenario(), 100))


def test_the_dsn_is_shown_nowhere(own_postgres: PostgresServer) -> None:
    config = ServerConfig(engine="tiered", engine_settings={"postgres_dsn": own_postgres.dsn()})
    node = Node(config, owns_loop=False)
    secret = "the-boss-of-tests"
    assert secret not in repr(config)
    assert secret not in repr(node) + node.storage_facts.place
    assert node.storage_facts.place == f"PostgreSQL 127.0.0.1:{own_postgres.port}/postgres"
