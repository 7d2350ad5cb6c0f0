"""Members that never acknowledge, or never read: the others are not harmed, and memory has its bound.

A real broker with 100 MB of messages behind it. Its memory is sampled while everybody is at work.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.client import AsyncClient, BrokerClient
from tailrace.client.native.blocking import Message
from tailrace.testing.chaos import BrokerProcess
from tailrace.wire.native import MessageType, write_frame

_TOPIC = "backlog"
_MESSAGES = 25_000
_BODY_BYTES = 4_000
_CREDIT = 2_500  # messages that a member may hold, 10 MB
_GROWTH_BYTES_MAX = 64 << 20  # of 100 MB that are behind
_DEADLINE_S = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a long topic."""
    with BrokerProcess(tmp_path_factory.mktemp("slow")) as running:
        publish_many(running.native_port, _TOPIC, _MESSAGES, body=b"x" * _BODY_BYTES, at_once=1_000)
        yield running


def publish_many(port: int, topic: str, count: int, *, body: bytes, at_once: int) -> None:
    """The same message again and again."""

    async def publish() -> None:
        async with AsyncClient(port=port) as client:
            await client.create_topic(topic)
            for _ in range(count // at_once):
                await asyncio.gather(*(client.publish(topic, body) for _ in range(at_once)))

    asyncio.run(publish())


class Sampled:
    """The largest memory that a broker had while this was open."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.before = self.most = broker.memory_bytes()

    def __enter__(self) -> Sampled:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.05):
            self.most = max(self.most, self._broker.memory_bytes())

    @property
    def growth(self) -> int:
        return self.most - self.before


class Worker:
    """A member that acknowledges everything, and notes which offsets it had."""

    def __init__(self, client: BrokerClient, subscription: str) -> None:
        self.offsets: set[int] = set()
        self.deliveries = 0
        client.subscribe_to_subscription(subscription, handler=self._take, prefetch=1_000)

    def _take(self, message: Message) -> None:
        self.offsets.add(message.offset)
        self.deliveries += 1


def wait_until(true: Callable[[], bool], what: Callable[[], object]) -> None:
    end = time.monotonic() + _DEADLINE_S
    while not true():
        assert time.monotonic() < end, f"not within {_DEADLINE_S} s: {what()}"
        time.sleep(0.05)


def open_deaf_member(port: int, subscription: str, *, credit: int) -> socket.socket:
    """A member that joins and never reads what it is sent."""
    member = socket.create_connection(("127.0.0.1", port))
    member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    properties = {"_subscription": subscription, "_credit": str(credit)}
    member.sendall(write_frame(MessageType.SUBSCRIBE, sequence=1, properties=properties))
    return member


def held_by_members(client: BrokerClient, subscription: str) -> list[int]:
    return [member["held"] for member in client.describe_subscription(subscription)["members"]]


@pytest.mark.slow
def test_members_that_never_acknowledge_do_not_keep_messages_from_others(broker: BrokerProcess) -> None:
    """Their locks run out again and again; in the end somebody else has acknowledged everything."""
    with BrokerClient(port=broker.native_port) as client, BrokerClient(port=broker.native_port) as silent:
        client.create_subscription(
            "silent", _TOPIC, ack_timeout_ms=1_000, backoff_ms=100, backoff_ms_max=500, max_deliveries=0
        )
        silent.subscribe_to_subscription(
            "silent", handler=lambda message: None, auto_ack=False, prefetch=2_000, extend=False
        )
        wait_until(lambda: sum(held_by_members(client, "silent")) > 0, lambda: "nothing is held")
        with Sampled(broker) as memory:
            worker = Worker(client, "silent")
            wait_until(lambda: len(worker.offsets) > _MESSAGES * 9 // 10, lambda: len(worker.offsets))
            silent.unsubscribe_from_subscription("silent")
            wait_until(lambda: len(worker.offsets) == _MESSAGES, lambda: len(worker.offsets))
        wait_until(lambda: client.describe_subscription("silent")["lag"] == 0, lambda: "something is left")
        client.delete_subscription("silent")
    assert memory.growth < _GROWTH_BYTES_MAX, f"it grew by {memory.growth >> 20} MiB"


@pytest.mark.slow
def test_a_member_that_does_not_read_costs_its_buffer_and_no_more(broker: BrokerProcess) -> None:
    with BrokerClient(port=broker.native_port) as client:
        client.create_subscription(
            "deaf", _TOPIC, max_deliveries=0, unacked_max=_MESSAGES // 2, ack_timeout_ms=600_000
        )
        with Sampled(broker) as memory:
            members = [open_deaf_member(broker.native_port, "deaf", credit=_CREDIT) for _ in range(3)]
            wait_until(lambda: min(held_by_members(client, "deaf"), default=0) > 0, lambda: "none joined")
            worker = Worker(client, "deaf")
            held = wait_held_still(client, worker)
            for member in members:
                member.close()  # and what was sent to nobody goes to whoever works
            wait_until(lambda: len(worker.offsets) == _MESSAGES, lambda: len(worker.offsets))
        wait_until(lambda: client.describe_subscription("deaf")["lag"] == 0, lambda: "something is left")
        client.delete_subscription("deaf")
    assert worker.deliveries == _MESSAGES
    assert held < 3 * _CREDIT, "they took what they were allowed to hold, and not what fits into a buffer"
    assert memory.growth < _GROWTH_BYTES_MAX, f"it grew by {memory.growth >> 20} MiB"


def wait_held_still(client: BrokerClient, worker: Worker) -> int:
    """Wait until the worker has had everything that the others do not hold; how much that is."""
    wait_until(
        lambda: len(worker.offsets) + sum(held_by_members(client, "deaf")) >= _MESSAGES,
        lambda: (len(worker.offsets), held_by_members(client, "deaf")),
    )
    return sum(held_by_members(client, "deaf"))


@pytest.mark.slow
def test_a_subscription_whose_members_hold_all_it_allows_pauses_and_others_go_on(
    broker: BrokerProcess,
) -> None:
    with BrokerClient(port=broker.native_port) as client, BrokerClient(port=broker.native_port) as silent:
        for name in ("stuck", "free"):
            client.create_subscription(name, _TOPIC, unacked_max=_CREDIT, ack_timeout_ms=600_000)
        with Sampled(broker) as memory:
            silent.subscribe_to_subscription(
                "stuck", handler=lambda message: None, auto_ack=False, prefetch=_CREDIT, extend=False
            )
            wait_until(
                lambda: client.describe_subscription("stuck")["state"] == "paused", lambda: "not paused"
            )
            worker = Worker(client, "free")
            wait_until(lambda: len(worker.offsets) == _MESSAGES, lambda: len(worker.offsets))
        described = client.describe_subscription("stuck")
        assert (described["unacknowledged"], described["lag"]) == (_CREDIT, _MESSAGES)
        silent.unsubscribe_from_subscription("stuck")
        for name in ("stuck", "free"):
            client.delete_subscription(name)
    assert memory.growth < _GROWTH_BYTES_MAX, f"it grew by {memory.growth >> 20} MiB"


@pytest.mark.slow
def test_large_messages_of_a_member_that_left_are_read_again_a_few_at_a_time(broker: BrokerProcess) -> None:
    """200 MB were delivered to one who leaves; another refuses each of them once before he takes it."""
    port, count = broker.native_port, 2_000
    publish_many(port, "large", count, body=b"x" * 100_000, at_once=50)
    refused: set[int] = set()
    taken: list[int] = []

    def refuse_once(message: Message) -> None:
        if message.offset not in refused:
            refused.add(message.offset)
            raise ValueError("not yet")
        taken.append(message.offset)

    with BrokerClient(port=port) as client, BrokerClient(port=port) as silent:
        client.create_subscription("large", "large", max_deliveries=0, backoff_ms=1)
        with Sampled(broker) as memory:
            held: list[int] = []
            silent.subscribe_to_subscription(
                "large", handler=lambda message: held.append(message.offset), auto_ack=False, prefetch=count
            )
            wait_until(lambda: len(held) == count, lambda: len(held))
            silent.unsubscribe_from_subscription("large")
            client.subscribe_to_subscription("large", handler=refuse_once, prefetch=100)
            wait_until(lambda: len(taken) == count, lambda: (len(refused), len(taken)))
        wait_until(lambda: client.describe_subscription("large")["lag"] == 0, lambda: "something is left")
        client.delete_subscription("large")
    assert sorted(taken) == list(range(count))
    assert memory.growth < _GROWTH_BYTES_MAX, f"it grew by {memory.growth >> 20} MiB"


def test_the_memory_is_sampled(tmp_path: Path) -> None:
    """The sampler sees what a broker takes: a test that cannot fail is worse than none."""
    with BrokerProcess(tmp_path) as running, Sampled(running) as memory:
        before = memory.most
        with BrokerClient(port=running.native_port) as client:
            for _ in range(10):
                client.publish(_TOPIC, b"x" * 1_000_000)
        wait_until(lambda: memory.most > before, lambda: memory.most)
