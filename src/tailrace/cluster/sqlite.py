"""Metadata of a single node, in SQLite, behind the broker's metadata port.

All calls run one after the other in a thread of their own: no SQLite call is made from the loop. A change is
durable when its method returns (synchronous=FULL, in WAL mode). The schema carries a version; a file of a
newer one is refused, never guessed at.

A full disk, and somebody else who has locked the file, are BrokerErrors: the change was not made, and may be
tried again. Everything else that SQLite complains of is a StorageError, after which nothing is certain.

    meta(key, value)                                            schema version, cluster id, next producer id
    topics(id, name, configs, internal, deleted)                configs as JSON
    partitions(topic_id, number, leader, leader_epoch, replicas, isr)     node ids separated by commas
"""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from uuid import UUID

from tailrace.broker.ports import MetadataImage, PartitionRecord, TopicRecord
from tailrace.model import BrokerError, BrokerId, Epoch, ErrorCode, StorageError, TailraceError

_T = TypeVar("_T")

_SCHEMA_VERSION = 1
_SCHEMA = """
BEGIN;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    id BLOB PRIMARY KEY, name TEXT NOT NULL, configs TEXT NOT NULL, internal INTEGER NOT NULL,
    deleted INTEGER NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX topic_names ON topics (name) WHERE NOT deleted;
CREATE TABLE partitions (
    topic_id BLOB NOT NULL, number INTEGER NOT NULL, leader INTEGER NOT NULL, leader_epoch INTEGER NOT NULL,
    replicas TEXT NOT NULL, isr TEXT NOT NULL, PRIMARY KEY (topic_id, number)
) WITHOUT ROWID;
"""
_PASSING = {
    sqlite3.SQLITE_FULL: "Free some space on the disk, then try again",
    sqlite3.SQLITE_BUSY: "Another program has locked it: let that one end, then try again",
}
"""Errors after which nothing has changed, by SQLite's own numbers, and the way out."""


class SqliteMetadata:
    """The metadata store of one node; ":memory:" keeps it for the life of the process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tailrace-metadata")
        self._database: sqlite3.Connection | None = None

    def __repr__(self) -> str:
        return f"<SqliteMetadata {self._path}>"

    # ---- the port

    async def begin(self, node_id: BrokerId) -> MetadataImage:
        return await self._call(lambda database: _begin(database, node_id))

    async def create_topic(self, topic: TopicRecord) -> None:
        await self._call(lambda database: _create_topic(database, topic))

    async def add_partitions(self, topic_id: UUID, partitions: Sequence[PartitionRecord]) -> None:
        await self._call(lambda database: _add_partitions(database, topic_id, partitions))

    async def set_configs(self, topic_id: UUID, configs: Mapping[str, str]) -> None:
        row = (json.dumps(dict(configs)), topic_id.bytes)
        await self._execute("UPDATE topics SET configs = ? WHERE id = ?", row)

    async def mark_deleted(self, topic_id: UUID) -> None:
        await self._execute("UPDATE topics SET deleted = 1 WHERE id = ?", (topic_id.bytes,))

    async def forget_topic(self, topic_id: UUID) -> None:
        await self._call(lambda database: _forget_topic(database, topic_id))

    async def reserve_producer_ids(self, count: int) -> int:
        return await self._call(lambda database: _reserve_producer_ids(database, count))

    async def close(self) -> None:
        if self._database is not None:
            await self._in_thread(self._database.close)
            self._database = None
        self._thread.shutdown()  # it has nothing left to do, and is gone when we say so

    # ---- inside

    async def _execute(self, sql: str, row: tuple[object, ...]) -> None:
        await self._call(lambda database: database.execute(sql, row))

    async def _call(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `work` in the thread, as one transaction."""
        return await self._in_thread(lambda: self._transact(work))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _transact(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            if self._database is None:
                self._database = _open(self._path)
            with self._database:
                return work(self._database)
        except sqlite3.Error as error:
            raise self._trouble(error) from error

    def _trouble(self, error: sqlite3.Error) -> TailraceError:
        number = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if number in _PASSING:
            return BrokerError(
                f"{self._path} cannot be written: {error}. {_PASSING[number]}",
                code=ErrorCode.KAFKA_STORAGE_ERROR,
            )
        return StorageError(
            "keep metadata in", self._path, str(error), hint="Check the disk, then start again"
        )


def _open(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        _prepare(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: sqlite3.Connection, path: str) -> None:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    tables = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]
    if not tables:
        # One transaction, begun in the script: a crash leaves all of it or an empty file.
        with database:
            database.executescript(_SCHEMA)
            _set(database, "schema", str(_SCHEMA_VERSION))
            _set(database, "cluster_id", _new_cluster_id())
            _set(database, "next_producer_id", "1")
    version = int(_get(database, "schema"))
    if version != _SCHEMA_VERSION:
        raise StorageError(
            "read", path, f"its schema has version {version}", hint=f"This program knows {_SCHEMA_VERSION}"
        )


def _new_cluster_id() -> str:
    """22 characters, as Kafka's own look."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _get(database: sqlite3.Connection, key: str) -> str:
    row = database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"the row {key!r} of the table meta is missing")
    value = row[0]
    assert isinstance(value, str)
    return value


def _set(database: sqlite3.Connection, key: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def _begin(database: sqlite3.Connection, node_id: BrokerId) -> MetadataImage:
    database.execute("UPDATE partitions SET leader_epoch = leader_epoch + 1 WHERE leader = ?", (node_id,))
    partitions: dict[bytes, list[PartitionRecord]] = {}
    rows = database.execute(
        "SELECT topic_id, number, leader, leader_epoch, replicas, isr FROM partitions ORDER BY number"
    )
    for topic_id, number, leader, epoch, replicas, isr in rows:
        partitions.setdefault(topic_id, []).append(
            PartitionRecord(
                index=number,
                leader=BrokerId(leader),
                leader_epoch=Epoch(epoch),
                replicas=_read_ids(replicas),
                isr=_read_ids(isr),
            )
        )
    topics = [
        TopicRecord(
            id=UUID(bytes=topic_id),
            name=name,
            partitions=tuple(partitions.get(topic_id, ())),
            configs=json.loads(configs),
            internal=bool(internal),
            deleted=bool(deleted),
        )
        for topic_id, name, configs, internal, deleted in database.execute(
            "SELECT id, name, configs, internal, deleted FROM topics ORDER BY name"
        )
    ]
    return MetadataImage(cluster_id=_get(database, "cluster_id"), topics=topics)


def _create_topic(database: sqlite3.Connection, topic: TopicRecord) -> None:
    row = (topic.id.bytes, topic.name, json.dumps(dict(topic.configs)), topic.internal, False)
    try:
        database.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?)", row)
    except sqlite3.IntegrityError as error:
        raise BrokerError(
            f"topic {topic.name!r} exists already", code=ErrorCode.TOPIC_ALREADY_EXISTS
        ) from error
    _add_partitions(database, topic.id, topic.partitions)


def _add_partitions(
    database: sqlite3.Connection, topic_id: UUID, partitions: Sequence[PartitionRecord]
) -> None:
    database.executemany(
        "INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                topic_id.bytes,
                each.index,
                each.leader,
                each.leader_epoch,
                _write_ids(each.replicas),
                _write_ids(each.isr),
            )
            for each in partitions
        ],
    )


def _forget_topic(database: sqlite3.Connection, topic_id: UUID) -> None:
    database.execute("DELETE FROM partitions WHERE topic_id = ?", (topic_id.bytes,))
    database.execute("DELETE FROM topics WHERE id = ?", (topic_id.bytes,))


def _reserve_producer_ids(database: sqlite3.Connection, count: int) -> int:
    first = int(_get(database, "next_producer_id"))
    _set(database, "next_producer_id", str(first + count))
    return first


def _write_ids(nodes: Sequence[BrokerId]) -> str:
    return ",".join(map(str, nodes))


def _read_ids(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(number)) for number in text.split(",") if number)
