"""How many partitions the topics have that a client publishes to, and which one a message goes to.

The number is asked for once and forgotten with the connection, or when the broker says that the topic is not
there. A topic that does not exist yet is made by the first message, with one partition, and then asked for
again.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tailrace.client.native.connection import Connection
from tailrace.client.native.link import Link
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TailraceError
from tailrace.wire.kafka.partitioner import partition_of_key
from tailrace.wire.native import Frame, MessageType


class Catalog:
    """The topics of one client."""

    def __init__(self, link: Link) -> None:
        self.partitions: dict[str, int] = {}
        """Partitions by topic, as far as known."""
        self._link = link
        self._turns: dict[str, int] = {}
        self._asking: dict[str, asyncio.Task[int]] = {}

    def choose(self, topic: str, key: bytes | None, count: int) -> int:
        """The partition of the next message: by its key as Kafka's clients do, else each in turn."""
        if count == 1:
            return 0
        if key is not None:
            return partition_of_key(key, partitions=count)
        turn = self._turns.get(topic, -1) + 1
        self._turns[topic] = turn
        return turn % count

    async def learn(self, topic: str) -> int:
        """Ask the broker, once for all who want to know."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._ask(topic), name=f"tailrace-learn-{topic}")
            self._asking[topic] = asking
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(asking)

    def forget(self, topic: str | None = None) -> None:
        """What is known of a topic, or of all, may not be true any more."""
        if topic is None:
            self.partitions.clear()
        else:
            self.partitions.pop(topic, None)

    # ---- what the link tells

    def connected(self, connection: Connection) -> None:
        """Nothing is known to have changed."""

    def disconnected(self) -> None:
        self.forget()

    def ended(self, error: TailraceError) -> None:  # noqa: ARG002 (a listener's signature)
        self.forget()

    async def close(self) -> None:
        """Stop asking."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def describe(self, what: str, **properties: str) -> Any:
        """What the broker tells, out of JSON."""
        named = {f"_{name}": value for name, value in properties.items()}
        frame, _ = await self._link.request(MessageType.DESCRIBE, {"_what": what, **named})
        return json_of(frame)

    async def _ask(self, topic: str) -> int:
        try:
            described = await self.describe("topic", name=topic)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return 1
        count = described.get("partitions") if isinstance(described, dict) else None
        count = len(count) if isinstance(count, list) else count
        if not isinstance(count, int) or count < 1:
            raise ProtocolError(f"the broker does not say how many partitions {topic} has")
        self.partitions[topic] = count
        return count


def json_of(frame: Frame) -> Any:
    """The body of a reply to DESCRIBE."""
    try:
        return json.loads(bytes(frame.body))
    except ValueError as error:
        raise ProtocolError(f"the broker described something in what is not JSON: {error}") from error
