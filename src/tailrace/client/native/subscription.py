"""A subscription that this client has joined: what is delivered, who works on it, how long it is held.

With a handler, `concurrency` workers take messages in order of arrival; without one, whoever iterates is the
worker. A message is held from its arrival until its worker is done with it. What is held is not lost to a
slow handler: leases are renewed every third of the acknowledgement timeout. When the connection is lost
everything that nobody has begun with is dropped: the broker has it back by then, and delivers it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from types import TracebackType
from typing import Self

from tailrace.client.error import ClientError
from tailrace.client.native.error import number_of
from tailrace.client.native.inbox import AsyncInbox, Inbox, inbox_size
from tailrace.client.native.message import AsyncMessage, Delivered
from tailrace.client.native.opening import Opening
from tailrace.client.native.settlement import Settlements
from tailrace.model import ConfigError, TailraceError
from tailrace.runtime.tasks import Supervisor
from tailrace.wire.native import Frame

_log = logging.getLogger(__name__)

PREFETCH = 100
ACK_TIMEOUT_MS = 30_000  # if the broker does not tell
_RENEWALS_PER_TIMEOUT = 3
_HANDLED_AT_ONCE = 64  # by handlers that do not wait, before others of the loop have their turn

AsyncHandler = Callable[[AsyncMessage], Awaitable[object] | object]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConfig:
    """How to join a subscription."""

    name: str
    making: Mapping[str, str] = field(default_factory=dict)  # what makes it, if there is none
    auto_ack: bool = True
    prefetch: int = PREFETCH
    concurrency: int = 1
    extend: bool = True

    def __post_init__(self) -> None:
        if self.prefetch < 0:
            raise ConfigError(f"prefetch = {self.prefetch} is below 0")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency = {self.concurrency} must be at least 1")


class AsyncSubscription:
    """A membership in a subscription. Iterate over it, or let its handler work.

    async for message in await client.subscribe_to_subscription("workers"):
        ...       # acknowledged when the next one is asked for
    """

    def __init__(
        self,
        config: JoinConfig,
        *,
        settlements: Settlements,
        leave: Callable[[AsyncSubscription], Awaitable[None]],
        handler: AsyncHandler | None = None,
        inbox: Inbox | None = None,
        opening: Opening | None = None,
    ) -> None:
        self.name = config.name
        self.prefetch = config.prefetch
        self.ack_timeout_ms = ACK_TIMEOUT_MS
        self.error: TailraceError | None = None
        """Why it ended, if nobody asked for that."""
        self.is_joined = False
        self.ended = asyncio.Event()
        self.first_join: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._config = config
        self._settlements = settlements
        self._leave = leave
        self._handler = handler
        self._opening = opening
        self._mailbox: AsyncInbox[AsyncMessage] = AsyncInbox(inbox_size(config.prefetch))
        self._inbox: Inbox = self._mailbox if inbox is None else inbox
        self._held: set[Delivered] = set()
        self._last: AsyncMessage | None = None  # handed out by iteration
        self._tasks = Supervisor(self._worker_failed)
        self._workers: list[asyncio.Task[None]] = []
        self._lease_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "ended" if self.ended.is_set() else "joined" if self.is_joined else "joining"
        return f"<{type(self).__name__} {self.name} {state}, {len(self._held)} held>"

    # ---- for users

    def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        if self._handler is not None:
            raise ClientError(
                f"{self.name} has a handler, which gets its messages. Leave the handler out to iterate"
            )
        return self

    async def __anext__(self) -> AsyncMessage:
        last, self._last = self._last, None
        if last is not None:
            self.finish(last, None)
        message = await self._mailbox.get()
        if message is None:
            if self.error is not None:
                raise self.error
            raise StopAsyncIteration
        self._last = message
        self.begin(message)
        return message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the subscription. Running handlers end first; what was not settled goes back at once."""
        await self._leave(self)

    async def wait_ended(self) -> None:
        """Wait until it has ended; raises what ended it, if nobody asked for that."""
        await self.ended.wait()
        if self.error is not None:
            raise self.error

    # ---- for messages: their own word ends the holding

    async def ack(self, message: Delivered) -> None:
        self._held.discard(message)
        await self._settlements.ack(message)

    async def nack(self, message: Delivered, *, delay_ms: int | None, reason: str) -> None:
        self._held.discard(message)
        await self._settlements.nack(message, delay_ms=delay_ms, reason=reason)

    async def extend(self, message: Delivered, *, extend_ms: int) -> None:
        await self._settlements.extend(message, extend_ms=extend_ms)

    # ---- for workers

    def begin(self, message: AsyncMessage) -> None:
        """A worker is given a message."""
        message.failed_transactions = self._settlements.failed_transactions

    def finish(self, message: AsyncMessage, error: BaseException | None) -> None:
        """A worker is done with a message, well or not.

        Where a transaction of the client failed meanwhile and the worker went on, the message is not
        acknowledged by itself: that would lose what the transaction was to write for it.
        """
        self._held.discard(message)
        if message.is_settled:
            return
        if error is not None:
            self._settlements.nack_nowait(message, reason=f"{type(error).__name__}: {error}")
        elif message.is_in_transaction or message.failed_transactions < self._settlements.failed_transactions:
            self._settlements.nack_nowait(message, reason="the transaction of its worker did not commit")
        elif self._config.auto_ack:
            self._settlements.ack_nowait(message)

    def report(self, message: Delivered, error: BaseException) -> None:
        """A handler failed: say so once, with where and why."""
        _log.warning(
            "handler of %s failed on %s-%d offset %d (delivery %d): %s: %s",
            *(self.name, message.topic, message.partition, message.offset, message.delivery_count),
            *(type(error).__name__, error),
            exc_info=error,
        )

    async def _work(self) -> None:
        handled = 0
        while (message := await self._mailbox.get()) is not None:
            await self._handle(message)
            handled += 1
            if handled % _HANDLED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _handle(self, message: AsyncMessage) -> None:
        assert self._handler is not None
        self.begin(message)
        try:
            result = self._handler(message)
            if result is not None and isawaitable(result):
                await result
        except Exception as error:
            self.report(message, error)
            self.finish(message, error)
        else:
            self.finish(message, None)

    def _worker_failed(self, error: BaseException) -> None:
        self.end(ClientError(f"a worker of {self.name} ended: {type(error).__name__}: {error}"))

    # ---- for the registry

    def join_properties(self) -> dict[str, str]:
        """What SUBSCRIBE says."""
        return {"_subscription": self.name, "_credit": str(self.prefetch), **self._config.making}

    def joined(self, frame: Frame) -> None:
        """The broker took us in, for the first time or again."""
        self.ack_timeout_ms = number_of(frame, "_ack_timeout_ms", self.ack_timeout_ms)
        self.is_joined = True
        if self._config.extend and self._lease_timer is None:
            self._renew()
        if not self._workers and self._handler is not None:
            for at in range(self._config.concurrency):
                self._workers.append(self._tasks.start(f"tailrace-{self.name}-{at}", self._work()))
        if not self.first_join.done():
            self.first_join.set_result(None)

    def deliver(self, frame: Frame) -> None:
        """A message was pushed. DecryptionFailed if it ends the subscription."""
        if self.ended.is_set():
            return
        message = AsyncMessage(frame, self)
        if self._opening is not None and not self._opening.take(message):
            return
        self._held.add(message)
        dropped = self._inbox.put(message)
        if dropped is not None:
            self._held.discard(dropped)

    def forget(self) -> None:
        """What was delivered is no longer ours: drop what nobody has begun with, and renew no lease."""
        self._inbox.clear()
        self._held.clear()

    def end(self, error: TailraceError | None) -> None:
        """There will be no more messages."""
        if self.ended.is_set():
            return
        self.error = error
        self.is_joined = False
        self._last = None  # goes back with the membership, whoever iterates on
        self.ended.set()
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self.forget()
        self._inbox.close()
        if error is not None and self.first_join.done() and self._handler is not None:
            _log.error("subscription %s ended: %s", self.name, error)
        if not self.first_join.done():
            self.first_join.set_exception(error or ClientError(f"{self.name} was closed"))
            self.first_join.exception()  # nobody may be waiting for it any more

    async def wait_workers(self, timeout_s: float) -> None:
        """After the end: let handlers that run come to theirs, for so long at most."""
        workers = [each for each in self._workers if each is not asyncio.current_task() and not each.done()]
        if workers:
            await asyncio.wait(workers, timeout=timeout_s)
        if asyncio.current_task() not in self._workers:
            await self._tasks.stop()

    # ---- leases

    def _renew(self) -> None:
        """Keep what is held, but for what has just come."""
        timeout_s = self.ack_timeout_ms / 1000
        self._lease_timer = asyncio.get_running_loop().call_later(
            timeout_s / _RENEWALS_PER_TIMEOUT, self._renew
        )
        for message in self._held:
            if message.is_lease_due and not message.is_settled:
                self._settlements.extend_nowait(message, extend_ms=self.ack_timeout_ms)
            message.is_lease_due = True
