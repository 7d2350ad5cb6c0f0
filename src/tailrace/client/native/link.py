"""A connection that comes back: what the rest of a native client sends through.

The link keeps one connection to one broker. When that is lost it tells its listeners, opens another one after
the delays of its policy, and tells them again; they then send what must be sent again. Requests made here
wait while there is no connection, and are repeated after a loss until their time is up. Listeners are told in
the order in which they were given, so that subscriptions are joined before late acknowledgements leave.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tailrace.client.credentials import AnyCredentials
from tailrace.client.error import CannotConnect, ClientClosed, ClientError, ConnectionLost, TimedOut
from tailrace.client.native.connection import Connection, Failure, Reply, open_connection
from tailrace.client.native.error import BrokerGone, TryAgain, number_of
from tailrace.client.native.reconnect import Reconnect
from tailrace.client.native.status import Status
from tailrace.client.tls import ClientTls
from tailrace.model import BrokerError, TailraceError
from tailrace.model.address import Address
from tailrace.runtime.tasks import Supervisor
from tailrace.wire.native import Frame, MessageType, type_name, write_properties

_log = logging.getLogger(__name__)

_ATTEMPT_TIMEOUT_S = 10.0  # for a connection and its first answer; the Kafka client has the same
_REFUSED_DELAY_S = 0.1  # before a request that was refused for now is made again

OnStatus = Callable[[Status], None]


class Listener(Protocol):
    """A part of the client that must know whether there is a connection."""

    def connected(self, connection: Connection) -> None:
        """There is one, new or again."""

    def disconnected(self) -> None:
        """It is lost, and another one will come."""

    def ended(self, error: TailraceError) -> None:
        """It is lost for good."""


class Link:
    """One broker, reached again and again."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        policy: Reconnect | None,
        connect_timeout_s: float | None,
        request_timeout_s: float,
        heartbeat_interval_s: float,
        on_status: OnStatus | None = None,
        credentials: AnyCredentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self.address = address
        self.status = Status.CLOSED
        self.connection: Connection | None = None
        self.producer_id = -1
        self.policy = policy
        self.request_timeout_s = request_timeout_s
        self.on_status = on_status
        self.listeners: Sequence[Listener] = ()
        self.on_delivery: Callable[[Frame], None] | None = None
        self.on_notice: Callable[[Frame], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self._connect_timeout_s = connect_timeout_s
        self._client_id = client_id
        self._credentials = credentials
        self._tls = tls
        self._heartbeat_interval_s = heartbeat_interval_s
        self._tasks = Supervisor(self._task_failed)
        self._came_or_ended = asyncio.Event()
        self._delays: Iterator[float] | None = (
            None  # of the losses so far, if they followed each other closely
        )
        self._connected_at_s = 0.0
        self._trouble: TailraceError | None = None  # why there is no connection

    def __repr__(self) -> str:
        return f"<Link {self.address} {self.status}>"

    @property
    def _attempt_timeout_s(self) -> float:
        return min(_ATTEMPT_TIMEOUT_S, self.request_timeout_s)

    # ---- opening and closing

    async def open(self) -> None:
        """Connect. This is tried once; with a policy and a connect timeout again until then.

        A program that was given a wrong address hears of it at once, and one that is started beside its
        broker says how long to wait for it.
        """
        self._set_status(Status.CONNECTING)
        seconds = self._connect_timeout_s
        delays = iter(()) if self.policy is None or seconds is None else self.policy.delays()
        until_s = asyncio.get_running_loop().time() + (seconds or self._attempt_timeout_s)
        try:
            while True:
                try:
                    self._adopt(await self._connect(until_s))
                    return
                except CannotConnect as error:
                    delay_s = next(delays, None)
                    if delay_s is None or asyncio.get_running_loop().time() + delay_s >= until_s:
                        raise
                    self._report(error)
                    await asyncio.sleep(delay_s)
        except BaseException:
            self._set_status(Status.CLOSED)
            raise

    async def close(self) -> None:
        """End the connection, and every request with it."""
        connection, self.connection = self.connection, None
        self._end(ClientClosed(f"the client of {self.address} is closed"))
        if connection is not None:
            await connection.close()
        await self._tasks.stop()

    async def _connect(self, until_s: float | None = None) -> Connection:
        timeout_s = self._attempt_timeout_s
        if until_s is not None:
            timeout_s = max(0.0, until_s - asyncio.get_running_loop().time())
        return await open_connection(
            self.address,
            owner=self,
            client_id=self._client_id,
            heartbeat_interval_s=self._heartbeat_interval_s,
            timeout_s=timeout_s,
            ask_producer=self.producer_id < 0,
            credentials=self._credentials,
            tls=self._tls,
        )

    def _adopt(self, connection: Connection) -> None:
        if connection.closed:  # it ended in the moment between its hello and now
            connection.owner = None
            raise CannotConnect(f"{self.address} took the connection and then ended it")
        self.connection = connection
        if connection.producer_id >= 0:
            self.producer_id = connection.producer_id
        self._trouble = None
        self._connected_at_s = asyncio.get_running_loop().time()
        self._set_status(Status.CONNECTED)
        for listener in self.listeners:
            if not connection.closed:
                listener.connected(connection)
        self._came_or_ended.set()

    # ---- what the connection tells

    def delivered(self, frame: Frame) -> None:
        if self.on_delivery is not None:
            self.on_delivery(frame)

    def noticed(self, frame: Frame) -> None:
        if self.on_notice is not None:
            self.on_notice(frame)

    def writable(self) -> None:
        if self.on_writable is not None:
            self.on_writable()

    def ended(self, error: Failure) -> None:
        if self.status is Status.CLOSED:
            return
        self.connection = None
        if self.policy is None:
            self._end(error)
            return
        self._trouble = error
        self._came_or_ended.clear()
        lived_s = asyncio.get_running_loop().time() - self._connected_at_s
        if lived_s >= self.policy.delay_s_max:
            self._delays = None  # it was a good one: begin with short delays again
        _log.warning("connection lost, trying again: %s", error)
        self._set_status(Status.RECONNECTING)
        for listener in self.listeners:
            listener.disconnected()
        self._tasks.start("tailrace-reconnect", self._come_back())

    async def _come_back(self) -> None:
        assert self.policy is not None
        if self._delays is None:
            self._delays = self.policy.delays()
        for delay_s in self._delays:
            await asyncio.sleep(delay_s)
            try:
                self._adopt(await self._connect())
                _log.info("connected again: %s", self.address)
                return
            except CannotConnect as error:
                self._trouble = error
                _log.debug("not yet: %s", error)
            except BrokerError as error:  # it refuses our login, and would again
                self._end(BrokerGone(f"{self.address} refused to let us in again: {error}"))
                return
        self._end(BrokerGone(f"gave up after {self.policy.attempts_max} attempts: {self._trouble}"))

    def _end(self, error: TailraceError) -> None:
        if self.status is Status.CLOSED:
            return
        self._trouble = error
        self._set_status(Status.CLOSED)
        self._came_or_ended.set()
        for listener in self.listeners:
            listener.ended(error)

    # ---- requests

    async def request(
        self,
        type: int,
        properties: Mapping[str, str],
        *,
        encoded: bytes = b"",
        body: bytes = b"",
        timeout_s: float | None = None,
        repeat: bool = True,
    ) -> tuple[Frame, list[Frame]]:
        """Make a request: its reply, and what was delivered with it.

        After a lost connection it is made again, unless it must not be carried out twice (`repeat`). Further
        properties may be given encoded.
        """
        everything = write_properties(properties) + encoded
        seconds = self.request_timeout_s if timeout_s is None else timeout_s
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                while True:
                    try:
                        return await self._attempt(type, everything, body)
                    except ConnectionLost:
                        if not repeat or self.status is Status.CLOSED:
                            raise
                    except TryAgain:
                        await asyncio.sleep(_REFUSED_DELAY_S)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise self._timed_out(type_name(type), seconds) from error

    async def _attempt(self, type: int, properties: bytes, body: bytes) -> tuple[Frame, list[Frame]]:
        connection = await self.wait_connected()
        reply = Reply()
        sequence = connection.send(type, properties, body, awaiting=reply)
        try:
            return await reply.future, reply.data
        finally:
            connection.forget(sequence)

    async def wait_connected(self) -> Connection:
        """The connection, as soon as there is one; an error once there will be none."""
        while (connection := self.connection) is None or connection.closed:
            if self.status is Status.CLOSED:
                raise self._closed_error()
            self._came_or_ended.clear()
            await self._came_or_ended.wait()
        return connection

    async def new_producer_id(self) -> int:
        """A producer id that nothing was published with yet."""
        frame, _ = await self.request(MessageType.HEARTBEAT, {"_producer": "new"})
        self.producer_id = number_of(frame, "_producer")
        return self.producer_id

    def _closed_error(self) -> ClientError:
        if self._trouble is None:
            return ClientClosed(
                "the client is not connected. Call connect() first, or use it in a with block"
            )
        if isinstance(self._trouble, ClientClosed):
            return ClientClosed(str(self._trouble))
        return BrokerGone(
            f"there is no connection to {self.address} any more ({self._trouble}). Call connect() again, or"
            " make the client with reconnect=Reconnect() to have it come back by itself"
        )

    def _timed_out(self, what: str, seconds: float) -> TimedOut:
        if self.connection is None and self._trouble is not None:
            return TimedOut(f"{what} was not sent within {seconds:g} s: {self._trouble}")
        return TimedOut(
            f"{self.address} did not answer {what} within {seconds:g} s. Is it overloaded or stopped?"
            " Try: tailrace doctor"
        )

    # ---- status

    def _set_status(self, status: Status) -> None:
        self.status = status
        if self.on_status is None:
            return
        try:
            self.on_status(status)
        except Exception:
            _log.exception("on_status failed when the client became %s", status)

    def _report(self, error: TailraceError) -> None:
        if self._trouble is None:
            _log.warning("not connected yet, trying again: %s", error)
        self._trouble = error

    def _task_failed(self, error: BaseException) -> None:
        _log.error("the client of %s cannot go on", self.address, exc_info=error)
        self._end(BrokerGone(f"the client of {self.address} cannot go on: {error}"))
