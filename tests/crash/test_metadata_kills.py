"""Metadata survives `kill -9` before every line that writes in its migration and in its rebuild."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest
from tests.crash.line_kills import Killed

from tailrace.broker.ports import PartitionRecord, TopicRecord
from tailrace.cluster import (
    MemoryStore,
    MirroredStore,
    StoredMetadata,
    database,
    image_file,
    replacement,
    sqlite,
)
from tailrace.cluster.rebuild import apply_rebuild, plan_rebuild
from tailrace.cluster.record import read_image
from tailrace.model import BrokerId, Epoch, PartitionId
from tailrace.records import build_batch, read_batch
from tailrace.storage.api import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentStorage

TOPIC_ID = UUID(int=1)


def kill_at_every_line(name: str) -> int:
    """In memory, if there is such a file system: a kill leaves the same there, and syncs cost nothing."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        command = [sys.executable, "-m", "tests.crash.line_kills", f"{__name__}:{name}", directory]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout)


# ---- from schema 1 to 2


def write_schema_1(path: Path) -> None:
    """What version 0.1 wrote."""
    with closing(sqlite3.connect(path)) as old, old:
        old.execute("PRAGMA journal_mode = WAL")
        old.executescript(
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
            "CREATE TABLE topics (id BLOB PRIMARY KEY, name TEXT NOT NULL, configs TEXT NOT NULL,"
            " internal INTEGER NOT NULL, deleted INTEGER NOT NULL) WITHOUT ROWID;"
            "CREATE UNIQUE INDEX topic_names ON topics (name) WHERE NOT deleted;"
            "CREATE TABLE partitions (topic_id BLOB NOT NULL, number INTEGER NOT NULL,"
            " leader INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, replicas TEXT NOT NULL,"
            " isr TEXT NOT NULL, PRIMARY KEY (topic_id, number)) WITHOUT ROWID;"
        )
        meta = [("schema", "1"), ("cluster_id", "kept-for-ever"), ("next_producer_id", "3001")]
        old.executemany("INSERT INTO meta VALUES (?, ?)", meta)
        old.executemany(
            "INSERT INTO topics VALUES (?, ?, ?, ?, ?)",
            [
                (TOPIC_ID.bytes, "orders", json.dumps({"retention.ms": "-1"}), 0, 0),
                (UUID(int=2).bytes, "gone", "{}", 0, 1),
            ],
        )
        rows = [(TOPIC_ID.bytes, 0, 1, 4, "1", "1"), (TOPIC_ID.bytes, 1, 1, 5, "1,2", "1")]
        old.executemany(
            "INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?)",
            [*rows, (UUID(int=2).bytes, 0, 1, 2, "1", "1")],
        )


def prepare_schema_1(directory: Path) -> None:
    write_schema_1(directory / "metadata.sqlite")


def migrate(directory: Path) -> None:
    sqlite.open_database(str(directory / "metadata.sqlite")).close()


def check_migrated(directory: Path) -> None:
    path = directory / "metadata.sqlite"
    with closing(sqlite.open_database(str(path))) as opened:
        rows = database.read_rows(opened, str(path))
    image = read_image(rows.entries)
    assert image.cluster_id == "kept-for-ever"
    gone, orders = image.topics
    assert (orders.name, orders.configs, orders.deleted) == ("orders", {"retention.ms": "-1"}, False)
    assert [(each.leader_epoch, each.replicas) for each in orders.partitions] == [(4, (1,)), (5, (1, 2))]
    assert (gone.name, gone.deleted, len(gone.partitions)) == ("gone", True, 1)
    assert rows.entries["ids/producer"].value == '{"next":3001}'
    left = {each.name for each in directory.iterdir()}
    assert left == {"metadata.sqlite", "metadata.sqlite.schema-1"}, left
    with closing(sqlite3.connect(directory / "metadata.sqlite.schema-1")) as old:
        assert old.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() == ("1",)
        assert old.execute("SELECT count(*) FROM partitions").fetchone() == (3,)


MIGRATION = Killed(
    prepare=prepare_schema_1,
    work=migrate,
    check=check_migrated,
    modules=(sqlite, replacement),  # the others compute
)


def test_a_migration_that_is_killed_anywhere_is_finished_by_the_next_start() -> None:
    assert kill_at_every_line("MIGRATION") > 50


# ---- a rebuild


def prepare_lost(directory: Path) -> None:
    """A data directory whose metadata.sqlite is damaged, with a write-ahead log and an image beside it."""
    shutil.copytree(TEMPLATE, directory, dirs_exist_ok=True)


def rebuild_lost(directory: Path) -> None:
    apply_rebuild(plan_rebuild(directory, now_ms=0))


def check_rebuilt(directory: Path) -> None:
    """Whatever the kill left, the command is given again, and then there is nothing to do."""
    plan = plan_rebuild(directory, now_ms=0)
    if plan.reasons:
        apply_rebuild(plan)
    again = plan_rebuild(directory, now_ms=0)
    assert (again.reasons, again.source) == ((), "metadata.sqlite")
    [orders] = read_image(again.rows.entries).topics
    assert (orders.name, orders.configs) == ("orders", {"retention.ms": "-1"})
    assert again.next_producer_id > 1_000_000
    kept = directory / "metadata.sqlite.before-rebuild"
    assert kept.read_bytes() == b"damaged" and Path(f"{kept}-wal").read_bytes() == b"its log"
    migrate(directory)


TEMPLATE = Path(os.environ.get("TAILRACE_TEST_TEMPLATE", "/nowhere"))
REBUILD = Killed(
    prepare=prepare_lost, work=rebuild_lost, check=check_rebuilt, modules=(replacement, image_file)
)


async def write_data(path: Path) -> None:
    config = DirectoryConfig(
        journal_file_bytes=64 * 1024, journal_bytes_max=1 << 20, round_bytes_max=16 * 1024
    )
    storage = await SegmentStorage.open(path, config=config)
    log = await storage.create(PartitionId(TOPIC_ID, 0), LogConfig())
    log.append(read_batch(build_batch([(1, b"k", b"v", ())])), leader_epoch=Epoch(7))
    await storage.close()
    store = MirroredStore(MemoryStore(), path)
    metadata = StoredMetadata(store)
    await metadata.begin(BrokerId(1))
    partition = PartitionRecord(
        index=0, leader=BrokerId(1), leader_epoch=Epoch(7), replicas=(BrokerId(1),), isr=(BrokerId(1),)
    )
    await metadata.create_topic(
        TopicRecord(id=TOPIC_ID, name="orders", partitions=(partition,), configs={"retention.ms": "-1"})
    )
    await metadata.close()
    (path / "metadata.sqlite").write_bytes(b"damaged")
    (path / "metadata.sqlite-wal").write_bytes(b"its log")


def test_a_rebuild_that_is_killed_anywhere_can_be_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(write_data(tmp_path / "data"))
    monkeypatch.setenv("TAILRACE_TEST_TEMPLATE", str(tmp_path / "data"))
    assert kill_at_every_line("REBUILD") > 50
