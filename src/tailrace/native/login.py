"""The login of one native client: AUTH requests, and what is answered before (docs/protocol/native.md).

    AUTH _mechanism=SCRAM-SHA-256, body: the client's first message    ACK, body: the challenge
    AUTH body: the proof                                              ACK _user, body: the signature

PLAIN is one request. A client that does not log in in time, or whose login fails, is told so and let go.
One whose token ends is let go too, and connects again with another token.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tailrace.model import BrokerError, ErrorCode
from tailrace.native.property import refusal, shown
from tailrace.net.logins import LOGIN_BYTES_MAX
from tailrace.security import Authenticated, AuthenticationFailed, Step
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.native.stream import StreamConnection
    from tailrace.net.logins import Logins
    from tailrace.security import Login as Exchange

_ACK: Final = int(MessageType.ACK)
_SERVED_BEFORE: Final = frozenset({int(MessageType.AUTH), int(MessageType.HEARTBEAT)})


def login_needed(mechanisms: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"this listener needs a login ({mechanisms}). Give username= and password= to the client, or --user "
        "and --password-file to the command"
    )


class NativeLogin:
    """What stands between a new connection and its requests."""

    __slots__ = ("_connection", "_exchange", "_logins", "_timer", "is_pending")

    def __init__(self, connection: StreamConnection, logins: Logins) -> None:
        self._connection = connection
        self._logins = logins
        self._exchange: Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_pending = False

    def begin(self) -> bool:
        """The connection is made; whether there is room for one more without a login."""
        connection = self._connection
        self.is_pending = self._logins.pending.enter(connection.facts.peer_host)
        if self.is_pending:
            connection.limit_frames(LOGIN_BYTES_MAX)
            self._timer = connection.service.loop.call_later(self._logins.timeout_s, connection.login_late)
        return self.is_pending

    def end(self) -> None:
        """The client has logged in, or is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_pending:
            self.is_pending = False
            self._logins.pending.leave(self._connection.facts.peer_host)

    def check(self, frame: Frame) -> None:
        """AuthenticationFailed for a request that is not answered without a login."""
        if frame.type not in _SERVED_BEFORE or "_producer" in frame.properties:
            raise login_needed(", ".join(self._logins.mechanisms))

    async def take(self, frame: Frame) -> bytes:
        """The reply to an AUTH; the connection ends behind that to a login that failed."""
        try:
            step = await self._step(frame.properties.get("_mechanism", ""), bytes(frame.body))
        except BrokerError:
            self._exchange = None
            self._connection.end_soon()
            raise
        properties = {}
        if step.authenticated is not None:
            properties["_user"] = step.authenticated.principal.name
            self._succeed(step.authenticated)
        return write_frame(_ACK, sequence=frame.sequence, properties=properties, body=step.data)

    # ---- inside

    async def _step(self, mechanism: str, data: bytes) -> Step:
        if not self.is_pending:
            raise refusal("this connection has logged in. Open another one for another user")
        if mechanism:
            if mechanism not in self._logins.mechanisms:
                raise BrokerError(
                    f"the mechanism {shown(mechanism)} is not offered by this listener, which has "
                    f"{', '.join(self._logins.mechanisms)}",
                    code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                )
            host = self._connection.facts.peer_host
            self._exchange = self._logins.authenticator.begin(mechanism, host=host)
        if self._exchange is None:
            raise refusal("the first AUTH of a login names its _mechanism")
        return await self._exchange.step(data)

    def _succeed(self, found: Authenticated) -> None:
        self._exchange = None
        self.end()
        connection = self._connection
        if found.expires_at_ms is not None:
            left_ms = found.expires_at_ms - connection.service.clock.now_ms()
            self._timer = connection.service.loop.call_later(max(left_ms, 0) / 1000, connection.login_over)
        session = found.session(
            host=connection.facts.peer_host,
            listener=connection.service.name,
            encrypted=connection.session.encrypted,
        )
        connection.log_in(session)
