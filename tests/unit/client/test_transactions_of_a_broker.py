"""MessageProducer's transactions against a real broker: offsets, zombies, timeouts, restarts.

Each test runs twice: with an epoch for every transaction (KIP-890 part 2), and as in a cluster without that.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.client import (
    KafkaClient,
    MessageConsumer,
    MessageProducer,
    Producer,
    ProducerConfig,
    ProducerRecord,
    TopicPartition,
)
from tailrace.client.error import ProducerFailed, TransactionFailed

IN, OUT = "in", "out"
DEADLINE_S = 60.0


@pytest.fixture(scope="module", params=[True, False], ids=["own-epochs", "one-epoch"], autouse=True)
def own_epochs(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether clients take the feature that the broker has finalized."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            patch.setattr("tailrace.client.transaction._EPOCH_PER_TRANSACTION", 99)
        yield request.param


@pytest.fixture(scope="module")
def broker(own_epochs: bool) -> Iterator[tailrace.Broker]:
    """A broker for each of the two."""
    with tailrace.Broker() as running:
        yield running


def producer_of(broker: tailrace.Broker, transactional_id: str | None, **more: Any) -> MessageProducer:
    properties = {"bootstrap.servers": broker.bootstrap_servers, **more}
    if transactional_id is not None:
        properties["transactional.id"] = transactional_id
    return MessageProducer(properties)


def consumer_of(broker: tailrace.Broker, group: str, **more: Any) -> MessageConsumer:
    properties = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": "false",
        "value.deserializer": "StringDeserializer",
        **more,
    }
    return MessageConsumer(properties)


def read_all(broker: tailrace.Broker, topic: str, *, isolation: str = "read_committed") -> list[str]:
    """Everything that the topic shows up to its end of now."""
    with consumer_of(broker, "", **{"isolation.level": isolation}) as consumer:
        target = TopicPartition(topic, 0)
        consumer.assign([target])
        consumer.seek_to_end()
        end = consumer.position(target)
        consumer.seek_to_beginning()
        found: list[str] = []
        deadline = time.monotonic() + DEADLINE_S
        while consumer.position(target) < end and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(100)]
        return found


def send(producer: MessageProducer, topic: str, *values: str) -> None:
    for each in [producer.send(ProducerRecord(topic, value)) for value in values]:
        each.result(timeout=DEADLINE_S)


def test_committed_records_are_read_and_aborted_ones_are_not(broker: tailrace.Broker) -> None:
    with producer_of(broker, "simple") as producer:
        producer.init_transactions()
        for value, commits in (("a", True), ("b", False), ("c", True)):
            producer.begin_transaction()
            send(producer, "simple", value)
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.begin_transaction()
        send(producer, "simple", "open")
        assert read_all(broker, "simple") == ["a", "c"]
        assert read_all(broker, "simple", isolation="read_uncommitted") == ["a", "b", "c", "open"]
    assert read_all(broker, "simple") == ["a", "c"]  # closing has aborted the last one


def test_a_commit_takes_everything_that_was_sent_before_it(broker: tailrace.Broker) -> None:
    with producer_of(broker, "many") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        busy = threading.Event()
        producer._thread.post(lambda: busy.wait(DEADLINE_S))  # the other thread has no time for records
        for number in range(5000):
            producer.send(ProducerRecord("many", str(number)))
        threading.Timer(0.1, busy.set).start()
        producer.commit_transaction()
    assert read_all(broker, "many") == [str(number) for number in range(5000)]


def test_a_time_finds_no_record_of_an_open_transaction(broker: tailrace.Broker) -> None:
    target = TopicPartition("times", 0)
    with producer_of(broker, "times") as producer, consumer_of(broker, "") as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, "times", "x")
        assert consumer.offsets_for_times({target: 0}) == {target: None}
        producer.commit_transaction()
        found = consumer.offsets_for_times({target: 0})[target]
        assert found is not None and found[0] == 0


def test_a_transaction_over_several_topics_appears_at_once(broker: tailrace.Broker) -> None:
    with producer_of(broker, "several") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, "one", "x")
        send(producer, "two", "y")
        assert read_all(broker, "one") == read_all(broker, "two") == []
        producer.commit_transaction()
        assert (read_all(broker, "one"), read_all(broker, "two")) == (["x"], ["y"])


def test_a_worker_that_fails_half_way_processes_every_record_exactly_once(broker: tailrace.Broker) -> None:
    values = [str(number) for number in range(60)]
    with producer_of(broker, None) as feeding:
        send(feeding, IN, *values)
    failures = iter([True, False, True, False, False])
    done = 0
    while done < len(values):
        # Every round is another process with the same transactional id.
        with producer_of(broker, "worker") as producer, consumer_of(broker, "workers") as consumer:
            producer.init_transactions()
            consumer.subscribe([IN])
            while done < len(values):
                records = consumer.poll(1000, max_records=7)
                if not records:
                    continue
                producer.begin_transaction()
                send(producer, OUT, *(f"did {record.value}" for record in records))
                offsets = {TopicPartition(IN, 0): records[-1].offset + 1}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                if next(failures, False):
                    break  # the block ends with the transaction open
                producer.commit_transaction()
                done += len(records)
    assert read_all(broker, OUT) == [f"did {value}" for value in values]


def test_a_second_producer_of_an_id_fences_the_first(broker: tailrace.Broker) -> None:
    with producer_of(broker, "fence") as old, producer_of(broker, "fence") as new:
        old.init_transactions()
        old.begin_transaction()
        send(old, "fenced", "from the old one")
        new.init_transactions()
        with pytest.raises(ProducerFailed, match="has taken over"):
            old.commit_transaction()
        with pytest.raises(ProducerFailed):
            old.send(ProducerRecord("fenced", "more"))
        new.begin_transaction()
        send(new, "fenced", "from the new one")
        new.commit_transaction()
    assert read_all(broker, "fenced") == ["from the new one"]


def test_a_transaction_that_timed_out_fails_and_the_next_one_succeeds(broker: tailrace.Broker) -> None:
    with producer_of(broker, "slow", **{"transaction.timeout.ms": 500}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord("late", "lost"))
        producer.flush()
        _wait_until(lambda: _is_decided(broker, "late"))
        with pytest.raises(TransactionFailed):
            producer.commit_transaction()
        producer.abort_transaction()
        _wait_until(lambda: _is_committed(producer, "late", "kept"))  # a slow machine may need several
    assert read_all(broker, "late") == ["kept"]


def _is_committed(producer: MessageProducer, topic: str, value: str) -> bool:
    producer.begin_transaction()
    producer.send(ProducerRecord(topic, value))
    try:
        producer.commit_transaction()
    except TransactionFailed:
        producer.abort_transaction()
        return False
    return True


def _is_decided(broker: tailrace.Broker, topic: str) -> bool:
    """Whether no transaction is open in the topic: its committed end is its end."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        with consumer_of(broker, "", **{"isolation.level": isolation}) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_end()
            ends.append(consumer.position(TopicPartition(topic, 0)))
    return ends[0] == ends[1]


def _wait_until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.02)


def test_a_member_that_lost_its_partitions_cannot_commit_their_offsets(broker: tailrace.Broker) -> None:
    with producer_of(broker, "lost") as producer, consumer_of(broker, "losers") as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, "anything", "x")
        producer.commit_transaction()
        consumer.subscribe(["anything"])
        _wait_until(lambda: bool(consumer.poll(100)))
        stale = consumer.group_metadata()._replace(generation=consumer.group_metadata().generation + 7)
        producer.begin_transaction()
        with pytest.raises(TransactionFailed, match="illegal generation"):
            producer.send_offsets_to_transaction({TopicPartition("anything", 0): 1}, stale)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("anything", 0): 1}, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed(("anything", 0)) == 1


def test_a_member_that_knows_it_was_lost_cannot_commit_the_offsets_it_has_read(
    broker: tailrace.Broker,
) -> None:
    """The offsets go with the generation in which they were read, and not as those of no member."""
    hasty = {"max.poll.interval.ms": 200, "heartbeat.interval.ms": 50}
    with producer_of(broker, "gone") as producer, consumer_of(broker, "leavers", **hasty) as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, "left", "x")
        producer.commit_transaction()
        consumer.subscribe(["left"])
        _wait_until(lambda: bool(consumer.poll(100)))
        membership = consumer._consumer._membership
        assert membership is not None
        _wait_until(lambda: membership.generation < 0)  # nobody polled, so it has left the group
        producer.begin_transaction()
        with pytest.raises(TransactionFailed, match="unknown member id"):
            producer.send_offsets_to_transaction({TopicPartition("left", 0): 1}, consumer.group_metadata())
        producer.abort_transaction()
        assert consumer.committed(("left", 0)) is None

        consumer.unsubscribe()
        consumer.assign([TopicPartition("left", 0)])
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("left", 0): 1}, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed(("left", 0)) == 1


def test_a_consumer_waits_for_offsets_that_a_transaction_may_move(broker: tailrace.Broker) -> None:
    with producer_of(broker, None) as feeding:
        send(feeding, "waited", "0", "1", "2")
    found: list[str] = []

    def consume() -> None:
        with consumer_of(broker, "patient") as consumer:
            consumer.subscribe(["waited"])
            while not found:
                found.extend(record.value for record in consumer.poll(100))

    with producer_of(broker, "mover") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({TopicPartition("waited", 0): 2}, "patient")
        consuming = threading.Thread(target=consume)
        consuming.start()
        time.sleep(0.5)
        assert found == []
        producer.commit_transaction()
        consuming.join(DEADLINE_S)
    assert found == ["2"]


def test_an_open_transaction_outlives_a_restart_of_the_broker(tmp_path: Path) -> None:
    with tailrace.Broker(data_dir=tmp_path) as first, producer_of(first, "tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, "kept", "committed")
        producer.commit_transaction()

        async def leave_open() -> None:
            async with KafkaClient(first.bootstrap_servers) as client:
                config = ProducerConfig(transactional_id="left")
                left = Producer(client, config)
                await left.init_transactions()
                left.begin_transaction()
                await (await left.send("kept", b"open"))
                await left._stop()

        asyncio.run(leave_open())
    with tailrace.Broker(data_dir=tmp_path) as second:
        assert read_all(second, "kept") == ["committed"]
        with producer_of(second, "left") as producer:
            producer.init_transactions()  # which aborts what is open
            producer.begin_transaction()
            send(producer, "kept", "after")
            producer.commit_transaction()
        assert read_all(second, "kept") == ["committed", "after"]
