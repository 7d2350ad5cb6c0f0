"""Transactions by real clients: begin, write, send offsets, commit, abort; and what consumers see of it.

Every producer does the same here, through the few words that the three libraries have in common.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pytest
from tests.interop.deadline import wait_until
from tests.interop.raw import read_batches
from tests.interop.server import ServerProcess

confluent_kafka = pytest.importorskip("confluent_kafka")

_PATIENCE_S = 60


class Transactional(Protocol):
    """A transactional producer of one id, ready to begin."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None: ...
    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    """librdkafka."""

    def __init__(self, bootstrap: str, name: str, **settings: object) -> None:
        self._bootstrap = bootstrap
        config = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0}
        self._producer = confluent_kafka.Producer(config | settings)
        self._producer.init_transactions(_PATIENCE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        self._producer.produce(topic, value, partition=partition)

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        positions = [confluent_kafka.TopicPartition(*tp, offset) for tp, offset in offsets.items()]
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, metadata, _PATIENCE_S)
        finally:
            consumer.close()

    def flush(self) -> None:
        assert self._producer.flush(_PATIENCE_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(_PATIENCE_S)

    def abort(self) -> None:
        self.flush()
        self._producer.abort_transaction(_PATIENCE_S)

    def close(self) -> None:
        self._producer.purge()


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._kafka = pytest.importorskip("kafka")
        self._producer = self._kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition)

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        positions = {
            self._kafka.TopicPartition(*tp): self._kafka.OffsetAndMetadata(offset, "", -1)
            for tp, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(positions, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.flush(_PATIENCE_S)
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(_PATIENCE_S)


class AioKafka:
    """aiokafka, in a loop of its own."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._aiokafka = pytest.importorskip("aiokafka")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer: Any = self._run(self._start(bootstrap, name))

    async def _start(self, bootstrap: str, name: str) -> object:
        producer = self._aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await producer.start()
        return producer

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        positions = {self._aiokafka.TopicPartition(*tp): offset for tp, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)


LIBRARIES = [Confluent, KafkaPython, AioKafka]
Start = Callable[..., Transactional]


@pytest.fixture(params=LIBRARIES, ids=[each.__name__ for each in LIBRARIES])
def start(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Start]:
    """Starts producers of one library."""
    started: list[Transactional] = []

    def begin(name: str) -> Transactional:
        producer: Transactional = request.param(bootstrap, name)
        started.append(producer)
        return producer

    yield begin
    for producer in started:
        producer.close()


def read(bootstrap: str, topic: str, partition: int = 0, *, isolation: str = "read_committed") -> list[bytes]:
    """Every record that a consumer of this isolation sees now."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers-of-tests",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    values: list[bytes] = []
    at_end = False

    def poll() -> bool:
        nonlocal at_end
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value())
        elif message is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            at_end = True
        return at_end

    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        wait_until(poll, within_s=_PATIENCE_S, what=f"{topic}-{partition} has no end")
        return values
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The position of a group, by a consumer that requires it to be stable."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], _PATIENCE_S)
        assert found.error is None
        return int(found.offset)
    finally:
        consumer.close()


def test_committed_records_are_read_and_aborted_ones_are_not(
    start: Start, bootstrap: str, make_topic: Callable[..., str], fresh: Callable[[str], str]
) -> None:
    first, second = make_topic(partitions=2), make_topic()
    producer = start(fresh("id"))
    for number, ends in enumerate(["commit", "abort", "commit"]):
        producer.begin()
        for topic, partition in ((first, 0), (first, 1), (second, 0)):
            producer.send(topic, b"%d-%s" % (number, ends.encode()), partition=partition)
        getattr(producer, ends)()
    for topic, partition in ((first, 0), (first, 1), (second, 0)):
        assert read(bootstrap, topic, partition) == [b"0-commit", b"2-commit"]
        everything = read(bootstrap, topic, partition, isolation="read_uncommitted")
        assert everything == [b"0-commit", b"1-abort", b"2-commit"]


def test_what_is_open_is_read_by_nobody_who_wants_committed_records(
    start: Start, bootstrap: str, topic: str, fresh: Callable[[str], str]
) -> None:
    open_one, other = start(fresh("id")), start(fresh("id"))
    open_one.begin()
    open_one.send(topic, b"undecided")
    wait_until(
        lambda: read(bootstrap, topic, isolation="read_uncommitted") == [b"undecided"],
        within_s=_PATIENCE_S,
        what="the record does not arrive",
    )
    other.begin()
    other.send(topic, b"decided")
    other.commit()
    assert read(bootstrap, topic) == []
    open_one.commit()
    assert read(bootstrap, topic) == [b"undecided", b"decided"]


def test_positions_move_with_the_transaction(
    start: Start, bootstrap: str, make_topic: Callable[..., str], fresh: Callable[[str], str], group: str
) -> None:
    source, target = make_topic(), make_topic()
    producer = start(fresh("id"))
    for position, ends in ((5, "commit"), (9, "abort"), (7, "commit")):
        producer.begin()
        producer.send(target, b"%d" % position)
        producer.send_offsets(group, {(source, 0): position})
        getattr(producer, ends)()
        assert committed(bootstrap, group, source) == (5 if ends == "abort" else position)
    assert read(bootstrap, target) == [b"5", b"7"]


def test_a_new_producer_of_an_id_aborts_and_fences_the_old_one(
    bootstrap: str, topic: str, fresh: Callable[[str], str]
) -> None:
    name = fresh("id")
    old = Confluent(bootstrap, name)
    old.begin()
    old.send(topic, b"old")
    old.flush()
    new = Confluent(bootstrap, name)
    new.begin()
    new.send(topic, b"new")
    new.commit()
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        old.commit()
    assert fenced.value.args[0].code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    )
    assert read(bootstrap, topic) == [b"new"]


def test_a_producer_goes_on_after_its_transaction_timed_out(
    bootstrap: str, topic: str, fresh: Callable[[str], str]
) -> None:
    producer = Confluent(
        bootstrap, fresh("id"), **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000}
    )
    producer.begin()
    producer.send(topic, b"late")
    producer.flush()
    wait_until(
        lambda: len(read_batches(bootstrap, topic)) == 2,  # the record, and the marker that aborts it
        within_s=_PATIENCE_S,
        what="the transaction does not time out",
    )
    with pytest.raises(confluent_kafka.KafkaException) as late:
        producer.commit()
    assert not late.value.args[0].fatal() and late.value.args[0].txn_requires_abort()
    producer.abort()
    producer.begin()
    producer.send(topic, b"again")
    producer.commit()
    assert read(bootstrap, topic) == [b"again"]


@pytest.mark.slow
def test_a_transaction_is_whole_after_every_kill(own_server: ServerProcess, rng: random.Random) -> None:
    run_kills(own_server, rng, kills=5)


@pytest.mark.heavy
def test_a_transaction_is_whole_after_a_hundred_kills(own_server: ServerProcess, rng: random.Random) -> None:
    run_kills(own_server, rng, kills=100)


def run_kills(own_server: ServerProcess, rng: random.Random, *, kills: int) -> None:
    """One producer writes to two topics while its server is killed again and again, at any of its steps."""
    bootstrap = own_server.bootstrap
    producer = Confluent(bootstrap, "survivor", **{"retry.backoff.ms": 20})
    outcomes: dict[bytes, bool] = {}
    killer = Killer(own_server, rng, kills=kills)
    killer.start()
    while killer.is_alive() or len(outcomes) < 20:
        value = b"%d" % len(outcomes)
        outcomes[value] = transfer(producer, value, commit=len(outcomes) % 4 != 3)
    killer.join(_PATIENCE_S)
    assert killer.failure is None
    left, right = read(bootstrap, "left"), read(bootstrap, "right")
    assert left == right == [value for value, committed in outcomes.items() if committed]
    own_server.kill()
    own_server.start()
    assert read(bootstrap, "left") == read(bootstrap, "right") == left


def transfer(producer: Confluent, value: bytes, *, commit: bool) -> bool:
    """One transaction, brought to an end that the producer knows; whether it is committed."""
    producer.begin()
    producer.send("left", value)
    producer.send("right", value)
    while True:
        try:
            if commit:
                producer.commit()
            else:
                producer.abort()
        except confluent_kafka.KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort():
                commit = False
            elif not reason.retriable():
                raise
        else:
            return commit


class Killer(threading.Thread):
    """Kills a server several times, each time a little later in what it does, and starts it again."""

    def __init__(self, server: ServerProcess, rng: random.Random, *, kills: int) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._rng = rng
        self._kills = kills
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(self._kills):
                time.sleep(self._rng.uniform(0.05, 0.6))  # at any step: that is the point
                self._server.kill()
                self._server.start()
        except BaseException as error:
            self.failure = error


def test_what_is_open_at_a_kill_is_aborted_by_the_next_producer(own_server: ServerProcess) -> None:
    bootstrap = own_server.bootstrap
    producer = Confluent(bootstrap, "x")
    producer.begin()
    producer.send("topic", b"whole")
    producer.commit()
    producer.begin()
    producer.send("topic", b"half")
    producer.send_offsets("group", {("topic", 0): 1})
    producer.flush()
    own_server.kill()
    own_server.start()
    assert read(bootstrap, "topic") == [b"whole"]
    assert read(bootstrap, "topic", isolation="read_uncommitted") == [b"whole", b"half"]
    following = Confluent(bootstrap, "x")
    following.begin()
    following.send("topic", b"next")
    following.commit()
    assert read(bootstrap, "topic") == [b"whole", b"next"]
    assert committed(bootstrap, "group", "topic") < 0
