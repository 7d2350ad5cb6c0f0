"""WebSockets: a tail at /api/v1/topics/{topic}/tail, and native sessions at /api/v1/ws.

The handshake is refused with the answer that a GET would get. Afterwards a socket ends with a code and a
reason: 1000 the tail is over, 1001 the node stops, 1002 the native protocol was broken, 1008 a message that
a tail does not understand or a right that was revoked, 1011 a mistake of ours, 1013 the client was too slow.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from tailrace.http.app import close_reason, count_refused, failure_of, read_query, refuse
from tailrace.http.error import Code, HttpError
from tailrace.http.live.ring import Run
from tailrace.http.live.start import TailQuery, open_tail
from tailrace.http.live.tail import Portion, Tail, TailEnded, TailFailed, TailRefused
from tailrace.http.service import NATIVE_PATH, HttpService
from tailrace.http.session import LISTENER, session_of
from tailrace.net import ConnectionFacts

_DONE = 1000
_GOING_AWAY = 1001
_POLICY = 1008
_MISTAKE = 1011
_MESSAGES_MAX = 4_000  # that all tails together send before they rest
_MESSAGES_MIN = 8  # of one tail


def routes(service: HttpService) -> list[BaseRoute]:
    """The streams that are WebSockets."""

    async def tail(websocket: WebSocket) -> None:
        await _serve_tail(service, websocket)

    async def native(websocket: WebSocket) -> None:
        await _serve_native(service, websocket)

    return [
        WebSocketRoute("/api/v1/topics/{topic}/tail", tail, name="tailTopicWebSocket"),
        WebSocketRoute(NATIVE_PATH, native, name="nativeWebSocket"),
    ]


# ---- a tail


class PauseMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that the client of a tail may say."""

    pause: bool


_read_pause = msgspec.json.Decoder(PauseMessage).decode
_write_text = msgspec.json.Encoder().encode


async def _serve_tail(service: HttpService, websocket: WebSocket) -> None:
    try:
        query: TailQuery = read_query(cast(Request, websocket), TailQuery)
        last_event_id = websocket.headers.get("last-event-id")
        name = websocket.path_params["topic"]
        access = service.gate.access(session_of(websocket.scope))
        stream, tail = await open_tail(service, access, name, query, last_event_id=last_event_id)
    except Exception as error:
        await _deny(websocket, error, service)
        return
    with stream, tail:
        await websocket.accept()
        await TailSocket(websocket, tail, service).serve()


class TailSocket:
    """A tail as texts; its client may pause it."""

    def __init__(self, websocket: WebSocket, tail: Tail, service: HttpService) -> None:
        self._websocket = websocket
        self._tail = tail
        self._service = service
        self._refusal = ""  # why the client's own message ended it

    async def serve(self) -> None:
        listening = asyncio.create_task(self._listen(), name="client of a tail")
        try:
            await self._send_all()
        except WebSocketDisconnect:
            pass
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self) -> None:
        """Take what the client says, until it leaves or makes no sense."""
        while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
            try:
                self._tail.pause(_read_pause(message.get("text") or b"").pause)
            except (msgspec.DecodeError, RecursionError):
                self._refusal = 'a tail understands {"pause": true} and {"pause": false}, and nothing else'
                break
        self._tail.stop("")

    async def _send_all(self) -> None:
        service = self._service
        try:
            while True:
                most = max(_MESSAGES_MAX // max(len(service.tails), 1), _MESSAGES_MIN)
                portion = await self._tail.wait_portion(service.config.keepalive_s, records_max=most)
                if portion is not None:  # signs of life are the server's pings
                    await self._tail.rest(portion, messages=await self._send(portion))
        except TailEnded as end:
            if self._refusal:
                await close(self._websocket, _POLICY, self._refusal)
            elif str(end):
                await self._websocket.send_text(_write_text({"end": str(end)}).decode())
                await close(self._websocket, self._code_of(end), str(end))

    def _code_of(self, end: TailEnded) -> int:
        if self._service.is_stopping:
            return _GOING_AWAY
        if isinstance(end, TailRefused):
            return _POLICY
        return _MISTAKE if isinstance(end, TailFailed) else _DONE

    async def _send(self, portion: Portion) -> int:
        """Send a portion; how many messages it took."""
        messages = write_messages(portion.run)
        if portion.skipped:
            messages = [_skipped(portion.skipped), *messages]
        for message in messages:
            await self._websocket.send_text(message)
        return len(messages)


def write_messages(run: Run) -> list[str]:
    """The texts of a run; what all tails show alike is written once."""
    if run.messages is None:
        run.messages = [
            _skipped(entry.weight) if entry.json is None else f'{{"record":{entry.json.decode()}}}'
            for entry in run.entries
        ]
    return run.messages


def _skipped(count: int) -> str:
    return f'{{"skipped":{count}}}'


# ---- the native session


class AsgiSocket:
    """A WebSocket, as the native listener wants one (`port.MessageSocket`)."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    @property
    def facts(self) -> ConnectionFacts:
        """Who talks to whom; an app around ours may not know."""
        peer_host, peer_port = self._websocket.scope.get("client") or ("", 0)
        local_host, local_port = self._websocket.scope.get("server") or ("", 0)
        return ConnectionFacts(peer_host, peer_port or 0, local_host, local_port or 0, LISTENER)

    async def receive(self) -> bytes | str | None:
        """The next message; None once the client has left."""
        if self._websocket.client_state is WebSocketState.DISCONNECTED:
            return None
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        data: bytes | None = message.get("bytes")
        return text if text is not None else data or b""

    async def send(self, message: bytes | str) -> None:
        """Waits while the client does not read; ConnectionError if it has left."""
        try:
            if isinstance(message, str):
                await self._websocket.send_text(message)
            else:
                await self._websocket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ConnectionResetError("the client has left") from error

    async def close(self, code: int, reason: str) -> None:
        await close(self._websocket, code, reason)


async def _serve_native(service: HttpService, websocket: WebSocket) -> None:
    try:
        stream = service.open_stream()
        open_shell = service.facts.native_shell
        if open_shell is None:
            stream.__exit__()
            raise HttpError(Code.BROKER_NOT_AVAILABLE, "this node has no native listener")
    except HttpError as error:
        await _deny(websocket, error, service)
        return
    with stream:
        await websocket.accept()
        session = session_of(websocket.scope)
        shell = open_shell(AsgiSocket(websocket), session)
        ending = None
        if session.expires_at_ms is not None:  # of the token that the handshake came with
            left_ms = max(session.expires_at_ms - service.clock.now_ms(), 0)
            ending = asyncio.get_running_loop().call_later(left_ms / 1000, shell.close_soon)
        stopping = asyncio.create_task(service.wait_stopping(), name="end of a native WebSocket")
        stopping.add_done_callback(lambda task: None if task.cancelled() else shell.close_soon())
        try:
            await shell.serve()
        finally:
            if ending is not None:
                ending.cancel()
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)


# ---- both


async def _deny(websocket: WebSocket, error: Exception, service: HttpService) -> None:
    """Refuse the handshake, as a request would be refused."""
    known = failure_of(error, service, what=f"WebSocket {websocket.url.path}")
    count_refused(service.counters, known)
    await refuse(known, websocket.scope, websocket.receive, websocket.send)


async def close(websocket: WebSocket, code: int, reason: str) -> None:
    """End a socket with a reason; one that is closed already is left alone."""
    if websocket.application_state is WebSocketState.DISCONNECTED:
        return
    with suppress(WebSocketDisconnect, RuntimeError):
        await websocket.close(code, close_reason(reason))
