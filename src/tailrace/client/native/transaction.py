"""Transactions of a native client: messages published and acknowledged in one step, or not at all.

    async with client.transaction() as tx:
        await tx.publish("shipments", body, key="customer-7")
        tx.ack(message)

Leaving the block commits, an exception aborts. Messages leave as they are published and are not waited for; a
refused one is heard of by a later call, at the latest by the commit. Acknowledgements leave with the commit.

A transaction lives on one connection. When that is lost before the commit was sent, the broker has aborted
it. When it is lost after that, the commit is repeated on the next connection until its outcome is known.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tailrace.client.error import (
    ClientError,
    ConnectionLost,
    OutcomeUnknown,
    TimedOut,
    TransactionFailed,
)
from tailrace.client.native.connection import Connection, Reply
from tailrace.client.native.error import InvalidMessage, TryAgain, too_large
from tailrace.client.native.message import Delivered
from tailrace.client.native.outgoing import (
    Body,
    Key,
    Text,
    body_of,
    is_delayed,
    key_of,
    meant_properties,
    seal_outgoing,
    write_outgoing,
)
from tailrace.client.native.settlement import Place, ranges_of
from tailrace.model import BrokerError, ErrorCode, TailraceError
from tailrace.wire.native import (
    OFFSET_RANGES_MAX,
    Frame,
    Header,
    MessageType,
    write_entries,
    write_offsets,
    write_properties,
)

if TYPE_CHECKING:
    from tailrace.client.native.parts import Parts

_log = logging.getLogger(__name__)

_PUBLISH = int(MessageType.PUBLISH)
_UNANSWERED_MAX = 1_000  # messages of one transaction; then `publish` waits
_UNANSWERED_BYTES_MAX = 8 << 20
_FRAME_OVERHEAD_BYTES = 1024
_LOST = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""What a broker says of a repeated commit whose transactional id belongs to another producer by now."""


class State(enum.Enum):
    """Where a transaction stands."""

    NEW = "new"
    OPEN = "open"
    ENDING = "ending"
    COMMITTED = "committed"
    ABORTED = "aborted"


class AsyncTransaction:
    """A transaction of an `AsyncClient`. Use it in an async with block, once."""

    def __init__(
        self, parts: Callable[[], Parts], *, transactional_id: str | None, timeout_s: float | None
    ) -> None:
        self._parts = parts
        self._asked_id = transactional_id
        self._timeout_s = timeout_s
        self._state = State.NEW
        self._connection: Connection | None = None
        self._names: dict[str, str] = {}  # `_transaction` and `_transactional_id`, as the broker gave them
        self._unanswered: deque[tuple[Reply, int]] = deque()
        self._unanswered_bytes = 0
        self._acknowledged: dict[Delivered, None] = {}
        self._has_failed = False

    def __repr__(self) -> str:
        name = self._names.get("_transaction", "")
        return f"<{type(self).__name__} {name} {self._state.value}, {len(self._acknowledged)} acknowledged>"

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._state is State.OPEN:
                await self.commit()
        finally:
            if self._state is not State.COMMITTED:
                self._note_failure()
            if self._state is State.OPEN:
                await self._abort_quietly()

    # ---- what belongs to it

    async def publish(
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
        connection = self._check_open()
        value, key_bytes = body_of(body), key_of(key)
        texts = meant_properties(
            {**(properties or {}), **more}, ttl_ms=ttl_ms, priority=priority, created_at=created_at
        )
        if is_delayed(texts, headers):
            raise InvalidMessage("a message of a transaction cannot be delayed: publish it by itself")
        sealer = self._parts().sealer
        if sealer is not None:
            value, headers = seal_outgoing(sealer, topic, key_bytes, value, texts, headers)
        head = {"_topic": topic, "_transaction": self._names["_transaction"]}
        if partition is not None:
            head["_partition"] = str(partition)
        encoded = write_properties(head) + write_outgoing(key_bytes, value, texts, headers)
        size = len(encoded) + len(value or b"")
        if size + _FRAME_OVERHEAD_BYTES > connection.frame_bytes_max:
            raise too_large(size, limit=connection.frame_bytes_max)
        await self._make_room(size)
        connection = self._check_open()
        reply = Reply()
        connection.send(_PUBLISH, encoded, value or b"", awaiting=reply)
        self._unanswered.append((reply, size))
        self._unanswered_bytes += size

    def ack(self, message: Delivered) -> None:
        """Acknowledge a message with the commit. The connection must have it when the commit arrives."""
        self._check_open()
        if message.is_settled:
            raise ClientError(f"{message} is settled already: it cannot be acknowledged in a transaction")
        message.is_in_transaction = True  # whatever becomes of it: nobody else acknowledges it
        self._acknowledged[message] = None

    # ---- its end; leaving the block does it

    async def begin(self) -> None:
        """Open it at the broker."""
        if self._state is not State.NEW:
            raise ClientError("a transaction is used once: call client.transaction() for the next")
        properties: dict[str, str] = {}
        if self._asked_id is not None:
            properties["_transactional_id"] = self._asked_id
        if self._timeout_s is not None:
            properties["_timeout_ms"] = str(round(self._timeout_s * 1000))
        link = self._parts().link
        try:
            frame, _ = await link.request(MessageType.TXN_BEGIN, properties)
        except TailraceError:
            self._note_failure()
            raise
        self._connection = link.connection
        self._names = {name: frame.properties[name] for name in ("_transaction", "_transactional_id")}
        self._state = State.OPEN

    async def commit(self) -> None:
        """Make what it did visible and acknowledged, and return when that is durable.

        TransactionFailed: it is aborted. OutcomeUnknown: the broker cannot tell any more which it is.
        """
        connection = self._check_open()
        entries = [(write_properties(each), b"") for each in self._acknowledgements()]
        properties = dict(self._names)
        if entries:
            properties["_count"] = str(len(entries))
        self._state = State.ENDING
        link = self._parts().link
        reply = Reply()
        try:
            body = write_entries(entries)
            connection.send(MessageType.TXN_COMMIT, properties, body, awaiting=reply)
            await self._first_answer(reply, link.request_timeout_s, properties, body)
        except OutcomeUnknown:
            self._note_failure()
            raise
        except BrokerError as error:
            self._state = State.ABORTED
            self._note_failure()
            raise TransactionFailed(f"nothing of the transaction took effect: {error}") from error
        except ConnectionLost as error:
            self._state = State.ABORTED
            self._note_failure()
            raise TransactionFailed(f"nothing of the transaction took effect: {error}") from error
        self._state = State.COMMITTED
        for message in self._acknowledged:
            message.is_settled = True

    async def abort(self) -> None:
        """Take back what it published. Messages that it was to acknowledge are still held."""
        if self._state is not State.OPEN or self._connection is None:
            raise ClientError(f"the transaction is {self._state.value}: there is nothing to abort")
        self._state, connection = State.ABORTED, self._connection
        self._note_failure()
        reply = Reply()
        connection.send(MessageType.TXN_ABORT, {"_transaction": self._names["_transaction"]}, awaiting=reply)
        await self._answer(reply, self._parts().link.request_timeout_s)

    # ---- inside

    def _note_failure(self) -> None:
        """Messages that workers of this client hold now are not acknowledged by themselves (`finish`)."""
        if not self._has_failed:
            self._has_failed = True
            self._parts().settlements.failed_transactions += 1

    async def _abort_quietly(self) -> None:
        """The error of the block matters more than one of the abort."""
        try:
            await self.abort()
        except ConnectionLost:
            _log.debug("the broker aborts the transaction: its connection is lost")
        except TailraceError as failed:
            _log.warning("transaction not aborted, its time will end it: %s", failed)

    async def _first_answer(
        self, reply: Reply, timeout_s: float, properties: Mapping[str, str], body: bytes
    ) -> None:
        """The answer to a commit: that to the first request, or to one that repeats it."""
        try:
            await self._answer(reply, timeout_s)
        except (ConnectionLost, TimedOut, TryAgain):
            await self._repeat(properties, body)

    async def _repeat(self, properties: Mapping[str, str], body: bytes) -> None:
        """Ask what became of the commit, on this connection or on another one."""
        try:
            await self._parts().link.request(MessageType.TXN_COMMIT, properties, body=body)
        except BrokerError as error:
            if error.code in _LOST:
                raise OutcomeUnknown(
                    f"whether the transaction has committed is not known: its answer was lost, and {error}"
                ) from error
            raise
        except ClientError as error:
            raise OutcomeUnknown(
                f"whether the transaction has committed is not known: its answer was lost, and {error}"
            ) from error

    async def _answer(self, reply: Reply, timeout_s: float) -> Frame:
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                return await reply.future
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise TimedOut(f"the broker did not answer within {timeout_s:g} s") from error

    def _check_open(self) -> Connection:
        """The connection that it lives on; an error if it is not open any more."""
        if self._state is not State.OPEN or self._connection is None:
            raise ClientError(
                f"the transaction is {self._state.value}. Use client.transaction() in a with block, one for "
                "each transaction"
            )
        if self._connection.closed:
            raise TransactionFailed(
                "the connection was lost, and the broker aborted the transaction. Begin it again"
            )
        while self._unanswered and self._unanswered[0][0].future.done():
            reply, size = self._unanswered.popleft()
            self._unanswered_bytes -= size
            if (error := reply.future.exception()) is not None:
                raise TransactionFailed(
                    f"a message of the transaction was refused: {error}. Begin it again"
                ) from error
        return self._connection

    async def _make_room(self, size: int) -> None:
        """Wait until the broker has taken enough of what was published before."""
        while self._unanswered and (
            len(self._unanswered) >= _UNANSWERED_MAX or self._unanswered_bytes + size > _UNANSWERED_BYTES_MAX
        ):
            oldest = self._unanswered[0][0].future
            done, _ = await asyncio.wait([oldest], timeout=self._parts().config.publish_timeout_s)
            if not done:
                raise TimedOut("the broker did not take the messages of the transaction in time")
            self._check_open()

    def _acknowledgements(self) -> list[dict[str, str]]:
        """What each entry of the commit says."""
        places: dict[Place, list[int]] = {}
        for message in self._acknowledged:
            places.setdefault(message.place, []).append(message.offset)
        return [
            _acknowledgement(place, ranges[start : start + OFFSET_RANGES_MAX])
            for place, ranges in ((place, ranges_of(offsets)) for place, offsets in places.items())
            for start in range(0, len(ranges), OFFSET_RANGES_MAX)
        ]


def _acknowledgement(place: Place, ranges: Sequence[tuple[int, int]]) -> dict[str, str]:
    subscription, topic, partition, epoch = place
    return {
        "_subscription": subscription,
        "_topic": topic,
        "_partition": str(partition),
        "_epoch": str(epoch),
        "_offsets": write_offsets(ranges),
    }
