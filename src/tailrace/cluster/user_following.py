"""Keeps the users of a node as they are in PostgreSQL, and decides how long they are believed without it.

A notification makes a change count at once; a look every POLL_S does where notifications do not come through.
While PostgreSQL is away, the users that are known may log in and go on for `grace_s`. After that none may, as
one of them may have been disabled meanwhile, until PostgreSQL is back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tailrace.cluster.postgres_users import CHANNEL
from tailrace.model import BrokerError, ErrorCode
from tailrace.postgres import Connection, DatabaseError, Dsn, Standing
from tailrace.runtime.tasks import wait_at_most
from tailrace.security import Users

logger = logging.getLogger(__name__)

POLL_S: Final = 2.0
_STATEMENT_S: Final = 5.0


class UserFollowing:
    """Follows the changes of others. `run` is the work of a supervised task."""

    def __init__(self, users: Users, dsn: Dsn, *, grace_s: float, poll_s: float = POLL_S) -> None:
        self._users = users
        self._dsn = dsn
        self._grace_s = grace_s
        self._poll_s = poll_s
        self._ending: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<UserFollowing of {self._users} in {self._dsn}>"

    async def run(self) -> None:
        """Follow until cancelled."""
        standing = Standing(
            self._dsn, self._serve, purpose="users", lost=self._lost, statement_s=_STATEMENT_S
        )
        try:
            await standing.run()
        finally:
            self._heard()

    async def _serve(self, connection: Connection) -> None:
        changed = asyncio.Event()
        await connection.add_listener(CHANNEL, lambda *_: changed.set())
        while True:
            changed.clear()
            await self._users.refresh()
            self._heard()
            self._users.resume()
            await wait_at_most(changed, self._poll_s)

    def _lost(self, error: DatabaseError) -> None:
        if self._ending is None:
            loop = asyncio.get_running_loop()
            self._ending = loop.call_later(self._grace_s, self._end_grace, error)

    def _heard(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _end_grace(self, error: DatabaseError) -> None:
        logger.error(
            "users suspended: %s has been away for %g s (security.postgres_grace_s): %s",
            self._dsn,
            self._grace_s,
            error,
        )
        self._users.suspend(
            BrokerError(  # for clients, who need not know which database
                f"no user can log in: the database of the users has been away for over {self._grace_s:g} s. "
                "Ask the broker's administrator; the broker's log names the database",
                code=ErrorCode.BROKER_NOT_AVAILABLE,
            )
        )
