"""Data that version 0.1 wrote, opened with the present code: the same bytes, cursors, offsets and settings.

Two variants: a server that was stopped, and one that was killed while rounds of its journal were not applied.
Every test compares with manifest.json. `tests/spark/test_golden_data.py` tests the lakes and the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from tests.golden import wire
from tests.golden.account import row, shown
from tests.golden.observation import observe
from tests.golden.opening import (
    DATA_0_1,
    VARIANTS,
    client_of,
    clock_at,
    get,
    http_of,
    read_manifest,
    server_on,
    unpack,
    verify,
)
from tests.interop.deadline import wait_until
from tests.interop.raw import connect
from tests.interop.server import ServerProcess

from tailrace.client import BrokerClient, Message
from tailrace.model import ErrorCode

_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A variant that was served once, without anybody writing to it."""

    expected: Any
    observed: dict[str, Any]
    verified_before: tuple[int, str]
    verified_after: tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A variant that is being served. Tests go on where its clients ended, each with a part of its own."""

    expected: Any
    server: ServerProcess

    def client(self) -> BrokerClient:
        return client_of(self.server.data_dir)


@pytest.fixture(scope="module")
def directory() -> Path:
    """The golden directory; the tests of later ones are these with another."""
    return DATA_0_1


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(directory: Path, variant: str) -> Any:
    """What the manifest says of the variant."""
    return read_manifest(directory)[variant]


@pytest.fixture(scope="module")
def opened(directory: Path, variant: str, expected: Any, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    data_dir = unpack(directory / f"{variant}.tar.xz", tmp_path_factory.mktemp("opened"))
    before = verify(data_dir)
    with server_on(data_dir) as server:
        observed = observe(server.bootstrap, data_dir)
    return Opened(
        expected=expected, observed=observed, verified_before=before, verified_after=verify(data_dir)
    )


@pytest.fixture(scope="module")
def running(
    directory: Path, variant: str, expected: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with server_on(unpack(directory / f"{variant}.tar.xz", tmp_path_factory.mktemp("running"))) as server:
        yield Running(expected=expected, server=server)


# ---- what is served


def test_log_verify_finds_nothing_wrong_before_and_after_serving(opened: Opened) -> None:
    assert opened.verified_before[0] == 0, opened.verified_before[1]
    assert opened.verified_after[0] == 0, opened.verified_after[1]


def test_the_same_topics_have_the_same_ids_and_settings(opened: Opened) -> None:
    assert _topics(opened.observed) == _topics(opened.expected)


def _topics(observed: Any) -> Any:
    return {name: (topic["id"], topic["configs"]) for name, topic in observed["topics"].items()}


def test_every_partition_serves_the_same_bytes_between_the_same_offsets(opened: Opened) -> None:
    for name, topic in opened.expected["topics"].items():
        for index, partition in enumerate(topic["partitions"]):
            assert opened.observed["topics"][name]["partitions"][index] == partition, f"{name}-{index}"


def test_groups_have_the_offsets_that_they_committed(opened: Opened) -> None:
    assert opened.observed["groups"] == opened.expected["groups"]


def test_subscriptions_have_their_settings_and_cursors(opened: Opened) -> None:
    assert opened.observed["subscriptions"] == opened.expected["subscriptions"]


def test_dead_letters_are_where_they_were(opened: Opened) -> None:
    assert opened.observed["dead_letters"] == opened.expected["dead_letters"]


def test_pipelines_tell_how_they_ended(opened: Opened) -> None:
    assert opened.observed["pipelines"] == opened.expected["pipelines"]


# ---- what goes on


def test_subscriptions_deliver_what_was_not_settled_and_nothing_else(running: Running) -> None:
    with running.client() as client:
        for name, messages in running.expected["pending"].items():
            delivered = _drain(client, name, len(messages))
            assert sorted(delivered, key=_place) == sorted(messages, key=_place), name
            _check_drained(client, name)


def _check_drained(client: BrokerClient, name: str) -> None:
    def left() -> tuple[int, int]:
        assert not client.pull(name, 1, wait_ms=100), name  # it passes over what has expired
        described = client.describe_subscription(name)
        return described["lag"], described["unacknowledged"]

    wait_until(lambda: left() == (0, 0), within_s=60, what=lambda: f"{name} has {left()} left")


def _drain(client: BrokerClient, name: str, count: int) -> list[dict[str, Any]]:
    """As many messages as there should be, each acknowledged."""
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        messages = client.pull(name, count - len(rows), wait_ms=10_000)
        assert messages, f"{name} delivered {len(rows)} of {count} messages"
        for message in messages:
            rows.append(_row(message))
            message.ack()
    return rows


def _row(message: Message) -> dict[str, Any]:
    place = (message.topic, message.partition, message.offset)
    value = None if message.is_tombstone else message.body
    return {**row(place, message.key, value, message.headers), "delivery": message.delivery_count}


def _place(message: dict[str, Any]) -> tuple[str, int, int]:
    return message["topic"], message["partition"], message["offset"]


def test_the_repeat_of_a_producers_last_batch_is_answered_as_a_duplicate(running: Running) -> None:
    assert running.expected["producers"]
    with connect(running.server.bootstrap) as connection:
        for producer in running.expected["producers"]:
            last = _last_batch(connection, producer)
            end = wire.list_offset(connection, *_where(producer), wire.LATEST)
            answered = wire.produce(connection, *_where(producer), last.data)
            assert answered == (ErrorCode.NONE, producer["base_offset"]), producer
            assert wire.list_offset(connection, *_where(producer), wire.LATEST) == end, (
                "it was appended again"
            )


def test_a_producer_goes_on_with_its_next_sequence_and_with_no_other(running: Running) -> None:
    subscribed = {
        each["topic"] for each in running.expected["subscriptions"].values()
    }  # another test reads them
    producers = [each for each in running.expected["producers"] if each["topic"] not in subscribed]
    assert producers
    with connect(running.server.bootstrap) as connection:
        for producer in producers:
            last = _last_batch(connection, producer)
            following = producer["last_sequence"] + 1
            gap = wire.produce(connection, *_where(producer), last.with_sequence(following + 5).data)
            assert gap[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            end = wire.list_offset(connection, *_where(producer), wire.LATEST)
            answered = wire.produce(connection, *_where(producer), last.with_sequence(following).data)
            assert answered == (ErrorCode.NONE, end)


def test_a_new_producer_gets_an_id_that_no_other_has_had(running: Running) -> None:
    with connect(running.server.bootstrap) as connection:
        fresh, _ = wire.init_producer_id(connection)
    assert fresh > max(producer["producer_id"] for producer in running.expected["producers"])


def _last_batch(connection: Any, producer: dict[str, Any]) -> wire.RawBatch:
    batches = wire.fetch_batches(connection, *_where(producer), producer["base_offset"])
    last = batches[0]
    found = (last.base_offset, last.producer_id, last.producer_epoch, last.base_sequence)
    wanted = ("base_offset", "producer_id", "epoch", "base_sequence")
    assert found == tuple(producer[name] for name in wanted)
    return last


def _where(producer: dict[str, Any]) -> tuple[str, int]:
    return producer["topic"], producer["partition"]


def test_a_member_of_a_group_reads_on_from_what_the_group_committed(running: Running) -> None:
    committed = running.expected["groups"]["readers"]
    wanted = {
        (record["partition"], record["offset"]): (record["key"], record["value"])
        for record in running.expected["pending"]["reader"]  # all records of orders
        if record["offset"] >= committed.get(f"orders-{record['partition']}", {"offset": 0})["offset"]
    }
    consumer = Consumer(
        {
            "bootstrap.servers": running.server.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    found: dict[tuple[int, int], tuple[str | None, str | None]] = {}
    while len(found) < len(wanted):
        message = consumer.poll(30)
        assert message is not None and message.error() is None, f"{len(found)} of {len(wanted)} records came"
        key, value = message.key(), message.value()
        assert not isinstance(key, str) and not isinstance(value, str)
        found[message.partition() or 0, message.offset() or 0] = (shown(key), shown(value))
    consumer.close()
    assert found == wanted


def test_delayed_messages_wait_until_they_are_due_and_come_once(
    directory: Path, variant: str, expected: Any, tmp_path: Path
) -> None:
    data_dir = unpack(directory / f"{variant}.tar.xz", tmp_path)
    before = _ends(expected, "reminders")  # which is where a server ends that is started today
    late_ms = max(message["due_ms"] for message in expected["delayed"]) + _DAY_MS
    after = [
        end + sum(message["partition"] == index for message in expected["delayed"])
        for index, end in enumerate(before)
    ]
    for _ in range(2):  # a second start finds that they were delivered
        with clock_at(late_ms), server_on(data_dir) as server:
            wait_until(
                lambda: _served_ends(data_dir, "reminders") == after,
                within_s=60,
                what=lambda: _served_ends(data_dir, "reminders"),
            )
            records = _records_behind(server, "reminders", before)
    assert records == sorted(
        (message["partition"], message["key"], message["value"]) for message in expected["delayed"]
    )
    assert verify(data_dir)[0] == 0


def _ends(expected: Any, topic: str) -> list[int]:
    return [partition["end"] for partition in expected["topics"][topic]["partitions"]]


def _served_ends(data_dir: Path, topic: str) -> list[int]:
    details = get(f"{http_of(data_dir)}/topics/{topic}")["partition_details"]
    return [partition["end_offset"] for partition in details]


def _records_behind(server: ServerProcess, topic: str, starts: list[int]) -> list[Any]:
    url = f"{http_of(server.data_dir)}/topics/{topic}/records"
    return sorted(
        (partition, record["key"], record["value"])
        for partition, start in enumerate(starts)
        for record in get(f"{url}?partition={partition}&offset={start}&limit=100")["records"]
    )
