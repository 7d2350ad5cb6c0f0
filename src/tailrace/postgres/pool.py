"""A few connections to one database, made when they are needed and shared by callers.

    async with pool.connection() as connection:
        await connection.fetch("SELECT ...")

A body that ends with an error, or within a transaction, costs its connection: no caller is given the state
that another one left. After a connection could not be made, callers get that error at once until the back-off
has passed, so that a database that is away holds nobody for the time of a connection attempt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from tailrace.postgres.backoff import Backoff
from tailrace.postgres.connection import STATEMENT_S, connect
from tailrace.postgres.driver import Connection, OpenConnection
from tailrace.postgres.dsn import Dsn
from tailrace.postgres.error import DatabaseAway, DatabaseBusy, DatabaseError, mapped

_WAIT_S: Final = 10.0
_CLOSE_S: Final = 2.0


class Pool:
    """Connections to a database; closed by its owner."""

    def __init__(
        self,
        dsn: Dsn,
        *,
        purpose: str = "",
        connections_max: int = 2,
        settings: Mapping[str, str] | None = None,
        statement_s: float = STATEMENT_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dsn = dsn
        self._purpose = purpose
        self._settings = settings
        self._statement_s = statement_s
        self._monotonic = monotonic
        self._places = asyncio.Semaphore(connections_max)
        self._idle: list[OpenConnection] = []
        self._used: set[OpenConnection] = set()
        self._backoff = Backoff()
        self.failure: DatabaseError | None = None  # of the last attempt to connect
        self._not_before = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"<Pool of {self.dsn}: {len(self._used)} in use, {len(self._idle)} idle>"

    @asynccontextmanager
    async def connection(self, *, wait_s: float = _WAIT_S) -> AsyncIterator[Connection]:
        """A connection for the body alone; DatabaseError if there is none, and for what fails in the body."""
        await self._take_place(wait_s)
        try:
            connection = await self._take()
            try:
                with mapped(self.dsn):
                    yield connection
            except BaseException:
                connection.terminate()
                raise
            finally:
                self._give_back(connection)
        finally:
            self._places.release()

    async def close(self) -> None:
        """Close what is idle and end what is in use; closing twice is harmless."""
        self._closed = True
        for used in self._used:
            used.terminate()
        idle, self._idle = self._idle, []
        for each in idle:
            await close_connection(each)

    # ---- inside

    async def _take_place(self, wait_s: float) -> None:
        try:
            await asyncio.wait_for(self._places.acquire(), wait_s)
        except TimeoutError:
            raise DatabaseBusy(
                f"all connections to {self.dsn} were in use for {wait_s:g} s. Try again"
            ) from None

    async def _take(self) -> OpenConnection:
        if self._closed:
            raise DatabaseAway(f"the connections to {self.dsn} are closed")
        while self._idle:
            idle = self._idle.pop()
            if not idle.is_closed():
                self._used.add(idle)
                return idle
        made = await self._connect()
        self._used.add(made)  # also after `close`, which may have come meanwhile: `_give_back` ends it
        return made

    async def _connect(self) -> OpenConnection:
        if self.failure is not None and self._monotonic() < self._not_before:
            raise self.failure.with_traceback(None)
        try:
            made = await connect(
                self.dsn, purpose=self._purpose, settings=self._settings, statement_s=self._statement_s
            )
        except DatabaseError as error:
            self.failure = error
            self._not_before = self._monotonic() + self._backoff.failed()
            raise
        self.failure = None
        self._backoff.succeeded()
        return made

    def _give_back(self, connection: OpenConnection) -> None:
        self._used.discard(connection)
        if connection.is_closed():
            return
        if self._closed or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(connection)


async def close_connection(connection: OpenConnection) -> None:
    """Say goodbye, or end without it where the database does not answer."""
    with suppress(Exception):  # it is on its way out: terminate is what is sure
        await connection.close(timeout=_CLOSE_S)
    connection.terminate()
