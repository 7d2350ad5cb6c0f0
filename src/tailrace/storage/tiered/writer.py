"""The one connection that changes anything, and the epoch that makes its changes safe.

Every change is a transaction that begins with the fence: a row with the writer's epoch, locked until the
transaction ends. Another writer advances the epoch first and waits for that lock, so a change is either
under way before it took over, and finished, or refused with SQLSTATE TR001. A refused writer is deposed: it
ends, and never tries again.

When the connection fails during a change nobody knows whether it was carried out, and the backend may still
be at work. So the writer takes over *from itself*: that waits for the old backend's transaction and lets no
late one through. Then it looks whether the change is there, and only if not does it again. To look without
the takeover finds nothing while the old backend waits for a lock, and a second change would follow the
first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from tailrace.model import NoSpace, StorageError, TailraceError
from tailrace.postgres import (
    Backoff,
    Connection,
    DatabaseAway,
    DatabaseBusy,
    DatabaseError,
    DatabaseFull,
    DatabaseRefused,
    Dsn,
    connect,
    mapped,
)
from tailrace.postgres.driver import OpenConnection
from tailrace.postgres.pool import close_connection

logger = logging.getLogger(__name__)

FENCED = "TR001"
_BEGIN_S = 30.0
_SETTINGS = {
    "synchronous_commit": "on",
    "lock_timeout": "1s",
    "statement_timeout": "5s",
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Change(Protocol[T_co]):
    """One transaction of the writer."""

    advanced: int
    """By how many epochs `apply` has gone on: a truncation makes later chunks differ in name."""

    async def apply(self, connection: Connection, epoch: int) -> T_co:
        """Carry it out: one statement or one transaction, which passes the fence first."""

    async def find(self, connection: Connection, epoch: int) -> T_co | None:
        """What `apply` returned in this epoch, if it was carried out then; the answer may have been lost."""


class Writer:
    """Carries out changes, one at a time."""

    def __init__(self, dsn: Dsn, *, holder: str, statement_s: float) -> None:
        """`holder` names this process, and no other one."""
        self._dsn = dsn
        self._holder = holder
        self._statement_s = statement_s
        self._lock = asyncio.Lock()
        self._connection: OpenConnection | None = None
        self._backoff = Backoff()
        self._is_closed = False
        self.epoch = 0
        self.takeovers = 0  # from itself: unknown outcomes that were settled
        self.trouble: TailraceError | None = None
        """Why changes wait; None while they are carried out."""
        self.on_trouble: Callable[[], None] = lambda: None
        """Called when `trouble` has changed."""

    def __repr__(self) -> str:
        return f"<Writer of epoch {self.epoch} to {self._dsn}>"

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.is_closed()

    async def begin(self) -> int:
        """Take over from whoever was the writer; DatabaseError if that cannot be now."""
        until = asyncio.get_running_loop().time() + _BEGIN_S
        while True:
            try:
                return await self._begin(await self._connected())
            except DatabaseBusy:  # a transaction of the writer before is under way
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(self._backoff.failed())

    async def _begin(self, connection: Connection) -> int:
        with mapped(self._dsn):
            self.epoch = await connection.fetchval(
                "UPDATE tailrace.writer SET epoch = epoch + 1, holder = $1, since = now() RETURNING epoch",
                self._holder,
            )
            await connection.execute(
                "DELETE FROM tailrace.control_rounds WHERE writer_epoch < $1", self.epoch - 1
            )
        logger.info("writer of %s: epoch %d", self._dsn, self.epoch)
        return self.epoch

    async def look(self, connection: Connection) -> None:
        """Raise StorageError if another process is the writer by now."""
        holder = await connection.fetchval("SELECT holder FROM tailrace.writer")
        if holder != self._holder:
            raise self._deposed()

    async def run(self, change: Change[T]) -> T:
        """Carry out a change, however long the database is away; StorageError if that can never be."""
        async with self._lock:
            attempted: int | None = None  # the epoch of an attempt that may have been carried out
            while True:
                try:
                    connection = await self._connected()
                    if attempted is not None:
                        found = await self._settle(connection, change, attempted)
                        attempted = None
                        if found is not None:
                            return self._succeeded(found)
                except DatabaseError as error:
                    await self._wait_out(error)  # nothing is settled by it
                    continue
                try:
                    with mapped(self._dsn):
                        result = await change.apply(connection, self.epoch)
                except DatabaseError as error:
                    if isinstance(error, DatabaseAway):
                        attempted = self.epoch  # after all other errors it is known that nothing was done
                    await self._wait_out(error)
                except BaseException:
                    self._drop()  # a statement may be under way on it
                    raise
                else:
                    self.epoch += change.advanced
                    return self._succeeded(result)

    async def close(self) -> None:
        """Let go; a change under way ends with its connection."""
        self._is_closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_connection(connection)

    # ---- inside

    async def _settle(self, connection: Connection, change: Change[T], attempted: int) -> T | None:
        """What an attempt whose outcome is unknown has done; None: nothing, and it never will."""
        await self._take_over_again(connection)
        with mapped(self._dsn):
            return await change.find(connection, attempted)

    def _succeeded(self, result: T) -> T:
        self._backoff.succeeded()
        self._set_trouble(None)
        return result

    def _set_trouble(self, trouble: TailraceError | None) -> None:
        if trouble is None and self.trouble is not None:
            logger.warning("%s takes changes again", self._dsn)
        elif trouble is not None and self.trouble is None:
            logger.warning("changes wait: %s", trouble)
        if trouble is not None or self.trouble is not None:
            self.trouble = trouble
            self.on_trouble()

    async def _wait_out(self, error: DatabaseError) -> None:
        """Return when it may be tried again; raise what no waiting mends."""
        if error.sqlstate == FENCED:
            raise self._deposed() from error
        if isinstance(error, DatabaseAway | DatabaseRefused):
            self._drop()
            self._set_trouble(error)
        elif isinstance(error, DatabaseFull):
            self._set_trouble(NoSpace(str(error)))
        elif not isinstance(error, DatabaseBusy):
            raise StorageError("write to", str(self._dsn), str(error)) from error
        await asyncio.sleep(self._backoff.failed())

    async def _connected(self) -> OpenConnection:
        if self._is_closed:
            raise StorageError("use", str(self._dsn), "the writer is closed")
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(
                self._dsn, purpose="writer", settings=_SETTINGS, statement_s=self._statement_s
            )
        return self._connection

    async def _take_over_again(self, connection: Connection) -> None:
        """A new epoch of our own: waits for what an old backend still does, and bars what comes late."""
        with mapped(self._dsn):
            epoch = await connection.fetchval(
                "UPDATE tailrace.writer SET epoch = epoch + 1 WHERE holder = $1 RETURNING epoch", self._holder
            )
        if epoch is None:
            raise self._deposed()
        self.epoch = epoch
        self.takeovers += 1

    def _deposed(self) -> StorageError:
        return StorageError(
            "write to",
            str(self._dsn),
            f"another process has taken over from epoch {self.epoch}",
            hint="It serves now. Start this one again to make it the standby",
        )

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.terminate()
