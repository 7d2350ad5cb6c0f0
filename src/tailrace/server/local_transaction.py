"""Transactions of the embedded brokers: records of several topics that are stored together, or not at all.

A transaction gathers records until its block is left. Then all of them are sequenced in one turn of the
loop, from the begin of a transaction at the broker's own coordinator to its end
(`broker/transactions/atomic`). So it keeps no reader waiting, has no timeout, and waits for the disk once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from tailrace.model import TailraceError
from tailrace.server.local import Headers, Produced, check_bytes, check_timestamp, header_pairs


class GatheredRecord(NamedTuple):
    """A record of a transaction that has not committed."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None


class GatheredTransaction:
    """The records of one transaction."""

    def __init__(self) -> None:
        self._records: list[GatheredRecord] = []
        self._is_over = False
        self.produced: list[Produced] = []
        """Where each record went, in the order in which they were given; empty before the commit."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._records)} records>"

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Add one record; nobody sees it before the block is left."""
        if self._is_over:
            raise TailraceError("the transaction is over. Use broker.transaction() for the next one")
        check_bytes("value", value)
        check_bytes("key", key)
        check_timestamp(timestamp)
        self._records.append(GatheredRecord(topic, value, key, header_pairs(headers), partition, timestamp))

    publish = produce  # as clients call it

    def _end(self) -> list[GatheredRecord]:
        """What is to be stored: nothing more is added."""
        self._is_over = True
        return self._records


class AsyncLocalTransaction(GatheredTransaction):
    """A transaction of an `AsyncBroker`: `async with broker.transaction() as tx: tx.produce(...)`."""

    def __init__(self, store: Callable[[Sequence[GatheredRecord]], Awaitable[list[Produced]]]) -> None:
        super().__init__()
        self._store = store

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        records = self._end()
        if error is None and records:
            self.produced = await self._store(records)


class LocalTransaction(GatheredTransaction):
    """A transaction of a `Broker`: `with broker.transaction() as tx: tx.produce(...)`."""

    def __init__(
        self,
        store: Callable[[Sequence[GatheredRecord]], Coroutine[Any, Any, list[Produced]]],
        call: Callable[[Coroutine[Any, Any, list[Produced]]], list[Produced]],
    ) -> None:
        super().__init__()
        self._store = store
        self._call = call

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        records = self._end()
        if error is None and records:
            self.produced = self._call(self._store(records))
