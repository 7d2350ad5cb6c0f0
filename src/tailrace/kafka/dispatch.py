"""From a frame to a reply: find the handler, decode, call, encode.

A handler module carries its API's name and is imported when the first such request comes. It offers one of

    take(connection, version, correlation_id, body, owned)    Produce and Fetch: gives the whole reply
    answer(call, body)                                        replies that are kept as bytes: gives the body
    handle(call, request)                                     all others: gives the response message

`answer` and `handle` may be async, and then hold the connection's next request until they are done. An error
that a client can be told of (`ANSWERABLE`) becomes the error code of the response; all others are bugs and
end the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tailrace.kafka.call import Call
from tailrace.kafka.counting import count
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.held import HeldReply
from tailrace.model import ProtocolError
from tailrace.wire.kafka import (
    APIS,
    FETCH,
    PRODUCE,
    Api,
    Message,
    RequestHeader,
    decode,
    encode,
    read_request_header,
    request_type,
    response_type,
    write_response_head,
)

if TYPE_CHECKING:
    from tailrace.kafka.connection import Connection
    from tailrace.kafka.replies import Reply
    from tailrace.kafka.service import KafkaService

Serve = Callable[["Connection", RequestHeader, memoryview], "Reply | None"]
Take = Callable[["Connection", int, int, memoryview, bool], "Reply | None"]

_serving: dict[int, Serve] = {}  # by API key, filled as they are first asked for
_taking: dict[int, tuple[Take, bool]] = {}  # Produce and Fetch, by key << 16 | version; whether flexible
_HEAD = struct.Struct(">hhih")
_CLIENT_ID_AT = 10
_PARKED = frozenset({11, 14})  # JoinGroup and SyncGroup wait for the other members


def dispatch(connection: Connection, frame: memoryview, *, owned: bool) -> Reply | None:
    """Serve one request; None if it is not answered. ProtocolError if the client is to be let go."""
    if len(frame) > _CLIENT_ID_AT:
        key, version, correlation_id, length = _HEAD.unpack_from(frame)
        hot = _taking.get(key << 16 | version)
        if hot is not None:
            take, flexible = hot
            at = _CLIENT_ID_AT + length  # who it is does not matter to them, and is not decoded
            if length >= 0 and at < len(frame) and not (flexible and frame[at]):
                return take(connection, version, correlation_id, frame[at + flexible :], owned)
    header, body = read_request_header(frame)
    if header.api_key in (PRODUCE, FETCH):
        return _load_take(header)(connection, header.api_version, header.correlation_id, body, owned)
    serve = _serving.get(header.api_key) or _load(header.api_key)
    return serve(connection, header, body)


def served_apis() -> list[Api]:
    """The APIs that have a handler."""
    return [api for api in APIS.values() if find_spec(_module_name(api)) is not None]


def _load_take(header: RequestHeader) -> Take:
    take: Take = _import(header.api_key).take
    flexible = APIS[header.api_key].flexible(header.api_version)
    _taking[header.api_key << 16 | header.api_version] = take, flexible
    return take


def _load(key: int) -> Serve:
    module = _import(key)
    serve = _answering(module.answer) if hasattr(module, "answer") else _handling(key, module.handle)
    _serving[key] = serve
    return serve


def _import(key: int) -> ModuleType:
    api = APIS[key]
    if find_spec(_module_name(api)) is None:
        raise ProtocolError(f"{api.name} is not served")
    module = import_module(_module_name(api))
    assert key == module.KEY, f"{module.__name__} says it is API {module.KEY}"
    return module


def _module_name(api: Api) -> str:
    snake = "".join("_" + letter.lower() if letter.isupper() else letter for letter in api.name)
    return f"tailrace.kafka.handlers.{snake[1:]}"


def _answering(answer: Callable[[Call, memoryview], bytes | Coroutine[Any, Any, bytes]]) -> Serve:
    async def wait(
        outcome: Coroutine[Any, Any, bytes], key: int, service: KafkaService, started: float
    ) -> bytes:
        body = await outcome
        count(service, key, None, started=started)
        return body

    def serve(connection: Connection, header: RequestHeader, body: memoryview) -> Reply:
        key, started = header.api_key, connection.service.clock.monotonic()
        outcome = answer(_call(connection, header), body)
        if isinstance(outcome, bytes):
            count(connection.service, key, None, started=started)
            return _frame(header, outcome)
        return _hold(connection, header, wait(outcome, key, connection.service, started))

    return serve


def _handling(key: int, handle: Callable[[Call, Any], Message | Coroutine[Any, Any, Message]]) -> Serve:
    message_type = request_type(key)

    async def wait(
        outcome: Coroutine[Any, Any, Message], version: int, service: KafkaService, started: float
    ) -> bytes:
        try:
            response = await outcome
        except ANSWERABLE as error:
            response = _refusal(key, error)
        count(service, key, response, started=started)
        return encode(response, version)

    def serve(connection: Connection, header: RequestHeader, body: memoryview) -> Reply:
        version, started = header.api_version, connection.service.clock.monotonic()
        request = decode(message_type, version, body)
        try:
            outcome = handle(_call(connection, header), request)
        except ANSWERABLE as error:
            outcome = _refusal(key, error)
        if isinstance(outcome, Message):
            count(connection.service, key, outcome, started=started)
            return _frame(header, encode(outcome, version))
        return _hold(connection, header, wait(outcome, version, connection.service, started))

    return serve


def _call(connection: Connection, header: RequestHeader) -> Call:
    service = connection.service
    return Call(
        connection.access,
        version=header.api_version,
        client_id=header.client_id,
        connection=connection.facts,
        advertised=service.config.advertised,
        replies=service.metadata,
        login=connection.authentication,
    )


def _hold(connection: Connection, header: RequestHeader, body: Coroutine[Any, Any, bytes]) -> HeldReply:
    reply = HeldReply(connection.unhold, waits_for_others=header.api_key in _PARKED)
    connection.service.start(f"kafka-{APIS[header.api_key].name}", _run(connection, header, body, reply))
    return reply


async def _run(
    connection: Connection, header: RequestHeader, body: Coroutine[Any, Any, bytes], reply: HeldReply
) -> None:
    """Wait for a handler. A bug in it, and the end of the listener, cost the connection its life."""
    try:
        answer = _frame(header, await body)
    except Exception as error:
        connection.failed(error)
        answer = b""
    except BaseException:
        connection.abort()
        reply.complete(b"")
        raise
    reply.complete(answer)


def _frame(header: RequestHeader, body: bytes) -> bytes:
    head = write_response_head(header.api_key, header.api_version, header.correlation_id, len(body))
    return head + body


def _refusal(key: int, error: Exception) -> Message:
    """The response that says only that the request failed, and why."""
    code, text = error_of(error)
    response = response_type(key)()
    if not hasattr(response, "error_code"):
        raise error  # its answers carry errors per item: the handler should have said so for each
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = text
    return response
