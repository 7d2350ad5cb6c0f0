"""Metadata survives `kill -9` before every line of its migration."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from tests.crash.line_kills import Killed

from tailrace.cluster import database, replacement, sqlite
from tailrace.cluster.record import read_image

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
