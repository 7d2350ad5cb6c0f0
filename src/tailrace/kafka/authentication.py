"""Who the client of one connection is (KIP-43, KIP-152, KIP-368).

    SaslHandshake names a mechanism, SaslAuthenticate carries its messages

Until a login succeeded nothing but these two and ApiVersions is served, and a failed one ends the connection
behind its answer. A client that is logged in may log in again as the same user; it must, where logins end
(connections.max.reauth.ms, or the end of a token, at which the connection ends too). After version 0 of
SaslHandshake the messages travel as bare frames.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

from tailrace.kafka.dispatch import dispatch
from tailrace.kafka.held import HeldReply
from tailrace.model import BrokerError, ErrorCode, ProtocolError
from tailrace.model.session import Principal
from tailrace.net.logins import LOGIN_BYTES_MAX
from tailrace.security import Authenticated, AuthenticationFailed, Login

if TYPE_CHECKING:
    from tailrace.kafka.connection import Connection
    from tailrace.kafka.replies import Reply
    from tailrace.net.logins import Logins

_KEY = struct.Struct(">h")
_SIZE = struct.Struct(">i")
_SERVED_BEFORE: Final = frozenset({17, 18, 36})  # SaslHandshake, ApiVersions, SaslAuthenticate


class Authentication:
    """The logins of one connection."""

    __slots__ = (
        "_connection",
        "_ends_at",
        "_is_bare",
        "_login",
        "_logins",
        "_timer",
        "is_pending",
    )

    def __init__(self, connection: Connection, logins: Logins) -> None:
        self._connection = connection
        self._logins = logins
        self._login: Login | None = None  # under way
        self._is_bare = False  # its messages come without request headers
        self.is_pending = False  # it counts among those that have not logged in
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = float("inf")  # of the login that holds, on the loop's clock

    def begin(self) -> bool:
        """The connection is made; whether there is room for one more without a login."""
        connection = self._connection
        self.is_pending = self._logins.pending.enter(connection.facts.peer_host)
        if self.is_pending:
            connection.limit_frames(LOGIN_BYTES_MAX)
            self._timer = connection.service.loop.call_later(self._logins.timeout_s, self._late)
        return self.is_pending

    def end(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_pending:
            self.is_pending = False
            self._logins.pending.leave(self._connection.facts.peer_host)

    def serve(self, connection: Connection, frame: memoryview, *, owned: bool) -> Reply | None:
        """Instead of `dispatch`, while there is no login or one that ends; ProtocolError closes."""
        if self._is_bare and self._login is not None:
            return self._serve_bare(connection, bytes(frame))
        is_over = connection.service.loop.time() >= self._ends_at
        if (self.is_pending or is_over) and not _may_come_before(frame):
            reason = "its login has ended" if is_over else "it has not logged in"
            raise ProtocolError(f"{reason}, and asks for something else than a login")
        return dispatch(connection, frame, owned=owned)

    # ---- for the handlers

    def mechanisms(self) -> list[str]:
        return list(self._logins.mechanisms)

    def choose(self, mechanism: str, *, bare: bool) -> None:
        """Begin a login; UNSUPPORTED_SASL_MECHANISM for a mechanism that this listener does not offer."""
        self._login = None
        if mechanism not in self._logins.mechanisms:
            if self.is_pending:
                self._connection.close_after_refusal()
            raise BrokerError(
                f"this listener offers {', '.join(self._logins.mechanisms)}",
                code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            )
        self._is_bare = bare
        self._login = self._logins.authenticator.begin(mechanism, host=self._connection.facts.peer_host)

    async def take(self, data: bytes) -> tuple[bytes, int]:
        """The answer to a message, and for how many ms a login that succeeded holds; 0: without an end."""
        login, connection = self._login, self._connection
        if login is None:
            connection.close_after_refusal()
            raise BrokerError("SaslHandshake comes first", code=ErrorCode.ILLEGAL_SASL_STATE)
        try:
            step = await login.step(data)
            if step.authenticated is not None:
                self._check_same(step.authenticated.principal)
        except BaseException:
            self._login = None
            connection.close_after_refusal()
            raise
        if step.authenticated is None:
            return step.data, 0
        self._login = None
        self.end()
        lifetime_ms = self._begin_lifetime(step.authenticated)
        known = connection.access.session
        session = step.authenticated.session(
            host=connection.facts.peer_host, listener=known.listener, encrypted=known.encrypted
        )
        connection.log_in(session, watched=bool(lifetime_ms))
        return step.data, lifetime_ms

    # ---- inside

    def _begin_lifetime(self, found: Authenticated) -> int:
        """For how many ms this login holds: until its proof ends, and as long as the listener lets it."""
        service, most = self._connection.service, self._logins.session_ms_max
        left = None if found.expires_at_ms is None else max(found.expires_at_ms - service.clock.now_ms(), 1)
        lifetime_ms = most if left is None else left if not most else min(left, most)
        if left is not None:
            self._timer = service.loop.call_later(left / 1000, self._over)
        self._ends_at = service.loop.time() + lifetime_ms / 1000 if lifetime_ms else float("inf")
        return lifetime_ms

    def _check_same(self, principal: Principal) -> None:
        """A connection belongs to one user: another user opens another connection."""
        known = self._connection.access.session
        if known.mechanism and known.principal != principal:
            raise AuthenticationFailed("a connection cannot change its user. Connect again")

    def _late(self) -> None:
        self._timer = None
        self._connection.refuse_login("it did not log in in time")

    def _over(self) -> None:
        """What the client proved itself by has ended, and it did not log in again."""
        self._timer = None
        self._connection.refuse_login("its login has ended")

    def _serve_bare(self, connection: Connection, message: bytes) -> Reply:
        reply = HeldReply(connection.unhold)
        connection.service.start("kafka-login", self._run_bare(message, reply))
        return reply

    async def _run_bare(self, message: bytes, reply: HeldReply) -> None:
        connection = self._connection
        try:
            data, _ = await self.take(message)
        except BrokerError:  # there is no room for an error in this form: the connection just ends
            reply.complete(b"")
        except Exception as error:
            connection.failed(error)
            reply.complete(b"")
        except BaseException:
            connection.abort()
            reply.complete(b"")
            raise
        else:
            reply.complete(_SIZE.pack(len(data)) + data)


def _may_come_before(frame: memoryview) -> bool:
    """Whether a request is one of those that are served without a login."""
    return len(frame) >= _KEY.size and _KEY.unpack_from(frame)[0] in _SERVED_BEFORE
