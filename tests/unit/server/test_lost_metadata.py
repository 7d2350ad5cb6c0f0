"""A node whose metadata is lost, old, damaged or another's refuses to start; a rebuild brings all back."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.broker import Broker, NewTopic
from tailrace.broker.delayed import DELAYED_TOPIC
from tailrace.broker.groups import OFFSETS_TOPIC, CommitRequest, OffsetToCommit
from tailrace.cli.main import main
from tailrace.cluster.rebuild import apply_rebuild, plan_rebuild
from tailrace.cluster.record import read_image
from tailrace.cluster.verification import verify_metadata
from tailrace.model import StorageError, TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.records import build_batch, read_batch
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node
from tailrace.testing.faults.image import copy_as_killed

RECORDS = 5
SETTINGS = {"retention.ms": "-1"}
ORDERS = TopicPartition("orders", 0)
DAY_MS = 24 * 3600 * 1000


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Broker]:
    node = Node(ServerConfig(data_dir=path, kafka_port=0, native_port=0, http_port=None), owns_loop=False)
    try:
        await node.start()
        yield node.broker
    finally:
        await node.close()


def run(scenario: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(scenario, 100)

    return asyncio.run(main())


async def write(broker: Broker, topic: str, partition: int) -> None:
    place = broker.gate.access(INTERNAL).writable(TopicPartition(topic, partition))
    for number in range(RECORDS):
        appended = place.append(read_batch(build_batch([(DAY_MS, b"k", b"v%d" % number, ())])))
    await place.wait_acknowledged(appended.end_offset)


async def fill(path: Path) -> dict[str, Any]:
    """A node with topics, records, committed offsets and producer ids; returns what it served."""
    async with running(path) as broker:
        await broker.topics.create(NewTopic(name="orders", partitions=2, configs=SETTINGS))
        await broker.topics.create(NewTopic(name="empty", partitions=1))
        for partition in (0, 1):
            await write(broker, "orders", partition)
        await commit(broker, 3)
        producer = await broker.next_producer_id()
        return {**await observe(broker), "producer": producer}


async def commit(broker: Broker, offset: int) -> None:
    await broker.groups.wait_loaded()
    offsets = {ORDERS: OffsetToCommit(offset)}
    await broker.groups.commit_offsets(CommitRequest(group_id="billing", offsets=offsets))


async def observe(broker: Broker) -> dict[str, Any]:
    await broker.groups.wait_loaded()
    access = broker.gate.access(INTERNAL)
    partitions = {
        f"{topic.name}-{each.index}": (str(each.id), each.start_offset, each.high_watermark)
        for topic in broker.topics
        for each in topic.partitions
    }
    assert access.cluster_id
    return {
        "cluster": access.cluster_id,
        "committed": broker.groups.fetch_offsets("billing", [ORDERS])[ORDERS].offset,
        "partitions": partitions,
        "configs": {topic.name: dict(topic.configs) for topic in broker.topics},
    }


async def start_and_observe(path: Path) -> dict[str, Any]:
    async with running(path) as broker:
        return {**await observe(broker), "producer": await broker.next_producer_id()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def remove(path: Path) -> None:
    (path / "metadata.sqlite").unlink()


def empty(path: Path) -> None:
    (path / "metadata.sqlite").write_bytes(b"")


def cut(path: Path) -> None:
    content = (path / "metadata.sqlite").read_bytes()
    (path / "metadata.sqlite").write_bytes(content[: len(content) // 2])


def flip(path: Path) -> None:
    with closing(sqlite3.connect(path / "metadata.sqlite")) as opened, opened:
        opened.execute("UPDATE entries SET value = replace(value, '-1', '-3') WHERE key LIKE 'topics/%'")


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def take_another(path: Path) -> None:
    other = path.parent / "other"
    run(fill(other))
    shutil.copy(other / "metadata.sqlite", path / "metadata.sqlite")


LOSSES = [remove, empty, cut, flip, take_another]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("has_image", [True, False], ids=["with cluster.json", "logs alone"])
def test_a_start_is_refused_and_a_rebuild_brings_everything_back(
    data: Path, lose: Callable[[Path], None], has_image: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run(fill(data))
    lose(data)
    if not has_image:
        for each in data.glob("cluster.json*"):
            each.unlink()
    left = {each.name for each in data.iterdir()}
    for _ in range(2):  # a start that was refused changed nothing, so the next one is refused too
        with pytest.raises(StorageError, match=f"rebuild-metadata {data}"):
            run(start_and_observe(data))
    assert {each.name for each in data.iterdir()} == left
    assert main(["log", "verify", str(data)]) == 1
    capsys.readouterr()
    assert main(["storage", "rebuild-metadata", str(data), "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rebuilt"] and shown["source"] == ("cluster.json" if has_image else "log directories")
    after = run(start_and_observe(data))
    for what in ("cluster", "partitions", "committed"):
        assert after[what] == before[what], what
    assert after["producer"] > before["producer"] + 1_000_000
    restored = {**before["configs"], "orders": SETTINGS}
    if not has_image:
        restored |= dict.fromkeys(("orders", "empty"), KEEP_ALL)
    assert after["configs"] == restored
    assert main(["log", "verify", str(data)]) == 0


KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


def test_an_older_copy_of_the_metadata_is_refused(data: Path, tmp_path: Path) -> None:
    run(fill(data))
    shutil.copy(data / "metadata.sqlite", tmp_path / "old")
    run(start_and_observe(data))
    shutil.copy(tmp_path / "old", data / "metadata.sqlite")
    with pytest.raises(StorageError, match="the later one"):
        run(start_and_observe(data))


def test_an_older_copy_is_refused_by_the_epochs_of_the_logs_alone(data: Path, tmp_path: Path) -> None:
    async def write_more() -> None:
        async with running(data) as broker:
            await write(broker, "orders", 1)

    run(fill(data))
    shutil.copy(data / "metadata.sqlite", tmp_path / "old")
    run(write_more())
    shutil.copy(tmp_path / "old", data / "metadata.sqlite")
    for each in data.glob("cluster.json*"):
        each.unlink()
    with pytest.raises(StorageError, match="older than the logs: orders-1"):
        run(start_and_observe(data))
    assert main(["storage", "rebuild-metadata", str(data)]) == 0
    assert run(start_and_observe(data))["partitions"]["orders-1"][2] == 2 * RECORDS


def test_what_the_image_does_not_know_yet_comes_from_the_logs(data: Path) -> None:
    """The image is behind the store by a moment: a topic, partitions and a deletion happened since."""

    async def go_on() -> dict[str, Any]:
        async with running(data) as broker:
            await broker.topics.create(NewTopic(name="late", partitions=3))
            await write(broker, "late", 2)
            await broker.topics.add_partitions("orders", 3)
            await write(broker, "orders", 2)
            await broker.delete_topic("empty")
            return await observe(broker)

    run(fill(data))
    images = {each: each.read_bytes() for each in data.glob("cluster.json*")}
    before = run(go_on())
    for each in data.glob("cluster.json*"):  # the previous one may be of the second run only
        each.unlink()
    for path, content in images.items():
        path.write_bytes(content)
    remove(data)
    assert main(["storage", "rebuild-metadata", str(data)]) == 0
    after = run(start_and_observe(data))
    assert after["partitions"] == before["partitions"]
    assert after["configs"] == {**before["configs"], "late": KEEP_ALL}


@pytest.mark.parametrize("left", ["snapshot", "journal", "segment"])
@pytest.mark.parametrize("image", ["none", "old"])
def test_leader_epochs_become_greater_than_those_in_the_logs(
    data: Path, tmp_path: Path, left: str, image: str
) -> None:
    """Wherever the newest epoch is found: beside the log, in rounds that are not applied, or in batches."""
    lost = tmp_path / "lost"

    async def write_in_later_epochs() -> int:
        for _ in range(3):
            async with running(data) as broker:
                await write(broker, "orders", 1)
                if left == "journal":  # what a kill would leave now
                    shutil.rmtree(lost, ignore_errors=True)
                    copy_as_killed(data, lost)
                topic = broker.topics.get("orders")
                assert topic is not None
                newest = topic.partitions[1].leader_epoch
        return newest

    run(fill(data))
    old = (data / "cluster.json").read_bytes()
    newest = run(write_in_later_epochs())
    if left != "journal":
        shutil.copytree(data, lost)
    for each in (*lost.glob("metadata.sqlite*"), *lost.glob("cluster.json*")):
        each.unlink()
    if image == "old":
        (lost / "cluster.json").write_bytes(old)
    if left == "segment":
        for each in lost.glob("*/*.snapshot"):
            each.unlink()
    plan = plan_rebuild(lost, now_ms=0)
    (orders,) = (each for each in read_image(plan.rows.entries).topics if each.name == "orders")
    assert orders.partitions[1].leader_epoch > newest
    apply_rebuild(plan)
    assert run(start_and_observe(lost))["partitions"]["orders-1"][2] == 4 * RECORDS


def test_a_dry_run_shows_the_plan_and_writes_nothing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(fill(data))
    remove(data)
    left = {each.name: each.stat().st_mtime_ns for each in data.rglob("*") if each.name != "LOCK"}
    assert main(["storage", "rebuild-metadata", str(data), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "metadata.sqlite is missing" in shown and "orders" in shown and "nothing was written" in shown
    assert {each.name: each.stat().st_mtime_ns for each in data.rglob("*") if each.name != "LOCK"} == left


def test_metadata_that_is_whole_is_left_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(fill(data))
    before = (data / "metadata.sqlite").read_bytes()
    assert main(["storage", "rebuild-metadata", str(data)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert (data / "metadata.sqlite").read_bytes() == before


def test_a_directory_that_is_served_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with running(data):
            assert main(["storage", "rebuild-metadata", str(data)]) == 1
            assert "in use by pid" in capsys.readouterr().err
            assert main(["log", "verify", str(data)]) == 0

    run(scenario())


def test_the_old_file_is_kept_each_time(data: Path) -> None:
    run(fill(data))
    contents = []
    for number in range(2):
        cut(data)
        contents.append((data / "metadata.sqlite").read_bytes() + bytes(number))
        (data / "metadata.sqlite").write_bytes(contents[-1])
        assert main(["storage", "rebuild-metadata", str(data)]) == 0
        run(start_and_observe(data))
    kept = sorted(data.glob("metadata.sqlite.before-rebuild*"))
    assert [each.read_bytes() for each in kept] == contents


def test_logs_without_a_label_come_back_under_a_name_of_their_own(data: Path) -> None:
    before = run(fill(data))
    remove(data)
    for each in (*data.glob("cluster.json*"), *data.glob("*/partition.json")):
        each.unlink()
    assert main(["storage", "rebuild-metadata", str(data)]) == 0
    after = run(start_and_observe(data))
    by_id = {key: offsets for key, *offsets in after["partitions"].values()}
    kept = [each for each in before["partitions"].values() if each[2]]  # empty ones were never used
    assert all(by_id[key] == offsets for key, *offsets in kept)
    assert all(name.startswith("recovered-") for name in after["configs"])


@pytest.mark.parametrize("at", ["create", "delete"])
def test_a_crash_in_the_middle_of_a_change_is_no_loss(
    data: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """ADR 0006: a creation leaves empty logs without a topic, a deletion leaves a mark and full logs."""

    class Crash(Exception):
        pass

    async def crash(*_: object) -> None:
        raise Crash

    async def scenario() -> None:
        async with running(data) as broker:
            with monkeypatch.context() as patched:
                patched.setattr(broker._metadata, "create_topic", crash)
                patched.setattr(broker.storage, "delete", crash)
                changes: dict[str, Callable[[], Awaitable[object]]] = {
                    "create": lambda: broker.topics.create(NewTopic(name="never", partitions=2)),
                    "delete": lambda: broker.delete_topic("orders"),
                }
                with pytest.raises(Crash):
                    await changes[at]()

    before = run(fill(data))
    run(scenario())
    after = run(start_and_observe(data))
    gone = {"orders-0", "orders-1"} if at == "delete" else set()
    assert after["partitions"].keys() == before["partitions"].keys() - gone
    assert main(["log", "verify", str(data)]) == 0


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, DELAYED_TOPIC])
def test_a_topic_of_the_brokers_own_gets_its_settings_back(
    data: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def damage() -> dict[str, str]:
        async with running(data) as broker:
            await broker.delayed._log.ensure()
            topic = broker.topics.get(name)
            assert topic is not None
            await broker._metadata.set_configs(topic.id, {"cleanup.policy": "compacu"})
            return dict(topic.configs)

    before = run(fill(data))
    configs = run(damage())
    assert main(["storage", "rebuild-metadata", str(data), "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["source"] == "metadata.sqlite" and name in shown["reasons"][0]
    after = run(start_and_observe(data))
    assert (after["configs"][name], after["committed"]) == (configs, before["committed"])
    assert before["configs"].items() <= after["configs"].items()


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_directory_without_logs_is_refused_and_left_alone(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["storage", "rebuild-metadata", str(tmp_path / name)]) == 3
    assert "holds no log" in capsys.readouterr().err
    assert not list(tmp_path.glob("*/*"))


# ---- cluster.json and the labels


def test_the_image_follows_the_store_and_the_one_before_is_kept(data: Path) -> None:
    run(fill(data))
    run(start_and_observe(data))
    newest, previous = (
        json.loads((data / name).read_text())["content"] for name in ("cluster.json", "cluster.json.previous")
    )
    assert "names/orders" in newest["entries"]
    assert newest["revision"] > previous["revision"]


def test_every_log_has_a_label_and_the_next_start_writes_missing_and_wrong_ones(data: Path) -> None:
    run(fill(data))
    labels = {each: each.read_bytes() for each in data.glob("*/partition.json")}
    assert len(labels) == len([each for each in data.iterdir() if each.is_dir()]) - 1  # and the journal
    first, second, *_ = labels
    first.unlink()
    second.write_bytes(labels[second].replace(b"partition", b"partitiom"))
    assert main(["log", "verify", str(data)]) == 1
    run(start_and_observe(data))
    assert {each: each.read_bytes() for each in data.glob("*/partition.json")} == labels


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.previous", "*/partition.json"])
def test_a_flipped_bit_in_a_file_beside_the_log_is_found_and_mended(data: Path, name: str) -> None:
    run(fill(data))
    run(start_and_observe(data))  # which writes a second image
    path = next(data.glob(name))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert main(["log", "verify", str(data)]) == 1
    for _ in range(2):  # the previous one is replaced by the second
        run(start_and_observe(data))
    assert main(["log", "verify", str(data)]) == 0


@pytest.mark.parametrize("damaged", [("CHECKPOINT",), ("CHECKPOINT", "CHECKPOINT.copy")])
def test_a_damaged_checkpoint_is_not_told_as_missing_logs(data: Path, damaged: tuple[str, ...]) -> None:
    run(fill(data))
    for name in damaged:
        damage(data / name)
    assert verify_metadata(data).problems == []


def test_a_rebuild_needs_one_readable_checkpoint_only(data: Path) -> None:
    before = run(fill(data))
    damage(data / "CHECKPOINT")
    remove(data)
    apply_rebuild(plan_rebuild(data, now_ms=DAY_MS))
    assert run(start_and_observe(data))["partitions"] == before["partitions"]
