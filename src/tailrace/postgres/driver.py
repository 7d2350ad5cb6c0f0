"""asyncpg, as we use it: imported with the first connection, and typed by what it does for us."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any, Protocol

from tailrace.model import ConfigError


class Row(Protocol):
    """A row of an answer: columns by name or number."""

    def __getitem__(self, column: str | int) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...


Notified = Callable[["Connection", int, str, str], None]
"""Called with the connection, the pid of the sender's backend, the channel and the payload."""


class Connection(Protocol):
    """What callers do with a connection. Arguments stand as $1, $2, ... in a query."""

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str: ...

    async def executemany(
        self, command: str, args: Iterable[Sequence[object]], *, timeout: float | None = None
    ) -> None: ...

    async def fetch(self, query: str, *args: object, timeout: float | None = None) -> list[Row]: ...

    async def fetchrow(self, query: str, *args: object, timeout: float | None = None) -> Row | None: ...

    async def fetchval(self, query: str, *args: object, timeout: float | None = None) -> Any: ...

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[None]: ...

    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        records: Iterable[Sequence[object]],
        columns: Sequence[str] | None = None,
        schema_name: str | None = None,
        timeout: float | None = None,
    ) -> str: ...

    async def add_listener(self, channel: str, callback: Notified) -> None: ...


class OpenConnection(Connection, Protocol):
    """What its owner does with a connection."""

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...

    def is_closed(self) -> bool: ...

    def is_in_transaction(self) -> bool: ...

    def add_termination_listener(self, callback: Callable[[Connection], None]) -> None: ...


def load_asyncpg() -> ModuleType:
    """The driver; ConfigError says how to install it."""
    try:
        import asyncpg
    except ImportError as error:
        raise ConfigError(
            f"PostgreSQL needs asyncpg, which cannot be imported ({error}). Try: "
            "pip install 'tailrace[postgres]'"
        ) from error
    module: ModuleType = asyncpg
    return module
