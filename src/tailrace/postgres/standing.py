"""One connection that stands as long as its owner: for LISTEN, for a lock, for a writer.

`serve(connection)` runs on every new connection for as long as it lives; it waits for what it serves. When
the connection is lost there is another one after the back-off. `lost` is called once for each time that there
is none, with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from tailrace.postgres.backoff import MOST_S, Backoff
from tailrace.postgres.connection import STATEMENT_S, connect
from tailrace.postgres.driver import Connection, OpenConnection
from tailrace.postgres.dsn import Dsn
from tailrace.postgres.error import DatabaseError, map_error
from tailrace.postgres.pool import close_connection

logger = logging.getLogger(__name__)


def _ignore(error: DatabaseError) -> None:
    """The log has it."""


class Standing:
    """Keeps one connection in service. `run` is the work of a supervised task."""

    def __init__(
        self,
        dsn: Dsn,
        serve: Callable[[Connection], Awaitable[None]],
        *,
        purpose: str,
        lost: Callable[[DatabaseError], None] = _ignore,
        settings: Mapping[str, str] | None = None,
        statement_s: float = STATEMENT_S,
    ) -> None:
        self._dsn = dsn
        self._serve = serve
        self._purpose = purpose
        self._lost = lost
        self._settings = settings
        self._statement_s = statement_s
        self._backoff = Backoff()
        self._is_away = False

    def __repr__(self) -> str:
        return f"<Standing connection to {self._dsn}, {self._purpose}>"

    async def run(self) -> None:
        """Serve until cancelled. What is no error of the database is raised."""
        while True:
            try:
                await self._once()
            except DatabaseError as error:
                self._note(error)
                await asyncio.sleep(self._backoff.failed())

    async def _once(self) -> None:
        connection = await connect(
            self._dsn, purpose=self._purpose, settings=self._settings, statement_s=self._statement_s
        )
        if self._is_away:
            self._is_away = False
            logger.info("database is back: %s, %s", self._dsn, self._purpose)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._serve_on(connection)
        finally:
            await close_connection(connection)
            if loop.time() - began > MOST_S:  # one that is lost at once again and again is no success
                self._backoff.succeeded()

    async def _serve_on(self, connection: OpenConnection) -> None:
        """Run `serve` for as long as the connection lives: it may wait for something that never comes."""
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        serving = asyncio.ensure_future(self._serve(connection))
        ending = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            error = serving.exception() if serving.done() else None
            raise self._mapped(error or ConnectionResetError("the connection ended"))
        finally:
            for each in (serving, ending):
                each.cancel()
            await asyncio.gather(serving, ending, return_exceptions=True)

    def _mapped(self, error: BaseException) -> BaseException:
        return map_error(error, where=self._dsn) or error

    def _note(self, error: DatabaseError) -> None:
        if not self._is_away:
            self._is_away = True
            logger.warning("database is away: %s, %s: %s", self._dsn, self._purpose, error)
            self._lost(error)
