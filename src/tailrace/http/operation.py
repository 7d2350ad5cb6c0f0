"""One thing that REST offers: method, path, what goes in, what comes out, what may go wrong.

The table of operations is the only description there is: the router, the checks on query and body, and
/openapi.json are made of it, so that what is documented is what is served.

    POST /api/v1/topics/{topic}/records?partition=0      path parameters, query, body
      -> handler(Call)                                   typed by the Structs of the operation
      -> a Struct, written as JSON with the operation's status, or a Response of its own

Handlers only translate. They find every object of the broker through `Call.access`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request

from tailrace.broker.gate import Access
from tailrace.http.error import Code
from tailrace.http.service import HttpService
from tailrace.net import Holding

Q = TypeVar("Q")
B = TypeVar("B")

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
ARROW_STREAM = "application/vnd.apache.arrow.stream"

TEXT_END = r"$(?!\n)"
"""The end of a pattern. `$` alone is also before a last newline in Python, and not in JSON Schema."""


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation that takes no parameters."""


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation that takes no body; an empty object is none."""


@dataclass(slots=True)
class Call(Generic[Q, B]):
    """One request, checked."""

    service: HttpService
    access: Access  # of the session that asks
    request: Request
    params: Mapping[str, str]  # out of the path
    query: Q
    body: B
    held: Holding  # what the body counts for; released when the request is answered
    answering: Holding  # what a large answer counts for, until it is handed to the socket


Handler = Callable[[Call[Any, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A row of the table."""

    method: str
    path: str
    name: str  # operationId, and the label of its metrics
    tag: str
    summary: str
    handler: Handler
    answer: Any  # the type that is written as JSON; None: there is no body
    doc: str = ""
    query: type[msgspec.Struct] = NoQuery
    body: Any = NoBody  # NoBody: nothing is read; else the type of the JSON
    body_doc: str = ""
    status: int = 200
    fails: tuple[Code, ...] = ()  # beside INVALID_REQUEST and INTERNAL, which everything may fail with
    takes: Mapping[str, str] = field(default_factory=dict)  # other media types that the handler reads itself
    gives: Mapping[str, str] = field(default_factory=dict)  # other media types that it may answer with
    deprecated: bool = False  # an older path of another operation, kept for one release

    @property
    def body_may_be_empty(self) -> bool:
        """Whether a body without a single field would do."""
        if not (isinstance(self.body, type) and issubclass(self.body, msgspec.Struct)):
            return False
        return not any(each.required for each in msgspec.structs.fields(self.body))
