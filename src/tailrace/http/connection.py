"""The sockets of the HTTP listener: uvicorn's protocols, with the bounds that they lack.

uvicorn parses requests (httptools) and WebSocket frames (websockets) and calls the app. What is added
here is what an acceptor needs of every connection, and an end for each way to keep one for nothing:

    idle ----first byte----> head ----its last----> body ----its last----> idle
    idle_timeout_s           head_timeout_s         whoever reads it has deadlines of its own;
                                                    head_timeout_s, once the request was answered

- What is not a body has `head_bytes_max`: a head, the trailers of a body, empty lines between requests.
- While a request is answered no clock runs: the client waits for us.
- While an answer waits for a client that does not read, its next request is not served, and what waits counts
  as unread, of which the node has a bound (`net/unread.py`).
- A client that takes nothing of what waits for it is given up: soon if the connection closes anyway, after
  some idle times if it does not, since a live stream may well be paused.
- A message of a WebSocket has `FRAGMENTS_MAX`, beside the bound on its bytes, and `request_timeout_s`.
- The bytes of a WebSocket are counted until the app receives them; without room for more, it is not read.
- What breaks the rules is answered once, in our form, and never in the middle of another answer.
- Whoever still works for a client that is gone is told, also where several requests came at once.

A connection that upgrades to WebSocket stays the one that the acceptor knows, and hands its socket on.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame
from websockets.http11 import Request as WebSocketRequest

from tailrace.http.config import HttpConfig
from tailrace.http.error import Code, HttpError
from tailrace.http.intake import Intake
from tailrace.http.session import ENCRYPTED_KEY, LISTENER, SESSION_KEY, LoggedIn
from tailrace.model.session import Principal
from tailrace.net import (
    ConnectionFacts,
    ListenerCounters,
    ListenerUnread,
    RequestBudget,
    facts_of,
    half_close,
)
from tailrace.net.folded_log import FoldedLog
from tailrace.net.stranger import TLS_ON_PLAIN, is_tls
from tailrace.net.tls import ServerTls, first_session
from tailrace.security import Authenticated

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

_NEVER = float("inf")
_IDLE, _HEAD, _BODY = range(3)
_STALLED_IDLE_TIMES: Final = 4
"""How many idle times a client may leave a live stream unread."""

FRAGMENTS_MAX: Final = 4096
"""Frames of which one message of a WebSocket may be made; of 256 bytes each they are `body_bytes_max`."""

_TOO_BIG: Final = 1009  # RFC 6455 section 7.4.1
_NOT_COMPLETED: Final = "ASGI callable returned without completing response."
_END_OF_AUTHORITY: Final = re.compile(rb"[/?#]")
_GOODBYE_S: Final = 1.0
"""How long a client by TLS, which has no half-closed connections, may take to read a refusal."""
_PHRASES: Final = {400: "Bad Request", 431: "Request Header Fields Too Large", 501: "Not Implemented"}


class Shared:
    """What all connections of a listener are made with."""

    def __init__(
        self,
        app: ASGIApp,
        config: HttpConfig,
        counters: ListenerCounters,
        socket_budget: Callable[[str], RequestBudget],
        unread: ListenerUnread,
        *,
        name: str = LISTENER,
        tls: ServerTls | None = None,
    ) -> None:
        """`socket_budget` says which share the messages of a WebSocket draw on, by its path."""
        self.name = name
        self.tls = tls
        self.strangers = FoldedLog(logger)
        self.unread = unread
        self.socket_budget = socket_budget
        self.config = config
        self.counters = counters
        self.state = _DatedState()
        self.logger = _quiet_logger()
        self.uvicorn = Config(
            app,
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # who calls is who connected
            lifespan="off",
            ws="websockets-sansio",
            ws_max_size=config.body_bytes_max,
            ws_per_message_deflate=False,  # a small message may be a large one compressed
        )
        self.uvicorn.load()


class HttpConnection(HttpToolsProtocol):
    """One connection: HTTP, and WebSocket once it was upgraded."""

    def __init__(
        self,
        shared: Shared,
        *,
        on_made: Callable[[HttpConnection], bool],
        on_lost: Callable[[HttpConnection], None],
    ) -> None:
        super().__init__(shared.uvicorn, shared.state, {}, asyncio.get_running_loop())
        self.logger = shared.logger
        self.timeout_keep_alive = shared.config.idle_timeout_s  # type: ignore[assignment]
        self._shared = shared
        self._on_made = on_made
        self._on_lost = on_lost
        self._facts: ConnectionFacts | None = None
        self._phase = _IDLE
        self._since = self.loop.time()  # the phase began, or something last went on
        self._dry_bytes = 0  # since the last byte of a body, or the end of a head
        self._unsent_bytes = 0  # as the last sweep found them
        self._is_deaf = False  # what still comes is not listened to
        self._unanswered: list[RequestResponseCycle] = []  # in order; may begin with some that are by now
        self._socket: WebSocketConnection | None = None
        self._is_lost = False
        self._kept: list[tuple[RequestResponseCycle, Any]] = []  # not begun: an earlier answer is unread
        self._known: dict[str, object] = {}  # what the scope of every request has, by TLS
        self.principal: Principal | None = None  # of its certificate

    def __repr__(self) -> str:
        kind = "HTTP" if self._socket is None else "WebSocket"
        return f"<HttpConnection {self.facts} {kind}>"

    @property
    def facts(self) -> ConnectionFacts:
        """Who talks to whom."""
        if self._facts is None:
            self._facts = facts_of(self.transport, listener=LISTENER)
        return self._facts

    @property
    def known(self) -> Mapping[str, object]:
        """What the scope of every request has, by TLS."""
        return self._known

    @property
    def _is_answering(self) -> bool:
        """uvicorn's cycle is the newest request, which is answered last."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_streaming(self) -> bool:
        """Whether it is a WebSocket, or has an answer under way whose end nobody knows."""
        if self._socket is not None:
            return True
        return any(each.chunked_encoding for each in self._unanswered if not each.response_complete)

    @property
    def untaken(self) -> int:
        """What the client has not taken: bytes that wait for it, and one for a goodbye without an answer."""
        says_goodbye = self._socket is not None and self._socket.close_sent
        return self.transport.get_write_buffer_size() + says_goodbye

    @property
    def buffered_bytes(self) -> int:
        """What waits for the client in our memory."""
        return self.transport.get_write_buffer_size()

    # ---- the transport's side

    def pause_writing(self) -> None:
        super().pause_writing()
        self.note_unread()

    def note_unread(self) -> None:
        """The client does not read what was written."""
        self._shared.unread.note(self, self.buffered_bytes)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._shared.unread.forget(self)
        kept, self._kept = self._kept, []
        for cycle, app in kept:
            self._start_asgi_task(cycle, app)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Serve a request, unless an answer is unread: a client may ask for much in few bytes."""
        if self.flow.write_paused:
            self.flow.pause_reading()
            self._kept.append((cycle, app))
        else:
            super()._start_asgi_task(cycle, app)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        if not self._on_made(self) or not self._is_admitted():
            self.transport.abort()

    def _is_admitted(self) -> bool:
        """Whether the certificate of the client, if one is demanded, lets it in."""
        tls = self._shared.tls
        if tls is None:
            return True
        session = first_session(tls, self.transport, self.facts, listener=self._shared.name)
        if session is None:
            return False
        self._known[ENCRYPTED_KEY] = True
        if session.mechanism:
            self.principal = session.principal
            self._known[SESSION_KEY] = LoggedIn(
                Authenticated(session.principal, session.mechanism), session.listener
            )
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._kept.clear()
        self._shared.unread.forget(self)
        self._tell_gone()
        super().connection_lost(exc)
        if self._socket is not None:
            self._socket.connection_lost(exc)
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf or self.transport.is_closing():
            return
        if not self._dry_bytes and is_tls(data[:2]) and self._shared.tls is None:
            self._tell_of_tls()
        self._dry_bytes += len(data)
        super().data_received(data)
        if self._dry_bytes > self._shared.config.head_bytes_max:
            self._refuse(431, "the head of the request is too large")

    def _tell_of_tls(self) -> None:
        shared, facts = self._shared, self.facts
        shared.strangers.warn(
            "connection refused: %s on listener %s: %s",
            facts,
            shared.name,
            TLS_ON_PLAIN,
            subject=facts.peer_host,
            now=self.loop.time(),
        )

    # ---- the parser's side

    def on_message_begin(self) -> None:
        self._phase, self._since = _HEAD, self.loop.time()
        super().on_message_begin()
        self.scope.update(self._known)  # type: ignore[typeddict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == _HEAD:  # a trailer must not change what was checked already
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # One that comes in one piece is complete before anybody could count it.
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._shared.config.head_bytes_max:
            self._refuse(431, "the head of the request is too large")
            raise ValueError("the parser shall stop here")
        if not self._names_its_host():
            self._refuse(400, "the target of the request names another host than its Host header")
            raise ValueError("the parser shall stop here")
        if any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in self.headers):
            self._refuse(501, "the only transfer coding that is understood is chunked")
            raise ValueError("the parser shall stop here")
        before = self.cycle
        super().on_headers_complete()
        self._phase, self._dry_bytes = _BODY, 0
        if self.cycle is not before:
            open_ones = [each for each in self._unanswered if not each.response_complete]
            self._unanswered = [*open_ones, self.cycle]

    def _names_its_host(self) -> bool:
        """Whether a target in absolute form names the host of the Host header (RFC 9112 section 3.2.2).

        A proxy may have chosen the host by the one, and we check the other.
        """
        if self.url.startswith(b"/"):
            return True
        scheme, separator, rest = self.url.partition(b"://")
        if not separator:
            return True  # no absolute form: `*`, or an authority, which no operation has
        authority = _END_OF_AUTHORITY.split(rest, maxsplit=1)[0]
        hosts = [value for name, value in self.headers if name == b"host"]
        return scheme.lower() in (b"http", b"https") and [each.lower() for each in hosts] == [
            authority.lower()
        ]

    def on_body(self, body: bytes) -> None:
        self._dry_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase, self._since, self._dry_bytes = _IDLE, self.loop.time(), 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn says in plain text, in our form."""
        self._refuse(400, msg)

    def _refuse(self, status: int, message: str) -> None:
        if self._is_deaf or self.transport.is_closing():
            return
        self._is_deaf, self._since = True, self.loop.time()
        self._shared.counters.protocol_errors += 1
        if self._is_answering and self._phase != _BODY:
            self.cycle.keep_alive = False  # what was asked before is answered, and then it closes
            return
        is_begun = len(self._unanswered) > 1 or (self._is_answering and self.cycle.response_started)
        self._tell_gone()
        if not is_begun:
            self.transport.write(_refusal(status, message))
        # Closing here would throw away what still comes, and with it the answer (RFC 9112 section 9.6).
        if not half_close(self.transport):
            self.loop.call_later(_GOODBYE_S, self.transport.close)

    def _tell_gone(self) -> None:
        """Whoever answers hears that nobody waits; uvicorn tells the newest only."""
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._unanswered.clear()

    # ---- WebSocket

    def handle_websocket_upgrade(self) -> None:
        if self._is_answering:
            self.transport.abort()  # two protocols at once cannot be spoken
            return
        super().handle_websocket_upgrade()
        if self._socket is not None and not self._socket.handshake_initiated:
            # The head goes through a second parser, which has smaller bounds and says nothing.
            self._refuse(431, "the head of the request is too large for a WebSocket")

    @property
    def ws_protocol_class(self) -> Any:
        """What takes over after an upgrade; uvicorn calls it with what it would give its own."""

        def make(**_: object) -> WebSocketConnection:
            self._socket = WebSocketConnection(self._shared, self)
            return self._socket

        return make

    @ws_protocol_class.setter
    def ws_protocol_class(self, _: object) -> None:
        """uvicorn's own choice does not count."""

    # ---- the acceptor's side

    def sweep(self, now: float, *, idle_ticks_max: int) -> None:  # noqa: ARG002
        """Close one that is kept for nothing."""
        if self._socket is not None and self._socket.is_message_late(now):
            self.transport.abort()
            return
        unsent = self.transport.get_write_buffer_size()
        closes = self.transport.is_closing()
        is_busy = not closes and (self._socket is not None or self._is_answering)
        is_busy = is_busy and not (self._is_deaf and not self._unanswered)
        if unsent != self._unsent_bytes or (is_busy and not unsent):
            self._unsent_bytes, self._since = unsent, now
            return
        config = self._shared.config
        if is_busy:
            limit = config.idle_timeout_s * _STALLED_IDLE_TIMES
        else:
            is_ending = closes or self._is_deaf or self._phase != _IDLE
            limit = config.head_timeout_s if is_ending else config.idle_timeout_s
        if now - self._since > limit:
            self.transport.abort()

    def close_unread(self) -> None:
        """Others need the memory of what the client does not read (`net/unread.py`)."""
        self.abort()

    def close_soon(self) -> None:
        """Answer what was asked, and nothing more; a WebSocket's app hears itself that the listener stops."""
        if self._socket is None:
            self.shutdown()

    def abort(self) -> None:
        self.transport.abort()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """The second half of a connection that was upgraded."""

    def __init__(self, shared: Shared, upgraded: HttpConnection) -> None:
        super().__init__(shared.uvicorn, shared.state, {}, asyncio.get_running_loop())
        self.logger = shared.logger
        self._shared = shared
        self._upgraded = upgraded
        self._intake: Intake | None = None  # from the handshake on
        self._fragment_bytes = 0  # of the message that is arriving
        self._message_bytes: deque[int] = deque()  # of messages that the app has not received
        self._unreceived_bytes = 0  # their sum
        self._message_due = _NEVER  # when the message that is arriving must be here

    def connection_lost(self, exc: Exception | None) -> None:
        if self._intake is not None:
            self._intake.close()
        if not self.disconnected:
            super().connection_lost(exc)
            self._upgraded.connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._upgraded.note_unread()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._shared.unread.forget(self._upgraded)

    def data_received(self, data: bytes) -> None:
        if self._intake is None or self._intake.admit(data):
            self._parse(data)
        else:
            self._message_due = _NEVER  # it is not the client that is slow
            self.transport.pause_reading()

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        self._settle_intake()
        if not self.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()  # the intake may have paused it

    def _settle_intake(self) -> None:
        """Count what the parser holds, a message that is arriving, and messages that were not received."""
        if self._intake is None:
            return
        arriving = len(self.conn.reader.buffer) + self._fragment_bytes
        self._intake.settle(arriving + self._unreceived_bytes)
        if not arriving or self.read_paused:
            self._intake.note_arriving(False)
            self._message_due = _NEVER
        elif self._message_due == _NEVER:
            self._intake.note_arriving(True)
            self._message_due = self.loop.time() + self._shared.config.request_timeout_s

    def is_message_late(self, now: float) -> bool:
        """Whether the message that is arriving has had time enough."""
        return now >= self._message_due

    async def receive(self) -> Any:
        message = await super().receive()
        if message["type"] == "websocket.receive":
            self._unreceived_bytes -= self._message_bytes.popleft()
            self._settle_intake()
        return message

    def handle_connect(self, event: WebSocketRequest) -> None:
        path = event.path.partition("?")[0]
        self._intake = Intake(
            self._shared.socket_budget(path),
            self._parse,
            address=self._upgraded.facts.peer_host,
            refuse=self._upgraded.abort,
        )
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            self.scope.update(self._upgraded.known)  # type: ignore[typeddict-item] # before its task runs

    def handle_text(self, event: Frame) -> None:
        self._fragment_bytes = len(event.data)
        super().handle_text(event)

    def handle_bytes(self, event: Frame) -> None:
        self._fragment_bytes = len(event.data)
        super().handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return  # nobody will hear the message
        # websockets bounds the bytes of a message, and empty frames have none.
        if len(self.frames) >= FRAGMENTS_MAX:
            self.frames = []
            self._fragment_bytes = 0
            self.conn.fail(_TOO_BIG, f"a message may have {FRAGMENTS_MAX} fragments")
            self.handle_parser_exception()
            return
        self._fragment_bytes += len(event.data)
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        size, self._fragment_bytes = self._fragment_bytes, 0
        # uvicorn logs what is no UTF-8 with a traceback, and a client can send that all day.
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_text(self.frames):
            self.frames = []
            self.conn.send_close(1007)
            self.handle_parser_exception()
            return
        if not self.close_sent:  # else the message is dropped
            self._message_bytes.append(size)
            self._unreceived_bytes += size
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent and self.initial_response is not None:
            self.handshake_complete = True  # refused with an answer, which uvicorn takes for forgotten


# ---- small parts


class _DatedState(ServerState):
    """Every answer says when it was written (RFC 9110 section 6.6.1), as with uvicorn's own server."""

    def __init__(self) -> None:
        self._second = 0
        self._headers: list[tuple[bytes, bytes]] = []
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._headers = [(b"date", formatdate(second, usegmt=True).encode())]
        return self._headers

    @default_headers.setter
    def default_headers(self, _: list[tuple[bytes, bytes]]) -> None:
        """uvicorn begins with none."""


class _BugsOnly(logging.Filter):
    """A request that ends because its node stops, or since its client takes nothing, is no error."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == _NOT_COMPLETED:
            return False
        return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


_BUGS_ONLY = _BugsOnly()


def _quiet_logger() -> logging.Logger:
    """Where uvicorn's protocols tell of bugs; what clients do wrong is theirs to know."""
    logger = logging.getLogger(f"{__name__}.uvicorn")
    logger.setLevel(logging.ERROR)
    logger.addFilter(_BUGS_ONLY)
    return logger


def _refusal(status: int, message: str) -> bytes:
    """An answer to what is not even a request."""
    body = msgspec.json.encode(HttpError(Code.INVALID_REQUEST, message).body())
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True
