"""One connection to one broker: pipelined requests out, replies in the same order back.

    reply:  size int32 | correlation id int32 | rest of the header | body

A request waits for a slot (in_flight_max), is written whole, and takes its place in `_pending`. A broker
answers in request order, so a reply belongs to the oldest of them and must carry its correlation id. Anything
else breaks the protocol and ends the connection, and with it every request that still waits. A request that
times out ends the connection too: the replies behind it are stuck for the same reason.

Replies are received into one buffer; one that does not fit there gets a buffer of exactly its size, so that
record bytes are copied out of the socket once. No size is believed above reply_bytes_max.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from tailrace import __version__
from tailrace.client.address import connect, unanswered_by, unreached
from tailrace.client.credentials import AnyCredentials
from tailrace.client.error import (
    CannotConnect,
    ClientError,
    ConnectionLost,
    ConnectTimedOut,
    LoginNeeded,
    TimedOut,
    UnsupportedApi,
)
from tailrace.client.tls import ClientTls, refusal
from tailrace.model import BrokerError, ErrorCode, ProtocolError
from tailrace.model.address import Address
from tailrace.records import BytesLike
from tailrace.security import AuthenticationFailed
from tailrace.wire.kafka import (
    APIS,
    Message,
    decode,
    encode,
    read_response_head,
    response_type,
    write_request_head,
)
from tailrace.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tailrace.wire.native import MessageType, read_error, read_frame

REPLY_BYTES_MAX = 128 * 1024 * 1024
IN_FLIGHT_MAX = 64

_API_VERSIONS = 18
_SASL_HANDSHAKE = 17
_SASL_AUTHENTICATE = 36
_LOGIN_AGAIN = 0.8  # of the time for which a login holds: then the next one begins
_SPOKEN_MAX = {0: 11, 1: 12, 9: 7, 10: 3, 22: 5, 24: 3, 26: 4, 28: 4}
"""Fetch, OffsetFetch, FindCoordinator: later versions name topics by ids and several groups at once. Those of
transactions: later versions are for clusters in which every end of one changes the epoch
(`newest` of `version_of`), and for brokers among each other."""
_HANDSHAKE_VERSION = 3  # since Kafka 2.4; an older broker answers in version 0, with error 35
_RECEIVE_BYTES = 64 * 1024
_SIZE = struct.Struct(">i")
_CODE = struct.Struct(">h")
_REPLY_BYTES_MIN = 4
_CORRELATION_MASK = 0x7FFF_FFFF


class _Pending:
    """A request whose reply has not come."""

    __slots__ = ("correlation_id", "future", "key", "version")

    def __init__(self, *, correlation_id: int, key: int, version: int, future: asyncio.Future[Any]) -> None:
        self.correlation_id = correlation_id
        self.key = key
        self.version = version
        self.future = future


class Connection(asyncio.BufferedProtocol):
    """An open connection whose API versions are known; make one with `open_connection`."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str,
        request_timeout_s: float,
        in_flight_max: int = IN_FLIGHT_MAX,
        reply_bytes_max: int = REPLY_BYTES_MAX,
    ) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        """Of every API that the broker speaks: its lowest and highest version."""
        self.features: dict[str, int] = {}
        """Finalized features of the cluster, and the level of each (KIP-584)."""
        self.refusal = ""  # why the broker ended the connection, if its TLS said so
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._reply_bytes_max = reply_bytes_max
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Pending] = deque()
        self._slots = asyncio.Semaphore(in_flight_max)
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._failure: ClientError | ProtocolError | None = None
        self._correlation_id = 0
        self._answered = 0  # requests, the first one included
        self._is_logged_in = False
        self._is_encrypted = False
        self._login_timer: asyncio.TimerHandle | None = None
        self._login_again: asyncio.Task[None] | None = None
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        self._received_end = 0
        self._frame: memoryview | None = None  # a reply larger than what is left of the buffer
        self._frame_end = 0
        self._writable.set()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Connection {self.address} {state}, {len(self._pending)} in flight>"

    @property
    def closed(self) -> bool:
        return self._failure is not None

    def version_of(self, key: int, *, newest: int | None = None) -> int:
        """The newest version of an API that both sides speak.

        `newest` is for versions that this client speaks only if a feature of the cluster allows it.
        """
        ours = APIS[key]
        lowest, highest = self.versions.get(key, (0, -1))
        spoken = _SPOKEN_MAX.get(key, ours.max_version) if newest is None else newest
        version = min(spoken, highest)
        if version < max(ours.min_version, lowest):
            theirs = f"speaks versions {lowest} to {highest}" if highest >= 0 else "does not offer it"
            raise UnsupportedApi(
                f"{ours.name} cannot be used with {self.address}: the broker {theirs},"
                f" this client {ours.min_version} to {spoken}"
            )
        return version

    async def request(
        self,
        key: int,
        message: Message,
        *,
        newest: int | None = None,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a message of an API and wait for the decoded reply.

        It goes in the version of `version_of`, or in `version`, which the broker may serve and not tell.
        """
        if version is None:
            version = self.version_of(key, newest=newest)
        frame = await self.exchange(key, version, [encode(message, version)], timeout_s=timeout_s)
        return self._decoded(response_type(key), version, frame)

    async def exchange(
        self, key: int, version: int, body: Sequence[BytesLike], *, timeout_s: float | None = None
    ) -> memoryview:
        """Send a request whose body is encoded already, and wait for the body of its reply."""
        seconds = self._request_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
                pending = self._send(key, version, body)
                await self._writable.wait()
                reply: memoryview = await pending.future
                return reply
        except TimeoutError:
            error = TimedOut(
                f"{self.address} did not answer {APIS[key].name} within {seconds:g} s."
                " Is it overloaded or stopped? Try: tailrace doctor"
            )
            self.fail(ConnectionLost(str(error)))
            raise error from None

    async def send_only(self, key: int, version: int, body: Sequence[BytesLike]) -> None:
        """Send a request that gets no reply, as Produce with acks=0 is."""
        await self._writable.wait()
        self._check_open()
        self._write(key, version, self._next_correlation_id(), body)

    def fail(self, error: ClientError | ProtocolError) -> None:
        """End the connection at once; every request that still waits ends with `error`."""
        if self._failure is not None:
            return
        self._failure = error
        if self._login_timer is not None:
            self._login_timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        for each in pending:
            self._slots.release()
            if not each.future.done():
                each.future.set_exception(error)
                each.future.exception()  # its owner may have gone; then nobody needs to hear of it
        self._writable.set()

    async def close(self) -> None:
        """End the connection and wait until the socket is gone."""
        self.fail(ConnectionLost(f"the connection to {self.address} was closed"))
        if self._login_again is not None:
            self._login_again.cancel()
            await asyncio.gather(self._login_again, return_exceptions=True)
        if self._transport is not None:
            await self._closed.wait()

    # ---- sending

    def _send(self, key: int, version: int, body: Sequence[BytesLike]) -> _Pending:
        """Write one request and note that its reply is due. Nothing may wait between the two."""
        try:
            self._check_open()
        except ClientError:
            self._slots.release()
            raise
        correlation_id = self._next_correlation_id()
        pending = _Pending(
            correlation_id=correlation_id, key=key, version=version, future=self._loop.create_future()
        )
        self._write(key, version, correlation_id, body)
        self._pending.append(pending)
        return pending

    def _write(self, key: int, version: int, correlation_id: int, body: Sequence[BytesLike]) -> None:
        assert self._transport is not None
        head = write_request_head(key, version, correlation_id, self._client_id, sum(map(len, body)))
        self._transport.writelines([head, *body])

    def _check_open(self) -> None:
        if self._failure is not None:
            raise ConnectionLost(str(self._failure))

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        return self._correlation_id

    # ---- receiving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None

    def connection_lost(self, exc: Exception | None) -> None:
        cause = f" ({exc})" if exc is not None else ""
        kind: type[ConnectionLost] = ConnectionLost
        if self._answered == 1 and not self._is_logged_in:  # it told its versions, and nothing else
            kind = LoginNeeded
            cause += ". It may ask for a login: give a user and a password (--user, --password-file)"
        if said := refusal(exc):
            self.refusal, cause = said, f": {said}"
        elif not self._answered and not self._is_encrypted:
            cause += ". It may speak TLS: give its CA (--tls-ca)"
        self.fail(kind(f"{self.address} closed the connection{cause}"))
        self._closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's own signature)
        if self._frame is not None:
            return self._frame[self._frame_end :]
        return self._received[self._received_end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure is not None:
            return
        try:
            if self._frame is not None:
                self._frame_end += nbytes
                if self._frame_end == len(self._frame):
                    frame, self._frame = self._frame, None
                    self._deliver(frame)
            else:
                self._received_end += nbytes
                self._split()
        except ProtocolError as error:
            self.fail(error)

    def _split(self) -> None:
        """Deliver every whole reply in the buffer, and move what is left to where it can be completed."""
        view, at, end = self._received, 0, self._received_end
        while end - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(view, at)
            if not _REPLY_BYTES_MIN <= size <= self._reply_bytes_max:
                raise self._refuse_size(size)
            at += _SIZE.size
            have = min(size, end - at)
            frame = memoryview(bytearray(size))
            frame[:have] = view[at : at + have]
            at += have
            if have < size:
                self._frame, self._frame_end = frame, have
            else:
                self._deliver(frame)
        view[: end - at] = view[at:end]
        self._received_end = end - at

    def _deliver(self, frame: memoryview) -> None:
        if not self._pending:
            raise ProtocolError(f"{self.address} sent a reply that nobody asked for")
        pending = self._pending.popleft()
        self._answered += 1
        self._slots.release()
        try:
            correlation_id, body = read_response_head(pending.key, pending.version, frame)
            if correlation_id != pending.correlation_id:
                raise self._refuse_reply(frame, correlation_id, pending.correlation_id)
        except ProtocolError as error:
            self._give_up(pending, error)
            raise
        if not pending.future.done():
            pending.future.set_result(body)

    def _give_up(self, pending: _Pending, error: ProtocolError) -> None:
        if not pending.future.done():
            pending.future.set_exception(error)

    def _refuse_reply(self, frame: memoryview, answered: int, due: int) -> ProtocolError:
        if answered == MessageType.ERROR:  # a native frame has its type where a reply has its correlation id
            try:
                refusal = read_error(read_frame(frame)).message
            except (ProtocolError, BrokerError):
                pass
            else:
                return ProtocolError(f"{self.address} is no Kafka port: {refusal}")
        return ProtocolError(f"{self.address} answered request {answered} when {due} was due")

    def _refuse_size(self, size: int) -> ProtocolError:
        if _SIZE.pack(size) == b"HTTP":
            return ProtocolError(f"{self.address} speaks HTTP and not Kafka. Is this the Kafka port?")
        if 0x15030000 <= size <= 0x150304FF:  # a TLS alert record
            return ProtocolError(f"{self.address} expects TLS. Give its CA: --tls-ca FILE, or tls=FILE")
        return ProtocolError(
            f"{self.address} announced a reply of {size} bytes; the limit is {self._reply_bytes_max}."
            " Is this the Kafka port?"
        )

    def _decoded(self, message_type: type[Message], version: int, body: memoryview) -> Any:
        with self.distrust():
            return decode(message_type, version, body)

    @contextmanager
    def distrust(self) -> Iterator[None]:
        """Around the reading of a reply: where that breaks the protocol, the connection ends."""
        try:
            yield
        except ProtocolError as error:
            self.fail(error)
            raise

    # ---- handshake

    async def negotiate(self, *, timeout_s: float) -> None:
        """Ask the broker which versions it speaks (KIP-35, KIP-511)."""
        request = ApiVersionsRequest(client_software_name="tailrace", client_software_version=__version__)
        version = _HANDSHAKE_VERSION
        for _ in range(2):
            sent = encode(request, version)
            body = await self.exchange(_API_VERSIONS, version, [sent], timeout_s=timeout_s)
            # Error 35 comes in version 0 whatever was asked, and tells the versions of ApiVersions itself.
            unsupported = len(body) >= 2 and _CODE.unpack_from(body)[0] == ErrorCode.UNSUPPORTED_VERSION
            reply = self._decoded(ApiVersionsResponse, 0 if unsupported else version, body)
            if not unsupported:
                break
            version = 0
        if reply.error_code:
            raise ProtocolError(f"{self.address} refused to tell its versions (error {reply.error_code})")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
        self.features = {each.name: each.max_version_level for each in reply.finalized_features}

    # ---- login

    async def log_in(self, credentials: AnyCredentials, *, timeout_s: float) -> None:
        """Log in (KIP-43, KIP-152); AuthenticationFailed says why not. Done again before the login ends."""
        request = SaslHandshakeRequest(mechanism=credentials.mechanism)
        reply = await self.request(_SASL_HANDSHAKE, request, timeout_s=timeout_s)
        if reply.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed(
                f"{self.address} asks nobody who it is. Leave the user and the password out"
            )
        if reply.error_code:
            raise AuthenticationFailed(
                f"{self.address} does not offer {credentials.mechanism}, but {', '.join(reply.mechanisms)}"
            )
        exchange = credentials.begin()
        message: bytes | None = await exchange.first()
        lifetime_ms = 0
        while message is not None:
            sent = SaslAuthenticateRequest(auth_bytes=message)
            answer = await self.request(_SASL_AUTHENTICATE, sent, timeout_s=timeout_s)
            if answer.error_code:
                raise AuthenticationFailed(
                    f"{self.address}: {answer.error_message or 'authentication failed'}"
                )
            lifetime_ms = answer.session_lifetime_ms
            message = await exchange.answer(answer.auth_bytes)
        self._is_logged_in = True
        if lifetime_ms > 0 and not self.closed:
            self._login_timer = self._loop.call_later(
                lifetime_ms / 1000 * _LOGIN_AGAIN, self._begin_login_again, credentials, timeout_s
            )

    def _begin_login_again(self, credentials: AnyCredentials, timeout_s: float) -> None:
        self._login_again = self._loop.create_task(
            self._log_in_again(credentials, timeout_s), name="kafka-login"
        )

    async def _log_in_again(self, credentials: AnyCredentials, timeout_s: float) -> None:
        try:
            await self.log_in(credentials, timeout_s=timeout_s)
        except (BrokerError, ClientError, ProtocolError) as error:
            self.fail(ConnectionLost(f"{self.address} did not renew the login: {error}"))


async def open_connection(
    address: Address,
    *,
    client_id: str,
    credentials: AnyCredentials | None = None,
    tls: ClientTls | None = None,
    request_timeout_s: float,
    connect_timeout_s: float,
    in_flight_max: int = IN_FLIGHT_MAX,
    reply_bytes_max: int = REPLY_BYTES_MAX,
) -> Connection:
    """Connect and negotiate; CannotConnect says which address, why, and what to try."""
    connection = Connection(
        address,
        client_id=client_id,
        request_timeout_s=request_timeout_s,
        in_flight_max=in_flight_max,
        reply_bytes_max=reply_bytes_max,
    )
    try:
        async with asyncio.timeout(connect_timeout_s):
            await connect(address, lambda: connection, tls)
    except TimeoutError as error:
        raise ConnectTimedOut(unanswered_by(address, connect_timeout_s)) from error
    except OSError as error:
        raise CannotConnect(unreached(address, error)) from error
    try:
        await connection.negotiate(timeout_s=connect_timeout_s)
        if credentials is not None:
            await connection.log_in(credentials, timeout_s=connect_timeout_s)
    except ProtocolError as error:
        await connection.close()
        raise CannotConnect(str(error)) from error
    except ClientError as error:
        await connection.close()
        if connection.refusal:
            raise CannotConnect(f"{address} refused the connection: {connection.refusal}") from error
        kind = ConnectTimedOut if isinstance(error, TimedOut) else CannotConnect
        raise kind(
            f"{address} took the connection and then said nothing ({error}). Is this the Kafka port?"
        ) from error
    except BaseException:
        await connection.close()
        raise
    return connection
