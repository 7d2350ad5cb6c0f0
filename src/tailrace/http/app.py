"""The ASGI application: the table of operations as routes, errors as answers, one request after the other.

    guard -> router -> operation: query, body -> handler -> JSON

It can be mounted in anybody's ASGI app; the listener puts it behind `guard`, which is what keeps a page of
another site from using a broker on this machine.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import Receive, Scope, Send

from tailrace.http.body import read_whole
from tailrace.http.config import HttpConfig
from tailrace.http.error import Code, HttpError, answer_to, invalid
from tailrace.http.mismatch import explain
from tailrace.http.operation import JSON, Call, NoBody, Operation
from tailrace.http.service import HttpService
from tailrace.http.session import session_of
from tailrace.http.throttling import QuotaExceeded, check_debt, meter_of, serve_metered
from tailrace.net import Holding, ListenerCounters, Tally

if TYPE_CHECKING:
    from tailrace.http.console_files import Console

logger = logging.getLogger(__name__)

_SHOWN_MAX = 200
_EMPTY = b"{}"
_FOR_PROGRAMS = ("/api/", "/assets/")
_REASON_BYTES_MAX = 123  # RFC 6455 section 5.5
_OTHER: Final = "other"
"""The name under which requests are counted that came to no operation."""


class HttpApp:
    """REST, live streams, metrics and console of one broker, as one ASGI application."""

    def __init__(
        self,
        service: HttpService,
        operations: Iterable[Operation],
        routes: Iterable[BaseRoute] = (),
        *,
        missing_page: Callable[[Request], Response] | None = None,
        console: Console | None = None,
    ) -> None:
        """`missing_page` tells a person in a browser that there is no such page of the `console`."""
        self.console = console
        self.service = service
        own = [_route(service, each) for each in operations]
        self._missing_page = missing_page
        self._router = Router([*own, *routes], redirect_slashes=False, default=self._not_found)

    def __repr__(self) -> str:
        return f"<HttpApp of {self.service.gate}, {self.service.streams} streams>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.service.counters.requests += 1
        # Inside another app there is its router already, which knows nothing of our paths.
        inner = {**scope, "router": self._router}
        if self.service.trace is not None and scope["type"] == "http":
            await self.service.trace(self._serve, inner, receive, send)
        else:
            await self._serve(inner, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        metering = self.service.metering
        meter = None if metering is None else meter_of(metering, scope)
        try:
            if meter is None:
                await self._router(scope, receive, send)
            else:
                check_debt(meter)
                await serve_metered(self._router, meter, scope, receive, send)
        except (Unserved, QuotaExceeded) as unserved:
            count_refused(self.service.counters, unserved)
            await refuse(unserved, scope, receive, send)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"][:_SHOWN_MAX]
        listed = f"{scope.get('root_path', '')}/openapi.json"
        error = Unserved(Code.INVALID_REQUEST, f"there is no {path}. What there is: {listed}", status=404)
        if self._missing_page is None or not _asks_for_a_page(scope):
            raise error
        count_refused(self.service.counters, error)
        await self._missing_page(Request(scope))(scope, receive, send)


def _asks_for_a_page(scope: Scope) -> bool:
    """Whether a person looks at this: browsers name text/html; programs and curl take anything."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return not path.startswith(_FOR_PROGRAMS) and "text/html" in Request(scope).headers.get("accept", "")


def _route(service: HttpService, operation: Operation) -> Route:
    tally = service.counters.tally(operation.name)

    async def endpoint(request: Request) -> Response:
        started = time.perf_counter()
        response = await answer(request)
        seconds = time.perf_counter() - started  # of a stream: until it begins
        if isinstance(response, LongAnswer):
            response.note_end = partial(_note_end, tally, seconds)
        else:
            tally.note(seconds)
        return response

    async def answer(request: Request) -> Response:
        address = request.client.host if request.client else ""
        held, answering = Holding(service.budget, address), Holding(service.answers, address)
        try:
            access = service.gate.access(session_of(request.scope))
            query = read_query(request, operation.query)
            body = await _read_body(request, operation, service.config, held)
            call = Call(service, access, request, request.path_params, query, body, held, answering)
            found = await operation.handler(call)
        except Exception as error:
            return answer_failed(error, request)  # no name here for what it says: it knows this frame
        finally:
            held.release()
            answering.release()
        return found if isinstance(found, Response) else json_response(found, status=operation.status)

    def answer_failed(error: Exception, request: Request) -> Response:
        known = failure_of(error, service, what=f"{request.method} {request.url.path}")
        tally.fail(known.code)
        return error_response(known)

    return OneMethod(operation.path, endpoint, methods=[operation.method], name=operation.name)


def _note_end(tally: Tally, seconds: float, failure: Code | None) -> None:
    tally.note(seconds)
    if failure is not None:
        tally.fail(failure)


class LongAnswer(Response):
    """An answer that can fail when it has begun, so that it is counted when it ends: it calls `note_end`."""

    note_end: Callable[[Code | None], None]


class Unserved(HttpError):
    """No operation takes a request."""


class OneMethod(Route):
    """A route that answers a wrong method as every error is, and takes its path to the last letter."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        # `$` lets a newline follow, and `.` is none: DELETE .../consumer-groups/a%0A would delete group a.
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.methods and scope["method"] not in self.methods:
            allowed = ", ".join(sorted(_methods_of(scope)))
            raise Unserved(
                Code.INVALID_REQUEST,
                f"{scope['path'][:_SHOWN_MAX]} takes {allowed}, and not {scope['method']}",
                status=405,
                headers={"allow": allowed},
            )
        await self.app(scope, receive, send)


def _methods_of(scope: Scope) -> set[str]:
    """What the path of a request can be asked with."""
    methods: set[str] = set()
    for route in scope["router"].routes:
        if isinstance(route, Route) and route.methods and route.matches(scope)[0] is not Match.NONE:
            methods |= route.methods
    return methods


# ---- reading


def read_query(request: Request, kind: type[msgspec.Struct]) -> Any:
    """The parameters as a Struct; INVALID_REQUEST names the one that is wrong."""
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) < len(pairs):
        raise invalid("a parameter is given twice")
    fields = set(kind.__struct_encode_fields__)
    if unknown := sorted(given.keys() - fields):
        known = ", ".join(sorted(fields)) or "none"
        raise invalid(f"there is no parameter {unknown[0][:_SHOWN_MAX]!r}. There are: {known}")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(explain(error, kind, what="parameter")) from error


async def _read_body(request: Request, operation: Operation, config: HttpConfig, held: Holding) -> Any:
    if operation.body is NoBody:
        return NoBody()
    media = media_type(request)
    if media in operation.takes:
        return None  # the handler reads it
    if media not in ("", JSON):
        kinds = " or ".join((JSON, *operation.takes))
        raise HttpError(
            Code.INVALID_REQUEST,
            f"{media[:_SHOWN_MAX]} is not read here. Send {kinds}, and say so: -H 'Content-Type: {JSON}'",
            status=415,
        )
    data = await read_whole(request, config, held)
    # A body of which everything may be left out may be left out as well.
    return read_json(data or _EMPTY if operation.body_may_be_empty else data, operation.body)


def read_json(data: bytes, kind: Any) -> Any:
    """A JSON text as a value of a type; INVALID_REQUEST says where it is not one."""
    if not data:
        raise invalid("there is no body. Send JSON")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise invalid(explain(error, kind, what="body")) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise invalid(f"the body is not JSON: {error}") from error


def media_type(request: Request) -> str:
    """What a body is said to be, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


# ---- answering


def json_response(value: Any, *, status: int = 200) -> Response:
    """A value as JSON; None is an answer without a body."""
    if value is None:
        return Response(status_code=204)
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


def failure_of(error: Exception, service: HttpService, *, what: str) -> HttpError:
    """What a client is told of an error; a bug is counted and logged, and nothing of it told."""
    known = answer_to(error)
    if known is None:
        logger.error("%s failed", what, exc_info=error)
        service.counters.failures += 1
        known = HttpError(Code.INTERNAL, "this is a bug of the broker; its log has the details")
    return known


def error_response(error: HttpError) -> Response:
    """An error as its client sees it."""
    return Response(
        msgspec.json.encode(error.body()), status_code=error.status, media_type=JSON, headers=error.headers
    )


def count_refused(counters: ListenerCounters, error: HttpError) -> None:
    """A request, or the beginning of a WebSocket, is refused before it comes to an operation."""
    tally = counters.tally(_OTHER)
    tally.requests += 1
    tally.fail(error.code)


async def refuse(error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or the beginning of a WebSocket, with an error."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": close_reason(str(error))})
        return
    await error_response(error)(scope, receive, send)


def close_reason(text: str) -> str:
    """As much of a reason as goes with the close of a WebSocket."""
    return text.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
