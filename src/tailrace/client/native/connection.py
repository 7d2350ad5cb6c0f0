"""One connection to the native listener: requests out, replies, deliveries and heartbeats in.

Every request has a sequence of its own, and whoever waits for the reply is kept under it in `_awaiting`:
replies come in any order. A DATA goes to the request that pulled it, else to the owner. A frame that nobody
can place breaks the protocol and ends the connection, and with it everything that still waits.

Life: who has sent nothing for its interval sends a HEARTBEAT, and anything received is a sign of life. A
broker that is silent for three of its own intervals is gone, whatever TCP believes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol, TypeAlias, cast

from tailrace.client.address import connect, unanswered_by, unreached
from tailrace.client.credentials import AnyCredentials
from tailrace.client.error import CannotConnect, ClientError, ConnectTimedOut
from tailrace.client.native.error import BrokerGone, BrokerUnreachable, TryAgain, error_of, number_of
from tailrace.client.tls import ClientTls, refusal
from tailrace.model import ProtocolError
from tailrace.model.address import Address
from tailrace.wire.native import FRAME_BYTES_MAX, Frame, FrameReader, MessageType, type_name, write_frame

_ACK = int(MessageType.ACK)
_AUTH = int(MessageType.AUTH)
_DATA = int(MessageType.DATA)
_ERROR = int(MessageType.ERROR)
_HEARTBEAT = int(MessageType.HEARTBEAT)
_NOTICE = int(MessageType.NOTICE)

_INTERVALS_TO_DEATH = 3
_REPLY_BYTES_MAX = 128 * 1024 * 1024
_INTERVAL_S_MIN = 0.01  # a peer that asks for more than a hundred heartbeats a second is not taken seriously

Failure: TypeAlias = ClientError | ProtocolError


class Awaiting(Protocol):
    """Whoever waits for the reply to one request."""

    def answered(self, frame: Frame) -> None:
        """The reply is here: an ACK, a HEARTBEAT, or an ERROR."""

    def delivered(self, frame: Frame) -> None:
        """A DATA that belongs to this request is here; the reply follows."""

    def lost(self, error: Failure) -> None:
        """The connection has ended, and no reply will come."""


class Owner(Protocol):
    """Whoever keeps the connection."""

    def delivered(self, frame: Frame) -> None:
        """A message was pushed."""

    def noticed(self, frame: Frame) -> None:
        """The broker tells something about a subscription."""

    def writable(self) -> None:
        """The socket takes more again."""

    def ended(self, error: Failure) -> None:
        """The connection is gone. Called once, after everybody who waited was told."""


class Reply:
    """Waits for one reply with a future, and collects what is delivered before it."""

    __slots__ = ("data", "future")

    def __init__(self) -> None:
        self.future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.data: list[Frame] = []

    def answered(self, frame: Frame) -> None:
        if self.future.done():
            return
        if frame.type == _ERROR:
            self.future.set_exception(error_of(frame))
        else:
            self.future.set_result(frame)

    def delivered(self, frame: Frame) -> None:
        self.data.append(frame)

    def lost(self, error: Failure) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # its owner may have gone; then nobody needs to hear of it


class Connection(asyncio.Protocol):
    """An open connection; make one with `open_connection`."""

    def __init__(self, address: Address, *, heartbeat_interval_s: float) -> None:
        self.address = address
        self.owner: Owner | None = None  # as long as there is something to tell it
        self.frame_bytes_max = FRAME_BYTES_MAX  # of what the broker takes; told in the handshake
        self.producer_id = -1  # if one was asked for
        self.is_writable = True
        self.refusal = ""  # why the broker ended the connection, if its TLS said so
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(_REPLY_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._awaiting: dict[int, Awaiting] = {}
        self._sequence = 0
        self._failure: Failure | None = None
        self._closed = asyncio.Event()
        self._interval_s = heartbeat_interval_s
        self._dead_after_s = heartbeat_interval_s * _INTERVALS_TO_DEATH
        self._heard_at = self._sent_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Connection {self.address} {state}, {len(self._awaiting)} in flight>"

    @property
    def closed(self) -> bool:
        return self._failure is not None

    # ---- sending

    def send(
        self,
        type: int,
        properties: Mapping[str, str] | bytes = b"",
        body: bytes | memoryview = b"",
        *,
        awaiting: Awaiting | None = None,
    ) -> int:
        """Write a frame; with somebody who waits for the reply it gets a sequence, which is returned."""
        assert self._transport is not None
        if self._failure is not None:
            raise BrokerGone(str(self._failure))
        sequence = 0
        if awaiting is not None:
            sequence = self._sequence + 1
        frame = write_frame(type, sequence=sequence, properties=properties, body=body)
        if awaiting is not None:
            self._sequence = sequence
            self._awaiting[sequence] = awaiting
        self._sent_at = self._loop.time()
        self._transport.write(frame)
        return sequence

    def forget(self, sequence: int) -> None:
        """Nobody waits for this reply any more; it is passed over when it comes."""
        if sequence in self._awaiting:
            self._awaiting[sequence] = _NOBODY

    def fail(self, error: Failure) -> None:
        """End the connection at once and tell everybody who waits."""
        if self._failure is not None:
            return
        self._failure = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        awaiting, self._awaiting = self._awaiting, {}
        for each in awaiting.values():
            each.lost(error)
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.ended(error)

    async def close(self) -> None:
        """Send what was written, end the connection, and wait until the socket is gone."""
        self.owner = None  # whoever closes need not be told of the end
        if self._transport is not None and self._failure is None:
            self._failure = BrokerGone(f"the connection to {self.address} was closed")
            if self._timer is not None:
                self._timer.cancel()
            self._transport.close()
            for each in self._awaiting.values():
                each.lost(self._failure)
            self._awaiting = {}
        if self._transport is not None:
            try:
                async with asyncio.timeout(1.0):
                    await self._closed.wait()
            except TimeoutError:
                self._transport.abort()  # the broker does not read; what it did not take is lost
                await self._closed.wait()

    # ---- receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        said = self.refusal = refusal(exc)
        cause = f": {said}" if said else f" ({exc})" if exc is not None else ""
        self.fail(BrokerGone(f"{self.address} closed the connection{cause}"))
        self._closed.set()

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        if self.owner is not None:
            self.owner.writable()

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        self._heard_at = self._loop.time()
        reader = self._reader
        try:
            reader.feed(data)
            while (frame := reader.next_frame()) is not None:
                self._take(frame)
        except ProtocolError as error:
            what = "speaks HTTP" if data.startswith(b"HTTP/") else f"broke the protocol: {error}"
            self.fail(ProtocolError(f"{self.address} {what}. Is this the native port?"))

    def _take(self, frame: Frame) -> None:
        kind = frame.type
        if kind == _DATA:
            if "_pull" in frame.properties:
                self._waiter(number_of(frame, "_pull"), frame, keep=True).delivered(frame)
            elif self.owner is not None:
                self.owner.delivered(frame)
        elif frame.sequence and kind in (_ACK, _ERROR, _HEARTBEAT):
            self._waiter(frame.sequence, frame).answered(frame)
        elif kind == _ERROR:
            raise ProtocolError(str(error_of(frame)))
        elif kind == _NOTICE:
            if self.owner is not None:
                self.owner.noticed(frame)
        elif kind != _HEARTBEAT:
            raise ProtocolError(f"a client cannot be sent {type_name(kind)}")

    def _waiter(self, sequence: int, frame: Frame, *, keep: bool = False) -> Awaiting:
        waiter = self._awaiting.get(sequence) if keep else self._awaiting.pop(sequence, None)
        if waiter is None:
            raise ProtocolError(f"{type_name(frame.type)} belongs to request {sequence}, which nobody made")
        return waiter

    # ---- life

    def watch(self, *, interval_s: float, peer_interval_s: float) -> None:
        """From now on send heartbeats, and expect the peer's."""
        self._interval_s = max(interval_s, _INTERVAL_S_MIN)
        self._dead_after_s = max(peer_interval_s, _INTERVAL_S_MIN) * _INTERVALS_TO_DEATH
        self._tick()

    def _tick(self) -> None:
        if self._failure is not None:
            return
        now_s = self._loop.time()
        if now_s - self._heard_at >= self._dead_after_s:
            self.fail(BrokerGone(f"{self.address} has said nothing for {self._dead_after_s:g} s"))
            return
        if now_s - self._sent_at >= self._interval_s:
            self.send(_HEARTBEAT)
        next_s = min(self._heard_at + self._dead_after_s, self._sent_at + self._interval_s)
        self._timer = self._loop.call_at(next_s, self._tick)


class _Nobody:
    """Takes the reply to a request that was given up."""

    def answered(self, frame: Frame) -> None:
        """Nobody is there to be told."""

    def delivered(self, frame: Frame) -> None:
        """Nobody is there to be told."""

    def lost(self, error: Failure) -> None:
        """Nobody is there to be told."""


_NOBODY = _Nobody()


async def open_connection(
    address: Address,
    *,
    owner: Owner,
    client_id: str,
    heartbeat_interval_s: float,
    timeout_s: float,
    ask_producer: bool,
    credentials: AnyCredentials | None = None,
    tls: ClientTls | None = None,
) -> Connection:
    """Connect and say hello; BrokerUnreachable says which address, why, and what to try."""
    connection = Connection(address, heartbeat_interval_s=heartbeat_interval_s)
    try:
        async with asyncio.timeout(timeout_s):
            await connect(address, lambda: connection, tls)
            if credentials is not None:
                await _log_in(connection, credentials)
            await _greet(connection, client_id, heartbeat_interval_s, ask_producer=ask_producer)
    except TimeoutError as error:
        connection.fail(BrokerGone(f"{address} did not answer"))
        raise _UnreachableInTime(unanswered_by(address, timeout_s)) from error
    except TryAgain as error:
        connection.fail(BrokerGone(str(error)))
        raise BrokerUnreachable(f"{address}: {error}") from error
    except ProtocolError as error:  # it says what is wrong with the port
        raise BrokerUnreachable(str(error)) from error
    except BrokerGone as error:
        if connection.refusal:
            raise BrokerUnreachable(f"{address} refused the connection: {connection.refusal}") from error
        raise BrokerUnreachable(
            f"{address} took the connection and then ended it ({error}). Is this the native port?"
            f"{'' if tls else ' If it has TLS, give its CA: --tls-ca FILE, or tls=FILE'}"
        ) from error
    except OSError as error:
        raise BrokerUnreachable(unreached(address, error)) from error
    except CannotConnect as error:  # of TLS
        raise BrokerUnreachable(str(error)) from error
    except BaseException:
        connection.fail(BrokerGone(f"the connection to {address} was given up"))
        raise
    connection.owner = owner
    return connection


async def _log_in(connection: Connection, credentials: AnyCredentials) -> None:
    """AuthenticationFailed, or another answer of the broker, says why not."""
    exchange = credentials.begin()
    properties = {"_mechanism": credentials.mechanism}
    message: bytes | None = await exchange.first()
    while message is not None:
        reply = Reply()
        connection.send(_AUTH, properties, message, awaiting=reply)
        frame = await reply.future
        properties = {}
        message = await exchange.answer(bytes(frame.body))


async def _greet(
    connection: Connection, client_id: str, heartbeat_interval_s: float, *, ask_producer: bool
) -> None:
    properties = {"_client_id": client_id, "_heartbeat_ms": str(int(heartbeat_interval_s * 1000))}
    if ask_producer:
        properties["_producer"] = "new"
    reply = Reply()
    connection.send(_HEARTBEAT, properties, awaiting=reply)
    frame = await reply.future
    own_ms = int(heartbeat_interval_s * 1000)
    dead_after_ms = number_of(frame, "_dead_after_ms", own_ms * _INTERVALS_TO_DEATH)
    connection.frame_bytes_max = number_of(frame, "_frame_bytes_max", FRAME_BYTES_MAX)
    connection.producer_id = number_of(frame, "_producer", -1)
    connection.watch(
        # A broker that is less patient than we are lively gets its heartbeats in time all the same.
        interval_s=min(heartbeat_interval_s, dead_after_ms / 1000 / _INTERVALS_TO_DEATH),
        peer_interval_s=number_of(frame, "_heartbeat_ms", own_ms) / 1000,
    )


class _UnreachableInTime(BrokerUnreachable, ConnectTimedOut):
    """The address took the connection, or not even that, and then said nothing."""
