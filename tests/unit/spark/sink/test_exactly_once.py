"""The exactly-once sink without Spark: kills at every request, late attempts, two drivers, other brokers."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from unittest.mock import Mock

import pytest
from tests.unit.spark.sink.exactly_once_rig import TOPIC, Driver, Killed, Killer, new_process, visible

import tailrace
from tailrace.client import transaction_admin
from tailrace.client.connection import Connection
from tailrace.client.kafka import KafkaClient
from tailrace.client.transaction_admin import TransactionInfo
from tailrace.model import ConfigError, TailraceError
from tailrace.spark.link import link_to
from tailrace.spark.sink.committing import AttemptLost, Committer, RowsLost
from tailrace.spark.transacting import NoTransactions, init

KILLS_MAX = 80
"""More than twice the requests of any step here: the kills end with one that does not happen."""


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        running.create_topic(TOPIC, partitions=2)
        yield running
    new_process()


def open_transactions(broker: tailrace.Broker, query: str = "") -> list[TransactionInfo]:
    async def ask(client: KafkaClient) -> list[TransactionInfo]:
        return await transaction_admin.list_transactions(client, states=["Ongoing"])

    found = link_to(broker.bootstrap_servers).run(ask)
    return [each for each in found if each.transactional_id.startswith(f"tr-{query}")]


def _abort(broker: tailrace.Broker, found: TransactionInfo) -> None:
    """What `tailrace txn abort` does."""

    async def abort(client: KafkaClient) -> None:
        await transaction_admin.fence_producer(client, found)

    link_to(broker.bootstrap_servers).run(abort)


def rows_of(name: str, batch: int) -> list[list[str]]:
    return [[f"{name}-{batch}-a", f"{name}-{batch}-b"], [f"{name}-{batch}-c"], []]


def flat(*batches: list[list[str]]) -> list[str]:
    return sorted(value for batch in batches for task in batch for value in task)


# ---- a query


def test_batches_of_a_query_are_seen_when_they_are_committed(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(broker, monkeypatch, query="q")
    written = driver.tasks(0, rows_of("x", 0))
    assert visible(broker) == []
    assert [each.opened is not None for each in written] == [True, True, False]
    driver.commit(0, written)
    assert visible(broker) == flat(rows_of("x", 0))
    driver.batch(1, rows_of("x", 1))
    assert visible(broker) == flat(rows_of("x", 0), rows_of("x", 1))
    assert not open_transactions(broker)


def test_a_batch_without_rows_asks_for_nothing(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(broker, monkeypatch, query="q")
    written = driver.tasks(0, [[], []])
    killer = Killer(monkeypatch)
    with killer.killing(0):
        driver.commit(0, written)
    assert killer.seen == 0


@pytest.mark.parametrize("first", range(0, KILLS_MAX, 7))
def test_a_task_that_is_killed_at_a_request_leaves_nothing_that_is_seen(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    _kill_a_task(broker, monkeypatch, range(first, first + 1))


@pytest.mark.heavy
def test_a_task_that_is_killed_at_any_request_leaves_nothing_that_is_seen(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _kill_a_task(broker, monkeypatch, range(KILLS_MAX)) > 5


def _kill_a_task(broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, kills: range) -> int:
    killer, happened, expected = Killer(monkeypatch), 0, []
    for at in kills:
        name = f"k{at}"
        rows = rows_of(name, 0)
        driver = Driver(broker, monkeypatch, query=name)
        written = [driver.task(0, 1, rows[1])]
        try:
            with killer.killing(at):
                driver.task(0, 0, rows[0])
        except Killed:
            happened += 1
        written.append(driver.task(0, 0, rows[0], attempt=1))
        driver.commit(0, written)
        expected.append(rows)
        assert visible(broker) == flat(*expected), at
        assert not open_transactions(broker), at
    return happened


@pytest.mark.parametrize("first", range(0, 60, 6))
def test_a_driver_that_is_killed_at_a_request_twice_in_a_row_commits_every_row_once(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    _kill_drivers(broker, monkeypatch, [(first, first + 3)])


@pytest.mark.heavy
def test_a_driver_that_is_killed_at_any_request_commits_every_row_once(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _kill_drivers(broker, monkeypatch, [(at, None) for at in range(KILLS_MAX)]) > 20


@pytest.mark.heavy
def test_drivers_that_are_killed_at_any_two_requests_commit_every_row_once(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = list(itertools.product(range(24), range(1, 24, 2)))
    assert _kill_drivers(broker, monkeypatch, pairs) > len(pairs)


def _kill_drivers(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, kills: Sequence[tuple[int, int | None]]
) -> int:
    """How many of the kills happened. After each history everything is there once, and nothing is open."""
    killer, happened, expected = Killer(monkeypatch), 0, []
    for number, both in enumerate(kills):
        name = f"k{number}"
        rows = rows_of(name, 0)
        for at in both:
            driver = Driver(broker, monkeypatch, query=name)
            written = driver.tasks(0, rows)
            try:
                with killer.killing(at):
                    driver.commit(0, written)
            except Killed:
                happened += 1
            assert len(visible(broker)) == len(set(visible(broker))), both
        last = Driver(broker, monkeypatch, query=name)
        # Adaptive execution may cut a batch differently when it is written again.
        last.batch(0, [[*rows[0], *rows[1]]])
        last.batch(1, rows_of(name, 1))
        expected += [rows, rows_of(name, 1)]
        assert visible(broker) == flat(*expected), both
        assert not open_transactions(broker), both
    return happened


def test_attempts_that_lose_are_aborted_whatever_their_number(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(broker, monkeypatch, query="q")
    winner = driver.task(0, 0, ["a"])
    speculative = driver.task(0, 0, ["a"], attempt=1)
    of_another_stage_attempt = driver.task(0, 0, ["a"])  # Spark tells Python the same number
    ids = {
        each.opened.transactional_id
        for each in (winner, speculative, of_another_stage_attempt)
        if each.opened
    }
    assert len(ids) == 3 and len(open_transactions(broker)) == 3
    driver.commit(0, [winner])
    assert visible(broker) == ["a"] and not open_transactions(broker)


def test_an_attempt_that_comes_too_late_writes_nothing(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(broker, monkeypatch, query="q")
    driver.batch(0, [["a"]])
    late = driver.task(0, 0, ["a"], attempt=1)
    assert late.is_decided and late.opened is None
    assert visible(broker) == ["a"] and not open_transactions(broker)


def test_a_driver_that_wakes_late_changes_nothing(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = Driver(broker, monkeypatch, query="q")
    of_stale = stale.tasks(0, [["a"]])
    fresh = Driver(broker, monkeypatch, query="q")
    fresh.batch(0, [["a"]])
    of_fresh = fresh.tasks(1, [["b"]])
    new_process()  # the stale driver is a process of its own, which has not heard of that decision
    stale.commit(0, of_stale)
    assert visible(broker) == ["a"]
    fresh.commit(1, of_fresh)
    assert visible(broker) == ["a", "b"]
    stale.commit(0, of_stale)
    stale.abort(0, of_stale)
    assert visible(broker) == ["a", "b"] and not open_transactions(broker)


def test_a_batch_that_is_given_up_leaves_nothing_and_can_be_written_again(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(broker, monkeypatch, query="q")
    written = driver.tasks(0, [["a"], ["b"]])
    driver.abort(0, [written[0], None])
    assert not open_transactions(broker) and visible(broker) == []
    Driver(broker, monkeypatch, query="q").batch(0, [["a"], ["b"]])
    assert visible(broker) == ["a", "b"]


def test_a_query_that_is_stopped_in_a_batch_leaves_nothing_open(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(broker, monkeypatch, query="q", checkpointLocation="/somewhere")
    driver.batch(0, [["a"]])
    driver.tasks(1, [["b"]])
    assert len(open_transactions(broker)) == 1
    driver.abort(1, [None])  # Spark does not hand over what tasks return after the stop
    assert not open_transactions(broker) and visible(broker) == ["a"]
    new_process()
    driver.tasks(1, [["b"]], attempt=1)
    with caplog.at_level(logging.WARNING):
        driver.abort(1, [None])  # nothing tells this process whose batch it is
    assert "tailrace txn list" in caplog.text


def test_a_task_that_fails_aborts_what_it_wrote(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(
        broker, monkeypatch, query="q", **{"kafka.max.request.size": "1000", "kafka.batch.size": "100"}
    )
    with pytest.raises(TailraceError, match="row"):
        driver.task(0, 0, ["x" * 200, *["y"] * 50, "z" * 5000])
    assert not open_transactions(broker)


# ---- a DataFrame


def test_a_dataframe_is_a_run_that_is_there_or_not(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    Driver(broker, monkeypatch, query=None).batch(0, [["a"], ["b"]])
    assert visible(broker) == ["a", "b"]
    Driver(broker, monkeypatch, query=None).batch(0, [["a"], ["b"]])  # run again: a new run
    assert visible(broker) == ["a", "a", "b", "b"]
    failing = Driver(broker, monkeypatch, query=None)
    failing.abort(0, [failing.task(0, 0, ["c"]), None])
    assert visible(broker) == ["a", "a", "b", "b"] and not open_transactions(broker)


@pytest.mark.parametrize("first", range(0, 60, 6))
def test_a_run_whose_driver_is_killed_is_all_or_nothing(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    _kill_runs(broker, monkeypatch, range(first, first + 1))


@pytest.mark.heavy
def test_a_run_whose_driver_is_killed_at_any_request_is_all_or_nothing(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _kill_runs(broker, monkeypatch, range(KILLS_MAX)) > 20


def _kill_runs(broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, kills: range) -> int:
    killer, happened = Killer(monkeypatch), 0
    for at in kills:
        rows = [[f"{at}-a", f"{at}-b"], [f"{at}-c"], [f"{at}-d"]]
        driver = Driver(broker, monkeypatch, query=None)
        written = driver.tasks(0, rows)
        was_killed = False
        try:
            with killer.killing(at):
                driver.commit(0, written)
        except Killed:
            was_killed = True
        happened += was_killed
        Driver(broker, monkeypatch, query=None).batch(0, [[f"{at}-next"]])
        for each in open_transactions(broker):  # of a run that nobody decided about: it would time out
            assert was_killed and each.transactional_id.startswith("tr-")
            _abort(broker, each)
        there = [value for value in visible(broker) if value.startswith(f"{at}-")]
        assert there in ([f"{at}-next"], [*flat(rows), f"{at}-next"]), at
        assert was_killed or len(there) == 5
    return happened


# ---- what can go wrong


@pytest.mark.parametrize("two_phase", [True, False])
def test_a_transaction_that_timed_out_before_the_decision_fails_the_batch_and_nothing_is_seen(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, two_phase: bool
) -> None:
    if not two_phase:
        _without_two_phase_commit(monkeypatch)
    driver = Driver(broker, monkeypatch, query="q")
    written = driver.tasks(0, [["a"], ["b"]])
    (first, _) = open_transactions(broker)
    _abort(broker, first)
    with pytest.raises(AttemptLost, match=r"1 of 2 tasks lost their transactions"):
        driver.commit(0, written)
    driver.abort(0, written)
    assert visible(broker) == [] and not open_transactions(broker)
    Driver(broker, monkeypatch, query="q").batch(0, [["a"], ["b"]])
    assert visible(broker) == ["a", "b"]


def test_a_winner_whose_id_is_used_again_has_been_committed_before(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(broker, monkeypatch, query="q")
    (written,) = driver.tasks(0, [["a"]])
    driver.commit(0, [written])
    opened = written.opened
    assert opened is not None
    # An attempt of sixteen batches ago, which had looked whether its id is in use before it fell asleep.
    link_to(broker.bootstrap_servers).run(
        lambda client: init(client, opened.transactional_id, timeout_ms=60_000)
    )
    Driver(broker, monkeypatch, query="q").batch(0, [["a"]])
    assert visible(broker) == ["a"]


def test_a_run_that_is_done_is_not_finished_again(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Driver(broker, monkeypatch, query=None).batch(0, [["a"]])
    new_process()
    with caplog.at_level(logging.WARNING):
        Driver(broker, monkeypatch, query=None).batch(0, [["b"]])
    assert "finishing a run" not in caplog.text


@pytest.mark.parametrize("two_phase", [True, False])
def test_rows_that_are_lost_after_the_decision_are_told_with_batch_and_counts(
    broker: tailrace.Broker,
    monkeypatch: pytest.MonkeyPatch,
    two_phase: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if not two_phase:
        _without_two_phase_commit(monkeypatch)
    again = _decided_and_killed(broker, monkeypatch, [["a", "b"], ["c"]])
    left = open_transactions(broker, f"{again.query}-")
    # What an administrator does here, a timeout does where there is no two-phase commit.
    _abort(broker, left[0])
    with pytest.raises(
        RowsLost, match=rf"batch 0 of query {again.query}: 1 of 2 transactions .* of 3 rows are lost"
    ):
        again.commit(0, again.tasks(0, [["a"]]))
    tolerant = Driver(broker, monkeypatch, query=again.query, failOnDataLoss="false")
    with caplog.at_level(logging.ERROR):
        tolerant.commit(0, tolerant.tasks(0, [["a"]]))
    assert "of 3 rows are lost" in caplog.text


def _decided_and_killed(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch, rows: list[list[str]]
) -> Driver:
    """The next driver of a query whose last one was killed when it had decided and committed nothing yet."""
    driver = Driver(broker, monkeypatch, query="q")
    written = driver.tasks(0, rows)
    with monkeypatch.context() as patch:
        patch.setattr(Committer, "_finish", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            driver.commit(0, written)
    new_process()
    assert len(open_transactions(broker, "q-")) == len(rows)
    return Driver(broker, monkeypatch, query="q")


def _without_two_phase_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Apache Kafka is: it does not announce the feature."""
    real = Connection.negotiate

    async def negotiate(connection: Connection, *, timeout_s: float) -> None:
        await real(connection, timeout_s=timeout_s)
        connection.features.pop("tailrace.2pc")

    monkeypatch.setattr(Connection, "negotiate", negotiate)


def test_without_two_phase_commit_every_row_is_there_once_too(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_two_phase_commit(monkeypatch)
    assert _kill_drivers(broker, monkeypatch, [(at, at + 1) for at in range(6, 36, 6)]) > 3


def test_without_two_phase_commit_an_attempt_that_slept_may_cost_a_decided_batch_and_that_is_said(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_two_phase_commit(monkeypatch)
    again = _decided_and_killed(broker, monkeypatch, [["a"]])
    (opened,) = open_transactions(broker, f"{again.query}-")
    # The attempt of sixteen batches ago had looked whether its id is in use before it fell asleep.
    link_to(broker.bootstrap_servers).run(
        lambda client: init(client, opened.transactional_id, timeout_ms=60_000)
    )
    with pytest.raises(RowsLost, match="1 of 1 rows are lost"):
        again.commit(0, [again.task(0, 0, ["a"])])


def test_a_broker_without_transactions_is_refused_before_the_first_row(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Connection.negotiate

    async def negotiate(connection: Connection, *, timeout_s: float) -> None:
        await real(connection, timeout_s=timeout_s)
        for key in (24, 26, 65):
            connection.versions.pop(key, None)
        connection.versions[22] = 0, 1

    monkeypatch.setattr(Connection, "negotiate", negotiate)
    for query in ("q", None):
        with pytest.raises(
            NoTransactions, match=r"delivery=exactly-once needs transactions.*InitProducerId 0 to 1"
        ):
            Driver(broker, monkeypatch, query=query)


def test_a_topic_of_decisions_that_forgets_is_refused(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("_tailrace_spark_decisions")
    with pytest.raises(ConfigError, match=r"cleanup.policy=delete.*tailrace topic alter"):
        Driver(broker, monkeypatch, query="q")
