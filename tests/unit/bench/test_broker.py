"""The loads of `tailrace bench` against embedded brokers, in tiny windows: figures, refusals, and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

import tailrace
from tailrace.bench.wire import LaneResult, LoadError, Outcome, Percentiles, Usage
from tailrace.bench.wire.broker import SHAPES, Plan, Shape, result_of, run_broker_bench, usage_of
from tailrace.bench.wire.kafka import batch_bytes, one_record
from tailrace.bench.wire.subject import (
    Process,
    Subject,
    check_versions,
    create_topic,
    delete_topic,
    fill,
    find_processes,
    find_subject,
)
from tailrace.bench.wire.topic import METADATA, admin
from tailrace.client.error import CannotConnect, UnsupportedApi
from tailrace.model import BrokerError, ConfigError
from tailrace.model.address import Address
from tailrace.wire.kafka import FETCH, PRODUCE
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse

SECONDS = 0.5
NOWHERE = "127.0.0.1:1"
ONE = SHAPES[0]


@pytest.fixture(scope="module")
def running() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def subject(running: tailrace.Broker) -> Subject:
    return find_subject(running.bootstrap_servers, timeout_s=60)


def topics_of(subject: Subject) -> list[str]:
    with admin(*subject.address) as client:
        answer = client.ask(METADATA, MetadataRequest(topics=None), MetadataResponse)
        return [topic.name or "" for topic in answer.topics if not topic.is_internal]


# ---- the broker under test


def test_a_broker_is_found_and_described(running: tailrace.Broker, subject: Subject) -> None:
    assert subject.processes == [Process(os.getpid(), subject.processes[0].program)]
    facts = subject.facts()
    assert facts["address"] == running.bootstrap_servers
    assert facts["nodes"] == 1
    assert facts["produce_versions"] == [0, 12]
    assert facts["fetch_versions"] == [4, 17]
    assert isinstance(facts["cluster_id"], str)


def test_the_first_broker_that_answers_is_taken(running: tailrace.Broker) -> None:
    found = find_subject(f"{NOWHERE},{running.bootstrap_servers}", timeout_s=60)
    assert str(found.address) == running.bootstrap_servers


def test_nobody_there_is_an_error_that_says_where_and_what_to_try() -> None:
    with pytest.raises(CannotConnect, match=r"127\.0\.0\.1:1 .*Try: tailrace up"):
        find_subject(NOWHERE, timeout_s=5)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="host:port"):
        find_subject("127.0.0.1:port", timeout_s=5)


SPOKEN = {PRODUCE: (3, 9), FETCH: (4, 12)}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({PRODUCE: (0, 8)}, r"h:1 speaks versions 0 to 8 of Produce, .* need version 9"),
        ({PRODUCE: (10, 13)}, r"versions 10 to 13 of Produce, .* need version 9"),
        ({FETCH: (4, 11)}, r"versions 4 to 11 of Fetch, .* need version 12"),
        ({FETCH: (0, -1)}, r"no version of Fetch"),
    ],
)
def test_a_version_that_is_missing_is_named(changes: dict[int, tuple[int, int]], told: str) -> None:
    check_versions(SPOKEN, address=Address("h", 1))
    with pytest.raises(UnsupportedApi, match=told):
        check_versions({**SPOKEN, **changes}, address=Address("h", 1))


def test_an_api_that_is_missing_is_named() -> None:
    with pytest.raises(UnsupportedApi, match="no version of Produce"):
        check_versions({}, address=Address("h", 1))


def test_no_process_is_named_unless_every_node_is_here(subject: Subject) -> None:
    assert find_processes([subject.address, subject.address]) == list(subject.processes)
    assert find_processes([subject.address, Address("127.0.0.1", 1)]) == []


# ---- the topic


def test_a_topic_is_made_filled_and_deleted(subject: Subject) -> None:
    topic = create_topic(subject, "mine", partitions=3)
    assert list(topic.leaders) == [subject.address] * 3
    assert fill(subject, "mine", partition=2, batch=one_record(10), batches=2) == 0
    assert fill(subject, "mine", partition=2, batch=one_record(10), batches=1) == 2
    assert delete_topic(subject, "mine")
    assert topics_of(subject) == []


def test_a_topic_that_never_was_is_gone(subject: Subject) -> None:
    assert delete_topic(subject, "never")


def test_a_topic_of_a_broker_that_is_gone_is_left(subject: Subject) -> None:
    assert not delete_topic(replace(subject, bootstrap=NOWHERE), "mine")


def test_a_topic_that_is_refused_is_the_brokers_error(subject: Subject) -> None:
    with pytest.raises(BrokerError, match="no such name"):
        create_topic(subject, "no such name", partitions=1)


def test_a_batch_that_is_refused_is_an_error(subject: Subject) -> None:
    create_topic(subject, "small", partitions=1)
    with pytest.raises(LoadError, match="MESSAGE_TOO_LARGE"):
        fill(subject, "small", partition=0, batch=batch_bytes(2_000_000), batches=1)
    assert delete_topic(subject, "small")


# ---- loads


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_load_has_its_figures_and_leaves_nothing(subject: Subject, shape: Shape) -> None:
    run = run_broker_bench(subject, Plan(seconds=SECONDS, shapes=[shape]))

    (result,) = run.results
    assert (run.failure, run.interrupted, run.topic_left) == (None, False, None)
    assert (result.name, result.title) == (shape.name, shape.title)
    assert result.per_s > 0
    assert result.p50_ms is not None and result.p99_ms is not None and result.p999_ms is not None
    assert result.p50_ms <= result.p99_ms <= result.p999_ms
    assert result.cpu_us is not None and result.rss_mb is not None
    assert topics_of(subject) == []


def test_connections_are_spread_over_partitions(running: tailrace.Broker, subject: Subject) -> None:
    ends: list[int] = []

    def look(_title: str) -> None:
        if len(told) == 1:  # the first load is over
            (name,) = topics_of(subject)
            ends.extend(len(list(running.read(name, partition=each))) for each in range(3))
        told.append(_title)

    told: list[str] = []
    plan = Plan(seconds=SECONDS, shapes=[SHAPES[1], ONE], partitions=3)
    assert run_broker_bench(subject, plan, note=look).failure is None
    assert told == [SHAPES[1].title, ONE.title]
    assert len(ends) == 3 and all(ends)


def test_a_fetch_reads_every_partition_that_it_is_spread_over(subject: Subject) -> None:
    fetches = next(shape for shape in SHAPES if shape.fetches)
    run = run_broker_bench(subject, Plan(seconds=SECONDS, shapes=[fetches], partitions=2))
    assert run.failure is None
    assert run.results[0].mb_per_s > 0


def test_records_have_the_size_that_was_asked_for(running: tailrace.Broker, subject: Subject) -> None:
    sizes: set[int] = set()

    def look(title: str) -> None:
        if title == "last":
            (name,) = topics_of(subject)
            sizes.update(len(record.value or b"") for record in running.read(name))

    shapes = [ONE, SHAPES[-1], replace(ONE, title="last")]
    run_broker_bench(subject, Plan(seconds=SECONDS, shapes=shapes, record_bytes=321), note=look)
    assert sizes == {321}


def test_a_load_that_is_refused_ends_the_run_and_keeps_what_was_found(subject: Subject) -> None:
    too_large = Shape(name="x", title="too large", connections=1, size=2_000_000)
    run = run_broker_bench(subject, Plan(seconds=SECONDS, shapes=[ONE, too_large, ONE]))
    assert [result.name for result in run.results] == ["one"]
    assert run.failure is not None
    assert run.failure.startswith("too large: ") and "MESSAGE_TOO_LARGE" in run.failure
    assert topics_of(subject) == []


def test_a_broker_that_is_gone_ends_the_run_and_the_topic_is_named() -> None:
    broker = tailrace.Broker()
    with broker:
        subject = find_subject(broker.bootstrap_servers, timeout_s=60)
        seen: list[str] = []

        def stop_at_the_second(title: str) -> None:
            seen.append(title)
            if len(seen) == 2:
                broker.close()

        run = run_broker_bench(subject, Plan(seconds=SECONDS, shapes=[ONE, ONE]), note=stop_at_the_second)
    assert len(run.results) == 1
    assert run.failure is not None and str(subject.address) in run.failure
    assert run.topic_left is not None and run.topic_left.startswith("tailrace-bench-")


def test_ctrl_c_ends_the_run_keeps_what_was_found_and_deletes_the_topic(subject: Subject) -> None:
    def press_at_the_second(title: str) -> None:
        if title == "second":
            signal.raise_signal(signal.SIGINT)

    shapes = [ONE, replace(ONE, title="second")]
    run = run_broker_bench(subject, Plan(seconds=SECONDS, shapes=shapes), note=press_at_the_second)
    assert (len(run.results), run.interrupted, run.failure) == (1, True, None)
    assert topics_of(subject) == []


# ---- figures

OUTCOME = Outcome(
    seconds=2.0,
    driver_cpu_s=1.5,
    lanes={
        "": LaneResult(
            replies=1000,
            payload_bytes=4_000_000,
            latency=Percentiles(p50_ms=1, p99_ms=2, p999_ms=3, max_ms=4),
        )
    },
)


def test_figures_are_per_second_per_request_and_per_mb() -> None:
    before = Usage(cpu_s=1.0, rss_bytes=50_000_000, processes=1)
    after = Usage(cpu_s=1.5, rss_bytes=60_000_000, processes=1)
    result = result_of(ONE, OUTCOME, [before, after])
    assert (result.per_s, result.mb_per_s) == (500, 2)
    assert (result.cpu_us, result.cpu_ms_per_mb, result.rss_mb) == (500, 125, 60)
    assert result.client_cpu == 0.75


def test_of_a_broker_elsewhere_there_is_no_processor_time() -> None:
    result = result_of(ONE, OUTCOME, [None, None])
    assert (result.cpu_us, result.cpu_ms_per_mb, result.rss_mb) == (None, None, None)


def test_a_load_without_a_single_answer_has_no_latency() -> None:
    nothing = replace(OUTCOME, lanes={"": LaneResult(replies=0, payload_bytes=0, latency=None)})
    usage = Usage(cpu_s=1.0, rss_bytes=1, processes=1)
    result = result_of(ONE, nothing, [usage, usage])
    assert (result.per_s, result.p50_ms, result.cpu_us, result.cpu_ms_per_mb) == (0, None, None, None)


def test_usage_is_that_of_all_processes_or_of_none() -> None:
    ours = usage_of([os.getpid()])
    assert ours is not None and ours.rss_bytes > 0
    assert usage_of([]) is None
    assert usage_of([os.getpid(), 2**22 + 1]) is None  # beyond the largest pid that Linux gives


def test_children_of_the_broker_are_not_counted_as_the_broker() -> None:
    """`tailrace up --pipelines` starts Spark, which holds ten times what the broker does."""
    work = "held = b'x' * 200_000_000; print('holds', flush=True); input()"
    alone = usage_of([os.getpid()])
    with subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"holds\n"
        beside = usage_of([os.getpid()])
        child.communicate(b"\n")
    assert alone is not None and beside is not None
    assert beside.processes == 1
    assert beside.rss_bytes - alone.rss_bytes < 100_000_000


def test_the_time_of_a_child_that_ended_is_not_the_brokers() -> None:
    before = usage_of([os.getpid()])
    work = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    after = usage_of([os.getpid()])
    assert before is not None and after is not None
    assert after.cpu_s - before.cpu_s < 0.5  # the child alone took that
