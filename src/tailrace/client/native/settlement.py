"""Acknowledging, refusing and keeping messages: all of one turn of the event loop leave together.

One frame names many messages of one place (subscription, topic, partition, epoch) by their offsets. An
acknowledgement whose reply was lost is sent again on the next connection: it says the same a second time, and
counts as long as the epoch is the current one. A refusal or a longer lease whose connection was lost has no
meaning any more, as the broker has taken the messages back by then.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TypeAlias

from tailrace.client.error import TimedOut
from tailrace.client.native.connection import Connection, Failure
from tailrace.client.native.error import BrokerGone, error_of
from tailrace.client.native.message import Delivered
from tailrace.model import TailraceError
from tailrace.runtime.tasks import wait_at_most
from tailrace.wire.native import OFFSET_RANGES_MAX, Frame, MessageType, write_offsets

_log = logging.getLogger(__name__)

_ACK = int(MessageType.ACK)
_NACK = int(MessageType.NACK)
_EXTEND = int(MessageType.EXTEND)
_ERROR = int(MessageType.ERROR)

_RETRY_DELAY_S = 0.1
_REASON_LETTERS_MAX = 500

Place: TypeAlias = tuple[str, str, int, int]
"""Subscription, topic, partition, epoch."""

Waiter: TypeAlias = "asyncio.Future[None]"


class Batch:
    """Messages of one place that are settled in one frame."""

    __slots__ = ("_owner", "extra", "offsets", "place", "type", "waiters")

    def __init__(
        self, owner: Settlements, type: int, place: Place, extra: tuple[tuple[str, str], ...]
    ) -> None:
        self._owner = owner
        self.type = type
        self.place = place
        self.extra = extra
        self.offsets: list[int] = []
        self.waiters: list[Waiter] = []

    def send(self, connection: Connection) -> None:
        """Write it; the reply comes to `answered`."""
        subscription, topic, partition, epoch = self.place
        properties = {
            "_subscription": subscription,
            "_topic": topic,
            "_partition": str(partition),
            "_epoch": str(epoch),
            "_offsets": write_offsets(ranges_of(self.offsets)),
            **dict(self.extra),
        }
        connection.send(self.type, properties, awaiting=self)

    def finish(self, error: TailraceError | None) -> None:
        """Tell everybody who waits."""
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def answered(self, frame: Frame) -> None:
        self._owner.answered(self, frame)

    def delivered(self, frame: Frame) -> None:
        """Nothing is delivered for a settlement."""

    def lost(self, error: Failure) -> None:  # noqa: ARG002 (the link tells everybody what happened)
        self._owner.lost(self)


class Settlements:
    """Of all subscriptions of one client."""

    def __init__(self, *, timeout_s: float) -> None:
        self.cursors: dict[str, dict[int, int]] = {}
        """The newest acknowledged offset by subscription and partition, as far as this client knows."""
        self.failed_transactions = 0
        """How many transactions of this client did not commit, as far as it knows."""
        self._timeout_s = timeout_s  # for whoever waits; what is to be said is said all the same
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._acks: dict[Place, Batch] = {}  # still open
        self._others: dict[tuple[int, Place, tuple[tuple[str, str], ...]], Batch] = {}
        self._sealed: list[Batch] = []  # full, or sent before in vain
        self._unconfirmed = 0
        self._confirmed = asyncio.Event()
        self._confirmed.set()
        self._is_scheduled = False
        self._error: TailraceError | None = None

    # ---- for messages

    async def ack(self, message: Delivered) -> None:
        if message.is_settled:
            return
        waiter: Waiter = self._loop.create_future()
        self.ack_nowait(message, waiter)
        await self._confirmation(waiter, message)

    async def nack(self, message: Delivered, *, delay_ms: int | None, reason: str) -> None:
        if message.is_settled:
            return
        waiter: Waiter = self._loop.create_future()
        self.nack_nowait(message, delay_ms=delay_ms, reason=reason, waiter=waiter)
        await self._confirmation(waiter, message)

    async def extend(self, message: Delivered, *, extend_ms: int) -> None:
        if message.is_settled:
            return
        waiter: Waiter = self._loop.create_future()
        self.extend_nowait(message, extend_ms=extend_ms, waiter=waiter)
        await self._confirmation(waiter, message)

    async def _confirmation(self, waiter: Waiter, message: Delivered) -> None:
        deadline = asyncio.timeout(self._timeout_s)
        try:
            async with deadline:
                await waiter
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise TimedOut(
                f"the broker did not confirm within {self._timeout_s:g} s what became of {message}. It is"
                " told as soon as it can be reached; until then the message may come again"
            ) from error

    def ack_nowait(self, message: Delivered, waiter: Waiter | None = None) -> None:
        """Acknowledge at the end of this turn."""
        message.is_settled = True
        place = message.place
        batch = self._acks.get(place)
        if batch is None:
            batch = self._acks[place] = Batch(self, _ACK, place, ())
        self._add(batch, message.offset, waiter)
        if len(batch.offsets) >= OFFSET_RANGES_MAX:  # even if no two of them are neighbours
            self._sealed.append(self._acks.pop(place))

    def nack_nowait(
        self,
        message: Delivered,
        *,
        delay_ms: int | None = None,
        reason: str = "",
        waiter: Waiter | None = None,
    ) -> None:
        """Give back at the end of this turn."""
        message.is_settled = True
        extra = [] if delay_ms is None else [("_delay_ms", str(delay_ms))]
        if reason:
            extra.append(("_reason", clean_reason(reason)))
        self._put(_NACK, message, tuple(extra), waiter)

    def extend_nowait(self, message: Delivered, *, extend_ms: int, waiter: Waiter | None = None) -> None:
        """Ask for more time at the end of this turn."""
        self._put(_EXTEND, message, (("_extend_ms", str(extend_ms)),), waiter)

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything is confirmed, for so long at most; whether it is."""
        return await wait_at_most(self._confirmed, timeout_s)

    def _put(
        self, type: int, message: Delivered, extra: tuple[tuple[str, str], ...], waiter: Waiter | None
    ) -> None:
        key = (type, message.place, extra)
        batch = self._others.get(key)
        if batch is None:
            batch = self._others[key] = Batch(self, type, message.place, extra)
        self._add(batch, message.offset, waiter)
        if len(batch.offsets) >= OFFSET_RANGES_MAX:
            self._sealed.append(self._others.pop(key))

    def _add(self, batch: Batch, offset: int, waiter: Waiter | None) -> None:
        batch.offsets.append(offset)
        if waiter is not None:
            batch.waiters.append(waiter)
        if not self._unconfirmed:
            self._confirmed.clear()
        self._unconfirmed += 1
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send)

    # ---- out, once per turn

    def _send(self) -> None:
        self._is_scheduled = False
        if self._error is not None:
            self._fail_all(self._error)
            return
        connection = self._connection
        if connection is None or connection.closed:
            return
        batches = [*self._sealed, *self._acks.values(), *self._others.values()]
        self._sealed, self._acks, self._others = [], {}, {}
        for at, batch in enumerate(batches):
            try:
                batch.send(connection)
            except BrokerGone:
                self._sealed.extend(batches[at:])
                return

    # ---- back

    def answered(self, batch: Batch, frame: Frame) -> None:
        """The reply to a batch."""
        if frame.type != _ERROR:
            if batch.type == _ACK:
                self._note_cursor(batch)
            self._settled(batch, None)
            return
        error = error_of(frame)
        if error.retriable:
            self._sealed.append(batch)
            self._loop.call_later(_RETRY_DELAY_S, self._send)
            return
        if len(batch.waiters) < len(batch.offsets):
            _log.warning("not settled: %d messages of %s: %s", len(batch.offsets), batch.place[0], error)
        self._settled(batch, error)

    def lost(self, batch: Batch) -> None:
        """The connection ended before the reply came."""
        if batch.type == _ACK:
            self._sealed.append(batch)
        else:
            self._settled(batch, None)

    def _note_cursor(self, batch: Batch) -> None:
        subscription, _, partition, _ = batch.place
        cursors = self.cursors.setdefault(subscription, {})
        cursors[partition] = max(cursors.get(partition, -1), *batch.offsets)

    def _settled(self, batch: Batch, error: TailraceError | None) -> None:
        batch.finish(error)
        self._unconfirmed -= len(batch.offsets)
        if not self._unconfirmed:
            self._confirmed.set()

    # ---- what the link tells

    def connected(self, connection: Connection) -> None:
        self._error = None
        self._connection = connection
        self._send()

    def disconnected(self) -> None:
        self._connection = None
        others, self._others = self._others, {}
        for batch in others.values():
            self._settled(batch, None)

    def ended(self, error: TailraceError) -> None:
        self._error = error
        self._connection = None
        self._fail_all(error)

    def _fail_all(self, error: TailraceError) -> None:
        batches = [*self._sealed, *self._acks.values(), *self._others.values()]
        self._sealed, self._acks, self._others = [], {}, {}
        for batch in batches:
            self._settled(batch, error)


def ranges_of(offsets: list[int]) -> list[tuple[int, int]]:
    """Offsets as half-open ranges, ascending."""
    ordered = sorted(offsets)
    first, last = ordered[0], ordered[-1]
    if last - first + 1 == len(ordered) and len(set(ordered)) == len(ordered):
        return [(first, last + 1)]
    ranges: list[tuple[int, int]] = []
    start = end = first
    for offset in ordered:
        if offset > end:
            ranges.append((start, end))
            start = offset
        end = offset + 1
    ranges.append((start, end))
    return ranges


def clean_reason(text: str) -> str:
    """A reason as a property can hold it: no NUL, no lone surrogates, not too long."""
    cleaned = text[:_REASON_LETTERS_MAX].replace("\0", " ")
    return cleaned.encode("utf-8", "replace").decode()
