"""Heartbeats against a real broker in this process, beside a broker that is away, and one that comes back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import tailrace
from tailrace.client.admin import create_topic, delete_topic
from tailrace.client.kafka import KafkaClient
from tailrace.spark.pipelines import heartbeat as heartbeat_module
from tailrace.spark.pipelines.heartbeat import Heartbeat
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.run_topic import (
    ensure_topic,
    fetch_runs,
    forget_old_runs,
    request_stop,
    write_entries,
)
from tailrace.testing.port import free_port
from tailrace.wire.json.run_record import TOPIC, RunRecord, new_run

DEADLINE_S = 60
T = TypeVar("T")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need longer for the last record than a person should have to wait for it."""
    monkeypatch.setattr(heartbeat_module, "_END_S", DEADLINE_S)


def ask(bootstrap: str, work: Callable[[KafkaClient], Coroutine[Any, Any, T]]) -> T:
    async def act() -> T:
        async with KafkaClient(bootstrap) as client:
            return await work(client)

    return asyncio.run(act())


def wait_until(condition: Callable[[], bool]) -> None:
    """Another thread gives no sign; it is asked until its answer is the right one."""
    ends = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def one_run(broker: tailrace.Broker) -> RunRecord | None:
    runs = ask(broker.bootstrap_servers, fetch_runs)
    assert len(runs) <= 1
    return runs[0] if runs else None


def wait_for_beat(broker: tailrace.Broker, *, since: float) -> None:
    wait_until(lambda: (run := one_run(broker)) is not None and run.at.timestamp() > since)


def heartbeat(bootstrap: str, *, on_stop: Callable[[str], None] = lambda _by: None) -> Heartbeat:
    record = new_run(pipeline="archive", name="night", config={"topic": ["t"]})
    return Heartbeat(bootstrap, record, on_stop=on_stop, every_s=0.05)


PROGRESS = Progress(pipeline="archive", batch=3, rows=77, rows_per_s=7.0, lag=5, offsets={"t": {0: 77}})


def test_a_run_is_seen_from_its_start_to_its_end() -> None:
    with tailrace.Broker() as broker:
        beating = heartbeat(broker.bootstrap_servers)
        beating.start()
        wait_until(lambda: one_run(broker) is not None)
        first = one_run(broker)
        assert first is not None
        assert (first.id, first.name, first.state) == (beating.run.id, "night", "running")
        beating.observe(PROGRESS)
        wait_until(lambda: (one_run(broker) or first).progress is not None)
        beating.end(state="failed", error="no luck")
        last = one_run(broker)
        assert last is not None
        assert (last.state, last.error) == ("failed", "no luck")
        assert last.progress is not None
        assert last.progress["offsets"] == {"t": {"0": 77}}
        assert last.at > first.at
        assert not beating._thread.is_alive()


def test_beats_come_while_nothing_happens() -> None:
    with tailrace.Broker() as broker:
        beating = heartbeat(broker.bootstrap_servers)
        beating.start()
        wait_until(lambda: one_run(broker) is not None)
        first = one_run(broker)
        assert first is not None
        wait_until(lambda: (one_run(broker) or first).at > first.at)
        beating.end(state="finished")


def test_a_run_hears_that_it_shall_stop() -> None:
    heard: list[str] = []
    told = threading.Event()

    def stop(by: str) -> None:
        heard.append(by)
        told.set()

    with tailrace.Broker() as broker:
        beating = heartbeat(broker.bootstrap_servers, on_stop=stop)
        beating.start()
        wait_until(lambda: one_run(broker) is not None)
        ask(broker.bootstrap_servers, lambda client: request_stop(client, "somebody-else"))
        ask(broker.bootstrap_servers, lambda client: request_stop(client, beating.run.id))
        assert told.wait(DEADLINE_S)
        beating.end(state="stopped")
    assert len(heard) == 1
    assert "@" in heard[0]


def test_a_run_that_ends_at_once_is_told_all_the_same() -> None:
    with tailrace.Broker() as broker:
        beating = heartbeat(broker.bootstrap_servers)
        beating.start()
        beating.end(state="failed", error="no such topic")
        run = one_run(broker)
        assert run is not None
        assert (run.state, run.error) == ("failed", "no such topic")


def test_without_a_broker_nothing_is_told_and_nothing_waits(caplog: pytest.LogCaptureFixture) -> None:
    beating = heartbeat("127.0.0.1:1")
    beating.start()
    beating.end(state="finished")
    assert not beating._thread.is_alive()
    assert "could not be told" not in caplog.text  # which is said of an end that was waited for


def test_a_broker_that_comes_later_is_told_and_one_that_restarts_is_told_again(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    heard = threading.Event()
    beating = heartbeat(address, on_stop=lambda _by: heard.set())
    beating.start()
    for _ in range(2):
        with tailrace.Broker(data_dir=tmp_path, port=port) as broker:
            wait_for_beat(broker, since=time.time())
    with tailrace.Broker(data_dir=tmp_path, port=port) as broker:
        ask(address, lambda client: request_stop(client, beating.run.id))  # maybe before it is back itself
        assert heard.wait(DEADLINE_S)
        beating.end(state="stopped")
        run = one_run(broker)
        assert run is not None
        assert run.state == "stopped"


def test_a_topic_that_is_deleted_is_made_anew() -> None:
    with tailrace.Broker() as broker:
        beating = heartbeat(broker.bootstrap_servers)
        beating.start()
        wait_until(lambda: one_run(broker) is not None)
        ask(broker.bootstrap_servers, lambda client: delete_topic(client, TOPIC))
        wait_until(lambda: one_run(broker) is not None)
        beating.end(state="finished")


def test_the_topic_is_internal_compacted_and_made_once() -> None:
    async def make(client: KafkaClient) -> None:
        await asyncio.gather(*(ensure_topic(client) for _ in range(3)))
        found = (await client.metadata([TOPIC]))[TOPIC]
        assert (found.internal, len(found.partitions)) == (True, 1)

    with tailrace.Broker() as broker:
        assert ask(broker.bootstrap_servers, fetch_runs) == []
        ask(broker.bootstrap_servers, make)


def test_old_runs_get_tombstones_and_what_others_wrote_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import msgspec

    from tailrace.spark.pipelines import run_topic
    from tailrace.wire.json.run_record import plan_forgotten, run_key, write_record

    async def write(client: KafkaClient) -> None:
        await create_topic(client, TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
        ended = [
            msgspec.structs.replace(new_run(pipeline="sql", name=f"n{number}", config={}), state="finished")
            for number in range(4)
        ]
        entries = [(run_key(run.id), write_record(run)) for run in ended]
        await write_entries(client, [*entries, (b"noise", b"\x00"), (b"more/stop", b"noise")])
        await forget_old_runs(client)

    monkeypatch.setattr(run_topic, "plan_forgotten", lambda runs, now: plan_forgotten(runs, now=now, kept=1))
    with tailrace.Broker() as broker:
        ask(broker.bootstrap_servers, write)
        assert [run.name for run in ask(broker.bootstrap_servers, fetch_runs)] == ["n3"]
