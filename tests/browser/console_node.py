"""A node for a browser: it turns in a thread of its own, and makes what a test needs to be there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, ViewportSize

from tailrace.broker.transactions import Identity
from tailrace.model import TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.records import build_batch, read_batch
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node

ARTEFACTS = Path(__file__).parent / "artefacts"
WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 375, "height": 812}
DEADLINE_S = 30.0


class ConsoleNode:
    """A node in memory, from `with` to its end."""

    def __init__(self) -> None:
        config = ServerConfig(engine="memory", kafka_port=0, native_port=0, http_port=0)
        self._node = Node(config, owns_loop=False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="console node", daemon=True)

    def __enter__(self) -> ConsoleNode:
        self._thread.start()
        self._do(self._node.start())
        self.address = f"http://{self._node.http_address}"
        self.client = httpx.Client(base_url=self.address, timeout=DEADLINE_S, trust_env=False)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._do(self._node.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """An answer of the API; a failure fails the test."""
        answer = self.client.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def create_topic(self, name: str, *, partitions: int = 1) -> str:
        self.ask("POST", "/api/v1/topics", {"name": name, "partitions": partitions})
        return name

    def produce(self, topic: str, *records: Mapping[str, object]) -> list[dict[str, int]]:
        answer = self.ask("POST", f"/api/v1/topics/{topic}/records", {"records": list(records)})
        offsets: list[dict[str, int]] = answer["offsets"]
        return offsets

    def read(self, topic: str) -> list[dict[str, Any]]:
        answer = self.ask("GET", f"/api/v1/topics/{topic}/records?limit=1000")
        records: list[dict[str, Any]] = answer["records"]
        return records

    def open_transaction(self, name: str, topic: str) -> None:
        """A producer has written a record to a topic's partition 0, in a transaction that stays open."""
        self._do(self._open_transaction(name, TopicPartition(topic, 0)))

    def open_hanging(self, topic: str) -> None:
        """A transaction in partition 0 that no coordinator knows."""
        self._do(self._write_transactional(TopicPartition(topic, 0), Identity(990_000, 0)))

    async def _open_transaction(self, name: str, tp: TopicPartition) -> None:
        coordinator = self._node.broker.transactions
        identity = await coordinator.init(name, timeout_ms=600_000)
        await coordinator.add(name, identity, [tp])
        await self._write_transactional(tp, identity)

    async def _write_transactional(self, tp: TopicPartition, identity: Identity) -> None:
        batch = build_batch(
            [(0, None, b"of a transaction", ())],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
            transactional=True,
        )
        partition = self._node.broker.gate.access(INTERNAL).readable(tp)
        end = partition.append(read_batch(batch), verified=True).end_offset
        await partition.wait_acknowledged(end)

    def commit(self, group: str, topic: str, *, offset: int) -> None:
        """A group that has read a topic's partition 0 so far."""
        offsets = [{"topic": topic, "partition": 0, "offset": offset}]
        self.ask("PUT", f"/api/v1/consumer-groups/{group}/offsets", {"offsets": offsets})

    def committed(self, group: str) -> list[int]:
        answer = self.ask("GET", f"/api/v1/consumer-groups/{group}/offsets")
        return [each["committed"] for each in answer["offsets"]]


def keep_picture(page: Page, name: str) -> None:
    """A screenshot for people."""
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=str(ARTEFACTS / f"{name}.png"))
