"""The SQLite store: its file, what SQLite refuses, and that a flipped bit in any row is found and named."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from tailrace.cluster import Rows, SqliteStore, database, sqlite
from tailrace.model import BrokerError, ErrorCode, StorageError

_T = TypeVar("_T")
TOPIC = '{"configs":{"retention.ms":"1000"},"internal":false,"name":"orders","partitions":1}'
PUTS = {"cluster": '{"format":1,"id":"one"}', "names/orders": '{"topic":"1"}', "topics/1": TOPIC}


def use(path: Path, work: Callable[[SqliteStore], Awaitable[_T]]) -> _T:
    async def scenario() -> _T:
        store = SqliteStore(path)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(asyncio.wait_for(scenario(), 120))


def fill(path: Path) -> None:
    use(path, lambda store: store.commit(checks={}, puts=PUTS))


def read(path: Path) -> Rows:
    return use(path, lambda store: store.read())


def edit(path: Path, *statements: str) -> None:
    """What somebody else, or the disk, did to the file."""
    with closing(sqlite3.connect(path)) as opened, opened:
        for each in statements:
            opened.execute(each)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


# ---- the file


def test_reading_creates_no_file(path: Path) -> None:
    assert read(path).revision == 0
    assert not list(path.parent.iterdir())


def test_an_empty_file_reads_as_an_empty_store_and_is_left_alone(path: Path) -> None:
    path.touch()
    assert read(path).revision == 0
    assert path.stat().st_size == 0


def test_a_commit_is_synced_before_it_returns(path: Path) -> None:
    async def work(store: SqliteStore) -> list[int | str]:
        await store.commit(checks={}, puts=PUTS)
        assert store._database is not None
        return [
            store._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("synchronous", "journal_mode")
        ]

    assert use(path, work) == [2, "wal"]  # 2 is FULL: in WAL mode every commit syncs the log


def test_a_file_of_a_newer_schema_is_refused(path: Path) -> None:
    fill(path)
    edit(path, "UPDATE meta SET value = '99'")
    with pytest.raises(StorageError, match="version 99"):
        read(path)


def test_a_build_that_knows_schema_1_refuses_the_file(path: Path) -> None:
    """It looks for the table meta, and then for a row `schema` in it with the value 1."""
    fill(path)
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall() == [("2",)]


def test_a_file_that_is_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageError, match="not a database"):
        read(path)
    assert path.read_bytes() == b"not a database at all" * 100


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    edit(path, "CREATE TABLE songs (name TEXT)")
    with pytest.raises(StorageError, match="which schema"):
        use(path, lambda store: store.commit(checks={}, puts=PUTS))
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("SELECT name FROM sqlite_master").fetchall() == [("songs",)]


@pytest.mark.parametrize("length", [1, 100, 4096, 5000])
def test_a_file_that_was_cut_is_refused_with_the_way_out(path: Path, length: int) -> None:
    fill(path)
    whole = path.read_bytes()
    assert len(whole) > 5000
    path.write_bytes(whole[:length])
    with pytest.raises(StorageError, match=f"rebuild-metadata {path.parent}"):
        read(path)


def test_a_first_commit_that_is_cut_short_leaves_a_file_for_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(database, "_write_head", cut_short)
        with pytest.raises(KeyboardInterrupt):
            sqlite.open_database(str(path))
    assert read(path).revision == 0
    fill(path)
    assert read(path).revision == 1


def test_a_full_disk_refuses_a_change_and_the_next_one_succeeds(path: Path) -> None:
    async def work(store: SqliteStore) -> None:
        await store.commit(checks={}, puts=PUTS)
        assert store._database is not None
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages}")
        many = {f"partitions/{number}": TOPIC for number in range(2000)}
        with pytest.raises(BrokerError, match="full") as refused:
            await store.commit(checks={}, puts=many)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        store._database.execute("PRAGMA max_page_count = 100000")
        assert await store.commit(checks={}, puts={"b": "1"}) == 2

    use(path, work)
    assert set(read(path).entries) == {*PUTS, "b"}


def test_a_file_that_another_program_has_locked_refuses_a_change(path: Path) -> None:
    async def work(store: SqliteStore) -> None:
        await store.commit(checks={}, puts=PUTS)
        assert store._database is not None
        store._database.execute("PRAGMA busy_timeout = 1")
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(BrokerError, match="locked") as refused:
                await store.commit(checks={}, puts={"b": "1"})
            assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
            other.rollback()
        assert await store.commit(checks={}, puts={"b": "1"}) == 2

    use(path, work)


def test_closing_leaves_no_thread(path: Path) -> None:
    fill(path)
    assert not [each for each in threading.enumerate() if each.name.startswith("tailrace-metadata")]


# ---- damage


def test_every_flipped_bit_of_a_row_is_found_and_named(path: Path) -> None:
    """Flips every bit of every column in turn; the length of a text stays, as it does in a file."""
    fill(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as opened:
        rows = opened.execute("SELECT key, value, version, crc FROM entries").fetchall()
        for key, value, version, crc in rows:
            for column, data in (("key", key.encode()), ("value", value.encode())):
                for bit in range(len(data) * 8):
                    changed = bytearray(data)
                    changed[bit // 8] ^= 1 << bit % 8
                    check_found(opened, column, key, f"CAST(x'{changed.hex()}' AS TEXT)", named=value)
            for column, number in (("version", version), ("crc", crc)):
                for bit in range(32):
                    check_found(opened, column, key, str(number ^ 1 << bit), named=key)
        assert len(database.read_rows(opened, "a file").entries) == len(PUTS)  # and each was undone


def check_found(opened: sqlite3.Connection, column: str, key: str, changed: str, *, named: str) -> None:
    opened.execute("BEGIN")
    opened.execute(f"UPDATE entries SET {column} = {changed} WHERE key = ?", (key,))
    with pytest.raises(StorageError, match="checksum") as found:
        database.read_rows(opened, "/data/metadata.sqlite")
    opened.execute("ROLLBACK")
    message = str(found.value)
    assert "/data/metadata.sqlite" in message and "rebuild-metadata /data" in message
    assert key in message or named[:60] in message


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM entries WHERE key = 'names/orders'",
        "DELETE FROM head",
        "UPDATE head SET revision = revision + 1",
        "UPDATE head SET entries = 2",
        "UPDATE head SET digest = digest + 1",
        "UPDATE head SET crc = crc + 1",
        "UPDATE head SET revision = 'one'",
        "DELETE FROM meta",
        "UPDATE meta SET value = 'two'",
        "UPDATE meta SET key = 'schemb'",
        "UPDATE entries SET value = 7 WHERE key = 'cluster'",
        "UPDATE entries SET version = 'one' WHERE key = 'cluster'",
    ],
)
def test_other_damage_is_refused_with_the_way_out(path: Path, damage: str) -> None:
    fill(path)
    edit(path, damage)
    with pytest.raises(StorageError, match=f"{path}.*rebuild-metadata {path.parent}"):
        read(path)


def test_an_outdated_row_is_found(path: Path) -> None:
    """Its own checksum holds: a page that was never written keeps the row of the commit before."""
    fill(path)
    with closing(sqlite3.connect(path)) as opened:
        old = opened.execute("SELECT * FROM entries WHERE key = 'topics/1'").fetchone()
    use(path, lambda store: store.commit(checks={}, puts={"topics/1": TOPIC.replace("1000", "-1")}))
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("REPLACE INTO entries VALUES (?, ?, ?, ?)", old)
    with pytest.raises(StorageError, match="outdated"):
        read(path)
