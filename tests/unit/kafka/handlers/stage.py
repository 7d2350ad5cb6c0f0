"""A broker over the memory engine, and requests that pass through the codec in both directions.

So a handler is given what a client of that version can say, and its answer is what that client reads.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TypeVar

from tests import unhurried

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node, Partition, Topic
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.kafka.call import Call
from tailrace.model import BrokerId
from tailrace.model.session import Session
from tailrace.net import ConnectionFacts
from tailrace.records import build_batch, read_batch
from tailrace.storage.memory import MemoryStorage
from tailrace.testing import FakeClock
from tailrace.wire.kafka import APIS, Message, decode, encode

R = TypeVar("R", bound=Message)
CONNECTION = ConnectionFacts("203.0.113.7", 50_000, "192.0.2.1", 9092)
SESSION = Session(host=CONNECTION.peer_host, listener="kafka")


class Stage:
    """A broker, and a client's voice."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.access = broker.gate.access(SESSION)

    async def ask(self, request: Message, answer: type[R], *, version: int | None = None) -> R:
        """The answer to a request of a version, the newest if none is named."""
        handler = import_module(f"tailrace.kafka.handlers.{type(request).__module__.rpartition('.')[2]}")
        if version is None:
            version = APIS[handler.KEY].max_version
        call = self.call(version)
        heard = decode(type(request), version, encode(request, version))
        said = handler.handle(call, heard)
        if inspect.isawaitable(said):
            said = await said
        assert isinstance(said, answer)
        return decode(answer, version, encode(said, version))

    def call(self, version: int) -> Call:
        """What a handler is given beside a request of this version."""
        return Call(self.access, version=version, client_id="tests", connection=CONNECTION)

    async def topic(self, name: str, *, partitions: int = 1, **configs: str) -> Topic:
        """A new topic; its settings with underscores for dots."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        return await self.broker.topics.create(NewTopic(name=name, partitions=partitions, configs=settings))


def play(
    scenario: Callable[[Stage], Awaitable[None]],
    *,
    nodes: Sequence[int] = (1,),
    values: Mapping[str, str] | None = None,
) -> None:
    """Run a scenario with a broker of its own, within a deadline."""

    async def main() -> None:
        clock = FakeClock()
        storage, metadata = MemoryStorage(clock=clock), StoredMetadata(MemoryStore())
        broker = Broker(
            node_id=BrokerId(1),
            nodes={BrokerId(node): Node(node_id=BrokerId(node), rack=f"rack-{node}") for node in nodes},
            storage=storage,
            metadata=metadata,
            config=BrokerConfig.read(values),
            clock=clock,
        )
        try:
            await broker.start()
            await scenario(Stage(broker))
        finally:
            await broker.close()
            await storage.close()
            await metadata.close()

    unhurried.run(asyncio.wait_for(main(), 120))


def versions(key: int) -> Iterable[int]:
    """Every version of an API that is served."""
    return range(APIS[key].min_version, APIS[key].max_version + 1)


def write(partition: Partition, count: int) -> None:
    """Records, one batch of them."""
    partition.append(read_batch(build_batch((0, b"k%d" % number, b"v", ()) for number in range(count))))
