"""`tailrace txn` against a broker in this process, with real producers: what it shows, and what it aborts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import tailrace
from tailrace.cli import txn_abort
from tailrace.cli.main import main
from tailrace.client import MessageProducer, ProducerRecord
from tailrace.client.kafka import KafkaClient
from tailrace.client.transaction_admin import describe_transaction
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.records import build_batch, read_batch
from tailrace.spark.link import BrokerLink
from tailrace.spark.transacting import Opened, prepare_opened

HANGING_PRODUCER = 1 << 40


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker(configs={"num.partitions": 2}) as running:
        yield running


@pytest.fixture
def name(broker: tailrace.Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic and a transactional id for this test alone; the topic is there."""
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    unique = request.node.name.replace("[", "-").replace("]", "")
    broker.create_topic(unique, partitions=2)
    return str(unique)


@pytest.fixture
def producer(broker: tailrace.Broker, name: str) -> Iterator[MessageProducer]:
    """A producer whose transaction is open, with a record in partition 1 behind one that is committed."""
    broker.produce(name, b"before", partition=1)
    with MessageProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name, "linger.ms": 0}
    ) as running:
        running.init_transactions()
        running.begin_transaction()
        running.send(ProducerRecord(name, value=b"open", partition=1)).result(timeout=60)
        yield running


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["txn", *args, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def fail(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    """The exit code of a command that fails, and what it says."""
    code = main(["txn", *args])
    return code, capsys.readouterr().err


def listed(capsys: pytest.CaptureFixture[str], *args: str) -> set[str]:
    return {row["transactional_id"] for row in run_json(capsys, "list", *args)}


def values(broker: tailrace.Broker, topic: str) -> list[bytes | None]:
    """What readers of committed records see in partition 1."""
    return [each.value for each in broker.read(topic, partition=1)]


def hang(broker: tailrace.Broker, topic: str) -> None:
    """Leave a transaction open in partition 1 that no coordinator knows, which no client can do."""

    async def append() -> None:
        batch = build_batch(
            [(0, None, b"hangs", ())],
            producer_id=HANGING_PRODUCER,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
        found = broker._inner._started().broker.topics.find_partition(TopicPartition(topic, 1))
        assert found is not None
        appended = found.append(read_batch(bytearray(batch)), verified=True)
        await found.wait_acknowledged(appended.end_offset)

    broker._call(append())


# ---- look


@pytest.mark.usefixtures("producer")
def test_an_open_transaction_is_listed_and_described(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = [row for row in run_json(capsys, "list") if row["transactional_id"] == name]
    assert (row["state"], row["producer_epoch"], row["partition_count"]) == ("Ongoing", 0, 1)
    assert 0 <= row["open_ms"] < 60_000 and row["producer_id"] >= 0
    found = run_json(capsys, "describe", name)
    assert found["partitions"] == [{"topic": name, "partition": 1, "first_offset": 1, "error": None}]
    assert found["timeout_ms"] == 60_000 and found["started_ms"] == row["started_ms"]
    assert main(["txn", "describe", name]) == 0
    shown = capsys.readouterr().out
    assert "1 m 0 s" in shown and "Partitions" in shown and "first offset" in shown
    assert main(["txn", "list"]) == 0
    assert name in capsys.readouterr().out


def test_a_list_is_filtered_by_state_and_by_time(
    name: str, producer: MessageProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name in listed(capsys, "--state", "ongoing", "--open-longer-than", "0")
    assert name not in listed(capsys, "--state", "Empty", "--state", "CompleteCommit")
    assert name not in listed(capsys, "--open-longer-than", "1h")
    assert listed(capsys, "--open-longer-than", "999999999999d") == set()
    producer.commit_transaction()
    assert name in listed(capsys, "--state", "CompleteCommit")
    assert name not in listed(capsys, "--open-longer-than", "0")
    found = run_json(capsys, "describe", name)
    assert (found["open_ms"], found["started_ms"], found["partitions"]) == (None, None, [])


@pytest.mark.usefixtures("producer")
def test_the_partition_of_a_deleted_topic_is_shown_with_the_reason(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "delete", name, "--yes"]) == 0
    capsys.readouterr()
    (row,) = run_json(capsys, "describe", name)["partitions"]
    assert row["first_offset"] is None and "does not exist" in row["error"]


@pytest.mark.usefixtures("name")
def test_what_does_not_exist_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("describe", "abort"):
        code, shown = fail(capsys, verb, "nothing")
        assert code == 3 and "nothing does not exist. Try: tailrace txn list" in shown
    assert "nothing" not in listed(capsys)


@pytest.mark.parametrize("args", [("--state", "Odd"), ("--open-longer-than", "soon")])
def test_a_filter_that_means_nothing_is_refused(
    args: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = fail(capsys, "list", *args)
    assert code == 2 and args[1] in shown


# ---- abort by id


def test_an_abort_is_shown_first_and_needs_a_yes(
    broker: tailrace.Broker, name: str, producer: MessageProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(capsys, "abort", name, "--dry-run")
    assert found["partitions"] == [{"topic": name, "partition": 1}] and found["aborted"] is False
    code, shown = fail(capsys, "abort", name)
    assert code == 2 and f"Abort the transaction of {name} in 1 partition" in shown and "--yes" in shown
    producer.commit_transaction()
    assert values(broker, name) == [b"before", b"open"]


def test_an_abort_ends_the_transaction_and_fences_its_producer(
    broker: tailrace.Broker, name: str, producer: MessageProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["txn", "abort", name, "--yes"]) == 0
    assert f"aborted the transaction of {name}" in capsys.readouterr().out
    broker.produce(name, b"after", partition=1)
    assert values(broker, name) == [b"before", b"after"]
    with pytest.raises(TailraceError):
        producer.commit_transaction()
    found = run_json(capsys, "describe", name)
    assert (found["state"], found["timeout_ms"]) == ("Empty", 60_000)
    code, shown = fail(capsys, "abort", name, "--yes")
    assert code == 1 and "has no open transaction (its state is Empty)" in shown


def test_a_prepared_transaction_has_no_timeout_and_is_aborted_at_an_administrators_word(
    broker: tailrace.Broker, name: str, producer: MessageProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def prepare(client: KafkaClient) -> bool:
        found = await describe_transaction(client, name)
        return await prepare_opened(client, Opened(name, found.producer_id, found.producer_epoch))

    link = BrokerLink(broker.bootstrap_servers)
    try:
        assert link.run(prepare)
    finally:
        link.close()
    assert main(["txn", "describe", name]) == 0
    assert "none (two-phase commit)" in capsys.readouterr().out
    assert main(["txn", "abort", name, "--yes"]) == 0
    assert values(broker, name) == [b"before"]
    with pytest.raises(TailraceError):
        producer.commit_transaction()


def test_a_transaction_that_began_after_the_question_is_not_aborted(
    broker: tailrace.Broker,
    name: str,
    producer: MessageProducer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer_late(_question: str, *, yes: bool) -> None:
        assert yes is False
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(ProducerRecord(name, value=b"next", partition=1)).result(timeout=60)

    monkeypatch.setattr(txn_abort, "confirm", answer_late)
    code, shown = fail(capsys, "abort", name)
    assert code == 1 and "another one has begun. Nothing was aborted" in shown
    producer.commit_transaction()
    assert values(broker, name) == [b"before", b"open", b"next"]


def test_a_transaction_that_is_decided_is_left_to_its_coordinator(
    broker: tailrace.Broker,
    name: str,
    producer: MessageProducer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transactions = broker._inner._started().broker.transactions
    with monkeypatch.context() as patched:
        patched.setattr(transactions, "_mark", lambda _entry: False)  # as if the log refused the markers
        producer.commit_transaction()
        assert name in listed(capsys, "--state", "PrepareCommit")
        code, shown = fail(capsys, "abort", name, "--yes")
        assert code == 1 and "is being committed (PrepareCommit)" in shown


# ---- abort in a partition


def test_a_transaction_that_hangs_is_ended_in_its_partition(
    broker: tailrace.Broker, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.produce(name, b"before", partition=1)
    hang(broker, name)
    broker.produce(name, b"after", partition=1)
    assert values(broker, name) == [b"before"]
    where = ("--topic", name, "--partition", "1", "--offset", "1")
    found = run_json(capsys, "abort", *where, "--dry-run")
    assert (found["producer_id"], found["producer_epoch"]) == (HANGING_PRODUCER, 3)
    assert (found["first_offset"], found["aborted"]) == (1, False)
    assert values(broker, name) == [b"before"]
    assert main(["txn", "abort", *where, "--yes"]) == 0
    assert f"aborted the transaction at offset 1 of {name}-1" in capsys.readouterr().out
    assert values(broker, name) == [b"before", b"after"]
    code, shown = fail(capsys, "abort", *where, "--yes")
    assert code == 3 and "None is open in this partition" in shown


def test_a_transaction_that_its_coordinator_knows_is_not_ended_in_one_partition(
    broker: tailrace.Broker, name: str, producer: MessageProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--topic", name, "--partition", "1", "--offset")
    code, shown = fail(capsys, "abort", *where, "1", "--yes")
    assert code == 1 and f"Try: tailrace txn abort {name}" in shown
    code, shown = fail(capsys, "abort", *where, "0", "--yes")
    assert code == 3 and "Those that are open there begin at 1" in shown
    producer.commit_transaction()
    assert values(broker, name) == [b"before", b"open"]


def test_a_partition_that_does_not_exist_is_not_found(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = fail(capsys, "abort", "--topic", name, "--partition", "9", "--offset", "0", "--yes")
    assert code == 3 and f"topic {name} has no partition 9" in shown


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--topic", "t"),
        ("--topic", "t", "--partition", "0"),
        ("--partition", "0", "--offset", "0"),
        ("x", "--topic", "t"),
        ("x", "--topic", "t", "--partition", "0", "--offset", "0"),
    ],
)
def test_an_abort_names_an_id_or_a_place(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = fail(capsys, "abort", *args)
    assert code == 2 and "say what to abort" in shown
