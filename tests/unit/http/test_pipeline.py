"""Runs of pipelines by REST: told by a real heartbeat through a real node, listed, and asked to stop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest
from tests.unit.http.conftest import Run, check_error, partition_of, wait_until

from tailrace.broker import Partition
from tailrace.broker.publishing import NewMessage
from tailrace.client.kafka import KafkaClient
from tailrace.http.error import Code
from tailrace.metrics import runs
from tailrace.model import Offset
from tailrace.records import iter_batches
from tailrace.server.node import Node
from tailrace.spark.pipelines.heartbeat import Heartbeat
from tailrace.spark.pipelines.run_topic import ensure_topic, write_entries
from tailrace.storage.api import Slice
from tailrace.wire.json.run_record import (
    TOPIC,
    RunRecord,
    State,
    StopRequest,
    new_run,
    read_stop,
    run_key,
    stop_key,
    write_record,
)

PIPELINES = "/api/v1/pipelines"
NOW = datetime.now(UTC)


def made(run_id: str, *, name: str = "night", state: State = "running", age_s: float = 0.0) -> RunRecord:
    """A run that told last so many seconds ago."""
    run = new_run(pipeline="archive", name=name, config={"topic": ["t"]})
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return msgspec.structs.replace(run, id=run_id, state=state, started_at=at, at=at)


@asynccontextmanager
async def admin(node: Node) -> AsyncIterator[KafkaClient]:
    async with KafkaClient(node.kafka_address, client_id="test") as client:
        await ensure_topic(client)
        yield client


async def tell(node: Node, *runs: RunRecord) -> None:
    """As a heartbeat does."""
    async with admin(node) as client:
        for run in runs:
            await write_entries(client, [(run_key(run.id), write_record(run))])


async def listed(client: httpx.AsyncClient) -> list[tuple[str, str, bool]]:
    found = (await client.get(PIPELINES)).json()["pipelines"]
    return [(each["id"], each["state"], each["stale"]) for each in found]


def has_records(node: Node) -> bool:
    topic = node.broker.topics.get(TOPIC)
    return topic is not None and topic.partitions[0].high_watermark > 0


async def stops(node: Node) -> dict[bytes, StopRequest]:
    """The requests to stop that the topic holds."""
    partition = partition_of(node.broker, TOPIC, 0)
    data = await (await partition.read(partition.start_offset, bytes_max=1 << 20)).load()
    records = [record for batch in iter_batches(data) for record in batch.records()]
    found = {record.key: read_stop(record.value or b"") for record in records if record.key}
    return {key: each for key, each in found.items() if each is not None and key.endswith(b"/stop")}


# ---- look


def test_without_the_topic_there_are_no_runs(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        assert (await client.get(PIPELINES)).json() == {"pipelines": []}
        assert node.broker.topics.get(TOPIC) is None  # a look makes nothing

    run(scenario())


def test_a_run_is_shown_as_it_told(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        told = msgspec.structs.replace(made("r1"), progress={"rows": 7, "lag": None}, error=None)
        await tell(node, told)
        (found,) = (await client.get(PIPELINES)).json()["pipelines"]
        assert found == msgspec.to_builtins(told) | {"stale": False}

    run(scenario())


def test_the_newest_word_of_each_run_counts(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        old, young = made("old", age_s=9), made("young", age_s=3)
        await tell(node, old, young, msgspec.structs.replace(old, state="finished"))
        assert await listed(client) == [("young", "running", False), ("old", "finished", False)]

    run(scenario())


def test_a_run_that_is_silent_is_stale(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await tell(node, made("lost", age_s=60), made("done", state="failed", age_s=90))
        assert await listed(client) == [("lost", "running", True), ("done", "failed", False)]

    run(scenario())


@pytest.mark.parametrize(
    "entries",
    [
        [(b"r1", b"not json")],
        [(b"r1", b'{"v": 2}')],
        [(b"other", write_record(made("r1")))],  # under a key that is not its own
        [(b"r1/stop", write_record(StopRequest(at=NOW, by="me")))],
        [(b"r1", b"[" * 10_000)],
        [(b"r1", b"\xff\xfe")],
        [(b"r1", write_record(made("r1"))), (b"r1", None)],
    ],
)
def test_what_is_no_run_is_passed_over(
    run: Run, node: Node, client: httpx.AsyncClient, entries: list[tuple[bytes, bytes | None]]
) -> None:
    async def scenario() -> None:
        async with admin(node) as clerk:
            await write_entries(clerk, entries)
        await tell(node, made("good"))
        assert await listed(client) == [("good", "running", False)]

    run(scenario())


def test_a_long_topic_is_read_in_pieces(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_READ_BYTES", 1)  # a batch at a time

    async def scenario() -> None:
        await tell(node, *(made(f"r{index}", age_s=index / 10) for index in range(30)))
        assert [each for each, _, _ in await listed(client)] == [f"r{index}" for index in range(30)]

    run(scenario())


def test_what_is_deleted_while_it_is_read_is_passed_over(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Partition.read

    async def trim_and_read(
        partition: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
    ) -> Slice:
        if partition.topic == TOPIC and offset == 0:
            assert partition.log is not None
            await partition.log.trim(Offset(1))
        return await read(partition, offset, bytes_max=bytes_max, up_to=up_to)

    async def scenario() -> None:
        await tell(node, made("gone"), made("left"))
        monkeypatch.setattr(Partition, "read", trim_and_read)
        assert await listed(client) == [("left", "running", False)]

    run(scenario())


# ---- look again


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which the topic is read from now on."""
    read, offsets = Partition.read, []

    async def noted(
        partition: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
    ) -> Slice:
        if partition.topic == TOPIC:
            offsets.append(int(offset))
        return await read(partition, offset, bytes_max=bytes_max, up_to=up_to)

    monkeypatch.setattr(Partition, "read", noted)
    return offsets


def test_who_asks_again_has_only_what_is_new_read(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await tell(node, made("a", age_s=1))
        offsets = count_reads(monkeypatch)
        for _ in range(3):
            assert [each for each, _, _ in await listed(client)] == ["a"]
        assert offsets == [0]
        await tell(node, made("b"))
        assert [each for each, _, _ in await listed(client)] == ["b", "a"]
        assert offsets == [0, 1]
        node.broker.publisher.publish(partition_of(node.broker, TOPIC, 0), [NewMessage(run_key("a"), None)])
        assert [each for each, _, _ in await listed(client)] == ["b"]

    run(scenario())


def test_many_who_ask_at_once_have_it_read_once(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await tell(node, made("a"))
        offsets = count_reads(monkeypatch)
        answers = await asyncio.gather(*[listed(client) for _ in range(5)])
        assert answers == [[("a", "running", False)]] * 5
        assert offsets == [0]

    run(scenario())


def test_another_topic_of_that_name_is_read_from_its_start(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await tell(node, made("a"))
        assert len(await listed(client)) == 1
        await node.broker.delete_topic(TOPIC)
        assert await listed(client) == []
        await tell(node, made("b"))  # as long as the first one
        assert [each for each, _, _ in await listed(client)] == ["b"]
        await node.broker.delete_topic(TOPIC)
        await tell(node, made("c"))  # and nobody asked in between
        assert [each for each, _, _ in await listed(client)] == ["c"]

    run(scenario())


def test_runs_whose_records_were_deleted_are_forgotten(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await tell(node, made("a"), made("b"))
        assert len(await listed(client)) == 2
        await partition_of(node.broker, TOPIC, 0).delete_records(1)
        assert [each for each, _, _ in await listed(client)] == ["b"]

    run(scenario())


def test_no_more_is_remembered_than_was_read_lately(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_FOLDED_BYTES_MAX", 1)

    async def scenario() -> None:
        await tell(node, made("a"))
        offsets = count_reads(monkeypatch)
        for _ in range(2):
            assert [each for each, _, _ in await listed(client)] == ["a"]
        assert offsets == [0, 0]

    run(scenario())


def test_pipelines_need_nothing_of_spark() -> None:
    program = (
        "import sys, tailrace.http.rest.pipeline;"
        "found = [name for name in sys.modules if 'spark' in name or name == 'pyarrow'];"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---- stop


def test_a_real_run_hears_that_it_shall_stop(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.spark.pipelines.heartbeat._END_S", 60)  # a busy machine may need longer

    async def scenario() -> None:
        asked: list[str] = []
        beat = Heartbeat(node.kafka_address, made("a1b2c3"), on_stop=asked.append, every_s=0.1)
        beat.start()
        try:
            await wait_until(lambda: has_records(node))
            answer = await client.post(f"{PIPELINES}/night/stop")
            assert answer.status_code == 200, answer.text
            assert [each["id"] for each in answer.json()["pipelines"]] == ["a1b2c3"]
            await wait_until(lambda: bool(asked))
            assert asked == ["http@127.0.0.1"]
        finally:
            await asyncio.to_thread(beat.end, state="stopped")
        assert await listed(client) == [("a1b2c3", "stopped", False)]

    run(scenario())


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [
        ("night", ["abc1", "abd2"]),  # every run of a name that is under way
        ("abc1", ["abc1"]),
        ("abd", ["abd2"]),  # of an id the beginning is enough
        ("x9", ["x9"]),  # lost, and perhaps not dead
    ],
)
def test_a_run_is_named_as_on_the_command_line(
    run: Run, node: Node, client: httpx.AsyncClient, wanted: str, asked: Iterable[str]
) -> None:
    async def scenario() -> None:
        await tell(
            node,
            made("abc1"),
            made("abd2"),
            made("fff3", state="finished"),
            made("x9", name="day", age_s=60),
        )
        answer = await client.post(f"{PIPELINES}/{wanted}/stop")
        assert answer.status_code == 200, answer.text
        assert sorted(each["id"] for each in answer.json()["pipelines"]) == sorted(asked)
        assert (await stops(node)).keys() == {stop_key(each) for each in asked}

    run(scenario())


@pytest.mark.parametrize(
    ("wanted", "status", "words"),
    [
        ("absent", 404, ["absent", "/api/v1/pipelines"]),
        ("over", 409, ["does not run", "fff3 failed at"]),
        ("ab", 400, ["beginning of several ids", "abc1"]),
    ],
)
def test_what_cannot_be_stopped_is_told(
    run: Run, node: Node, client: httpx.AsyncClient, wanted: str, status: int, words: list[str]
) -> None:
    async def scenario() -> None:
        await tell(node, made("abc1"), made("abd2"), made("fff3", name="over", state="failed"))
        answer = await client.post(f"{PIPELINES}/{wanted}/stop")
        check_error(answer, Code.INVALID_REQUEST, *words, status=status)
        assert await stops(node) == {}

    run(scenario())


def test_nothing_runs_where_there_is_no_topic(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        answer = await client.post(f"{PIPELINES}/night/stop")
        check_error(answer, Code.INVALID_REQUEST, "night", status=404)
        assert node.broker.topics.get(TOPIC) is None

    run(scenario())
