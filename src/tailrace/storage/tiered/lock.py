"""Who may become the writer: an advisory lock that is held as long as its connection.

It is a hint, which keeps two brokers from deposing each other in turn. What is safe is the writer's epoch.
The server lets go of the lock when the process is gone: at once if it was killed, and within about 11 s if
its machine is. A holder that loses the connection asks again; a standby that lost it too waits a moment
first.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tailrace.postgres import Connection, Dsn, Standing

KEY: Final = 0x7472_7469_6572_6564
"""The advisory lock of the writer: "trtiered" in ASCII."""
_FOR_EVER_S: Final = 10.0 * 365 * 24 * 3600
_AFTER_YOU_S: Final = 3.0
_SETTINGS: Final = {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "client_connection_check_interval": "1s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}


class WriterLock:
    """Asks for the lock and holds it. `run` is the work of a supervised task."""

    def __init__(self, dsn: Dsn) -> None:
        self._standing = Standing(
            dsn, self._serve, purpose="lock", settings=_SETTINGS, statement_s=_FOR_EVER_S
        )
        self._asked = asyncio.Event()
        self._held = asyncio.Event()
        self._was_held = False

    @property
    def held(self) -> bool:
        return self._held.is_set()

    async def run(self) -> None:
        """Hold the lock whenever it can be had, until cancelled."""
        await self._standing.run()

    async def try_at_once(self) -> bool:
        """Whether it was free when it was asked for first; waits for that answer."""
        await self._asked.wait()
        return self._held.is_set()

    async def wait_held(self) -> None:
        await self._held.wait()

    async def _serve(self, connection: Connection) -> None:
        if self._asked.is_set() and not self._was_held:
            await asyncio.sleep(_AFTER_YOU_S)  # the database was away: the one that serves may go on
        got = await connection.fetchval("SELECT pg_try_advisory_lock($1)", KEY)
        if got:
            self._was_held = True
            self._held.set()
        self._asked.set()
        if not got:
            await connection.execute("SELECT pg_advisory_lock($1)", KEY)
            self._was_held = True
            self._held.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._held.clear()
