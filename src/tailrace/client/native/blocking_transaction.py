"""Transactions for threads: what `BrokerClient.transaction` hands out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from tailrace.client.loop_thread import LoopThread
from tailrace.client.native.blocking import Message
from tailrace.client.native.outgoing import Body, Key, Text
from tailrace.client.native.transaction import AsyncTransaction
from tailrace.wire.native import Header


class Transaction:
    """A transaction of a `BrokerClient`. Use it in a with block, once; any thread may use it."""

    def __init__(self, twin: AsyncTransaction, thread: LoopThread) -> None:
        self._twin = twin
        self._thread = thread
        self._acknowledged: list[Message] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._twin!r}>"

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.call(self._twin.__aexit__(kind, error, trace))
        finally:
            self._note_settled()

    def publish(
        self,
        topic: str,
        body: Body,
        *,
        key: Key = None,
        properties: Mapping[str, Text] | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
        created_at: int | datetime | None = None,
        **more: Text,
    ) -> None:
        """Publish a message, which nobody sees before the commit; further keywords are its properties.

        Returns when it is on its way. It is stored when the block has been left without an error.
        """
        self._thread.call(
            self._twin.publish(
                topic,
                body,
                key=key,
                properties=properties,
                partition=partition,
                headers=headers,
                ttl_ms=ttl_ms,
                priority=priority,
                created_at=created_at,
                **more,
            )
        )

    def ack(self, message: Message) -> None:
        """Acknowledge a message with the commit. The connection must have it when the commit arrives."""

        async def ack() -> None:
            self._twin.ack(message.twin)

        self._thread.call(ack())
        message.is_in_transaction = True
        self._acknowledged.append(message)

    def begin(self) -> None:
        """Open it at the broker."""
        self._thread.call(self._twin.begin())

    def commit(self) -> None:
        """Make what it did visible and acknowledged, and return when that is durable.

        TransactionFailed: it is aborted. OutcomeUnknown: the broker cannot tell any more which it is.
        """
        try:
            self._thread.call(self._twin.commit())
        finally:
            self._note_settled()

    def abort(self) -> None:
        """Take back what it published. Messages that it was to acknowledge are still held."""
        self._thread.call(self._twin.abort())

    def _note_settled(self) -> None:
        for message in self._acknowledged:
            message.is_settled = message.twin.is_settled
