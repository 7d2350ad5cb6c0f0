"""Messages and subscriptions for threads: what `BrokerClient` hands out.

The event loop puts what is delivered into a queue that threads read. Workers, one thread each, run handlers;
their results go back to the loop in bunches, so that a thread that works fast does not wake the loop for
every message. A handler runs outside the loop and may use the client as it likes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from tailrace.client.error import ClientError
from tailrace.client.loop_thread import LoopThread
from tailrace.client.native.inbox import inbox_size
from tailrace.client.native.message import AsyncMessage, Delivered
from tailrace.client.native.subscription import AsyncSubscription, JoinConfig

Handler = Callable[["Message"], object]


class Message(Delivered):
    """A message of a `BrokerClient`. It may be settled from any thread."""

    __slots__ = ("_thread", "_twin")

    def __init__(self, twin: AsyncMessage, thread: LoopThread) -> None:
        self.take_from(twin)
        self._twin = twin
        self._thread = thread

    @property
    def twin(self) -> AsyncMessage:
        """The same message in the client's own thread."""
        return self._twin

    def ack(self) -> None:
        """Acknowledge it; returns once the broker has that safe. A second time does nothing."""
        self.is_settled = True
        self._thread.call(self._twin.ack())

    def nack(self, *, delay_ms: int | None = None, reason: str = "") -> None:
        """Give it back, to be delivered again after `delay_ms`, or after the subscription's own back-off."""
        self.is_settled = True
        self._thread.call(self._twin.nack(delay_ms=delay_ms, reason=reason))

    def extend(self, extend_ms: int) -> None:
        """Keep it for so long from now before the broker takes it for lost."""
        self._thread.call(self._twin.extend(extend_ms))


class ThreadInbox:
    """For threads: `get` blocks. Everything else is called in the event loop."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._messages: queue.SimpleQueue[AsyncMessage | None] = queue.SimpleQueue()
        self._is_closed = False

    def put(self, message: AsyncMessage) -> AsyncMessage | None:
        """Add a message; what had to be dropped for it."""
        self._messages.put(message)
        return self._take_nowait() if self._messages.qsize() > self._size_max else None

    def get(self, timeout_s: float | None = None) -> AsyncMessage | None:
        """The next message; None once it is closed. queue.Empty after the timeout."""
        message = self._messages.get(timeout=timeout_s)
        if message is None:
            self._messages.put(None)  # for the next one who asks
        return message

    def clear(self) -> list[AsyncMessage]:
        """Drop everything that nobody has begun with."""
        dropped = []
        while (message := self._take_nowait()) is not None:
            dropped.append(message)
        return dropped

    def close(self) -> None:
        """Let everybody who waits know that there will be nothing more."""
        self._is_closed = True
        self._messages.put(None)

    def _take_nowait(self) -> AsyncMessage | None:
        try:
            message = self._messages.get_nowait()
        except queue.Empty:
            return None
        if message is None:
            self._messages.put(None)
        return message


class Subscription:
    """A membership in a subscription, for threads. Iterate over it, or let its handler work.

    for message in client.subscribe_to_subscription("workers"):
        ...       # acknowledged when the next one is asked for
    """

    def __init__(
        self,
        config: JoinConfig,
        *,
        handler: Handler | None,
        thread: LoopThread,
        stop_timeout_s: float,
        client: object,
    ) -> None:
        self.name = config.name
        self.inbox = ThreadInbox(inbox_size(config.prefetch))
        self._config = config
        self._handler = handler
        self._thread = thread
        self._stop_timeout_s = stop_timeout_s
        self._client = client  # which must live as long as somebody works for it
        self._membership: AsyncSubscription | None = None
        self._workers: list[threading.Thread] = []
        self._last: AsyncMessage | None = None
        self._finished: deque[tuple[AsyncMessage, BaseException | None]] = deque()
        self._is_handing_back = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {len(self._workers)} workers>"

    def start(self, membership: AsyncSubscription) -> None:
        """The broker took us in: let workers begin."""
        self._membership = membership
        if self._handler is None:
            return
        for at in range(self._config.concurrency):
            worker = threading.Thread(target=self._work, name=f"tailrace-{self.name}-{at}", daemon=True)
            self._workers.append(worker)
            worker.start()

    @property
    def membership(self) -> AsyncSubscription:
        """Its part in the event loop."""
        assert self._membership is not None, "it was joined before anybody got it"
        return self._membership

    # ---- for users

    def __iter__(self) -> Iterator[Message]:
        if self._handler is not None:
            raise ClientError(f"{self.name} has a handler. Leave the handler out to iterate")
        return self

    def __next__(self) -> Message:
        message = self.get()
        if message is None:
            raise StopIteration
        return message

    def get(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None after the timeout, or once the subscription has ended.

        With auto_ack this acknowledges the message before. Raises what ended the subscription, if nobody
        asked for that.
        """
        last, self._last = self._last, None
        if last is not None and not self.membership.ended.is_set():  # else it went back with the membership
            self._finish(last, None)
        try:
            message = self.inbox.get(timeout_s)
        except queue.Empty:
            return None
        if message is None:
            if self.membership.error is not None:
                raise self.membership.error
            return None
        self._last = message
        self.membership.begin(message)
        return Message(message, self._thread)

    def close(self) -> None:
        """Leave the subscription. Running handlers end first; what was not settled goes back at once."""
        self.stop_workers()
        self._thread.call(self.membership.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- workers

    def _work(self) -> None:
        assert self._handler is not None
        while (message := self.inbox.get()) is not None:
            self.membership.begin(message)
            try:
                self._handler(Message(message, self._thread))
            except (Exception, SystemExit) as error:
                self.membership.report(message, error)
                self._finish(message, error)
            else:
                self._finish(message, None)

    def stop_workers(self) -> None:
        """Let no worker begin with another message, and wait a while for those that run."""
        if not self._thread.post(self._stop_inbox):
            return
        until_s = time.monotonic() + self._stop_timeout_s
        for worker in self._workers:
            if worker is not threading.current_thread():
                worker.join(max(0.0, until_s - time.monotonic()))

    def _stop_inbox(self) -> None:
        self.inbox.clear()
        self.inbox.close()

    def _finish(self, message: AsyncMessage, error: BaseException | None) -> None:
        """In a worker: have the loop settle a message. The loop is woken once for all that come close."""
        self._finished.append((message, error))
        if not self._is_handing_back:
            self._is_handing_back = True
            self._thread.post(self._hand_back)  # once the client is closed, in vain: the message comes again

    def _hand_back(self) -> None:
        """In the loop. What is appended while the flag is up is seen here; later ones wake us again."""
        self._is_handing_back = False
        while self._finished:
            message, error = self._finished.popleft()
            self.membership.finish(message, error)
