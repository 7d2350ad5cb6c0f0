"""The store of a single node: one SQLite file.

All calls run one after the other in a thread of their own: no SQLite call is made from the loop. A commit is
durable when it returns. A file that does not exist, or holds nothing, reads as an empty store and is created
by the first commit: a start that is refused leaves no trace. The first call checks every row of the file
(`database`), ends a replacement that a crash interrupted, and migrates a file of schema 1.

A full disk, and another program that has locked the file, are BrokerErrors: the change was not made, and may
be tried again. Everything else that SQLite complains of is a StorageError, after which nothing is certain.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

from tailrace.cluster import database
from tailrace.cluster.migration import KEPT, read_schema_1
from tailrace.cluster.replacement import finish, replace
from tailrace.cluster.store import Rows
from tailrace.model import BrokerError, ErrorCode, StorageError, TailraceError

_T = TypeVar("_T")

_HEADER_BYTES = 100  # what every SQLite file begins with
_PASSING = {
    sqlite3.SQLITE_FULL: "Free some space on the disk, then try again",
    sqlite3.SQLITE_BUSY: "Another program has locked it: let that one end, then try again",
}
"""Errors after which nothing has changed, by SQLite's own numbers, and the way out."""


class SqliteStore:
    """Keys and values in the file at `path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tailrace-metadata")
        self._database: sqlite3.Connection | None = None

    def __repr__(self) -> str:
        return f"<SqliteStore {self.path}>"

    def __str__(self) -> str:
        return self.path

    async def read(self, prefix: str = "") -> Rows:
        return await self._in_thread(lambda: self._read(prefix))

    async def commit(
        self, *, checks: Mapping[str, int], puts: Mapping[str, str], deletes: Collection[str] = ()
    ) -> int | None:
        def work(open_database: sqlite3.Connection) -> int | None:
            return database.apply(open_database, self.path, checks=checks, puts=puts, deletes=deletes)

        return await self._in_thread(lambda: self._transact(work))

    async def close(self) -> None:
        if self._database is not None:
            await self._in_thread(self._database.close)
            self._database = None
        self._thread.shutdown()  # it has nothing left to do, and is gone when we say so

    # ---- inside; everything below runs in the thread

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._mapped, work)

    def _mapped(self, work: Callable[[], _T]) -> _T:
        """The one border where SQLite's errors become ours."""
        try:
            return work()
        except sqlite3.Error as error:
            raise self._trouble(error) from error
        except OSError as error:
            raise StorageError("keep metadata in", self.path, str(error), hint="Check the disk") from error

    def _read(self, prefix: str) -> Rows:
        if self._database is None and not holds_tables(self.path):
            return Rows()
        return database.read_rows(self._opened(), self.path, prefix)

    def _transact(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = open_database(self.path)
        return self._database

    def _trouble(self, error: sqlite3.Error) -> TailraceError:
        number = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if number in _PASSING:
            return BrokerError(
                f"{self.path} cannot be written: {error}. {_PASSING[number]}",
                code=ErrorCode.KAFKA_STORAGE_ERROR,
            )
        return database.damaged(self.path, str(error))


def holds_tables(path: str) -> bool:
    """Whether there is a database with tables; ends an interrupted replacement first."""
    finish(path)
    if not os.path.exists(path) or not (size := os.path.getsize(path)):
        return False
    if size < _HEADER_BYTES:  # SQLite would take it for an empty database
        raise database.damaged(path, f"it has {size} bytes, which is too short for a database")
    with closing(database.connect(path)) as found:
        return database.schema_of(found, path) != 0


def open_database(path: str) -> sqlite3.Connection:
    """The database, checked, in schema 2: created if there is none, migrated if it is an older one."""
    finish(path)
    opened = database.connect(path)
    try:
        schema = database.schema_of(opened, path)
        if schema == database.SCHEMA_1:
            rows = read_schema_1(opened, path)
            opened.close()  # folds its write-ahead log into the file
            replace(path, rows, kept=path + KEPT)
            opened = database.connect(path)
        elif not schema:
            _create(opened)
        database.read_rows(opened, path)
    except BaseException:
        opened.close()
        raise
    return opened


def _create(opened: sqlite3.Connection) -> None:
    """One transaction: a crash leaves all tables or none."""
    opened.execute("BEGIN IMMEDIATE")
    try:
        database.create(opened)
        opened.execute("COMMIT")
    except BaseException:
        if opened.in_transaction:
            opened.execute("ROLLBACK")
        raise
