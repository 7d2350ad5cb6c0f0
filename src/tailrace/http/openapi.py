"""/openapi.json: the table of operations, as OpenAPI 3.1 has it.

Schemas come from the same Structs that requests are checked with and answers are written from, so there is
nothing to keep in step by hand. What JSON Schema cannot say (a topic must exist) is said in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tailrace.http.error import STATUS, Code
from tailrace.http.operation import JSON, NoBody, Operation

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_EVERYWHERE = (Code.INVALID_REQUEST, Code.AUTHORIZATION_FAILED, Code.INTERNAL)
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {
                "code": {"type": "string", "enum": [str(code) for code in Code]},
                "message": {"type": "string"},
                "details": {"type": "object"},
            },
        }
    },
}
_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "topic": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"},
    "partition": {"type": "integer", "minimum": 0},
}


def write_openapi(operations: Iterable[Operation], *, version: str, prefix: str = "") -> dict[str, Any]:
    """The document; `prefix` is where the app is mounted, "" if nowhere."""
    shown = list(operations)
    schemas = _Schemas(shown)
    paths: dict[str, dict[str, Any]] = {}
    for operation in shown:
        path = _PARAMETER.sub(r"{\1}", operation.path)  # without the kind that the router wants to know
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tailrace",
            "version": version,
            "summary": "A message broker that speaks Kafka's protocol, by HTTP",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {"schemas": {**schemas.components, "Error": _ERROR_SCHEMA}},
    }


class _Schemas:
    """Every type of the table, described once."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        types = [each.body for each in operations if each.body is not NoBody]
        types += [each.answer for each in operations if each.answer is not None]
        described, self.components = msgspec.json.schema_components(types, ref_template=_REF)
        self._of = dict(zip(map(_key, types), described, strict=True))

    def of(self, kind: Any) -> dict[str, Any]:
        return self._of[_key(kind)]


def _key(kind: Any) -> str:
    return repr(kind)


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    written: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": _responses(operation, schemas),
    }
    if operation.deprecated:
        written["deprecated"] = True
    if operation.doc:
        written["description"] = operation.doc
    if parameters := [*_path_parameters(operation), *_query_parameters(operation)]:
        written["parameters"] = parameters
    if operation.body is not NoBody:
        others = {
            media: {"schema": {"type": "string", "description": doc}}
            for media, doc in operation.takes.items()
        }
        written["requestBody"] = {
            "required": not operation.body_may_be_empty,
            "content": {JSON: {"schema": schemas.of(operation.body)}, **others},
        }
    return written


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    success: dict[str, Any] = {"description": operation.summary}
    content = {
        media: {"schema": {"type": "string", "description": doc}} for media, doc in operation.gives.items()
    }
    if operation.answer is not None:
        content = {JSON: {"schema": schemas.of(operation.answer)}, **content}
    if content:
        success["content"] = content
    responses = {str(operation.status): success}
    by_status: dict[int, list[str]] = {}
    for code in (*_EVERYWHERE, *operation.fails):
        by_status.setdefault(STATUS[code], []).append(code)
    if _PARAMETER.search(operation.path):
        by_status.setdefault(404, []).append(Code.INVALID_REQUEST)  # a name that is no part of a path
    if operation.method not in ("GET", "HEAD"):
        by_status.setdefault(409, []).append(Code.INVALID_REQUEST)  # it makes sense, and not now
    if operation.body is not NoBody:
        by_status.setdefault(408, []).append(Code.INVALID_REQUEST)
        by_status.setdefault(413, []).append(Code.MESSAGE_TOO_LARGE)
        by_status.setdefault(415, []).append(Code.INVALID_REQUEST)
    for status, codes in sorted(by_status.items()):
        responses[str(status)] = {
            "description": ", ".join(dict.fromkeys(codes)),
            "content": {JSON: {"schema": {"$ref": _REF.format(name="Error")}}},
        }
    return responses


def _path_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in _PARAMETER.findall(operation.path):
        schema = _PATH_SCHEMAS.get(name, {"type": "string", "minLength": 1})
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    described = msgspec.json.schema_components([operation.query])[1]
    schema = described[operation.query.__name__]
    for name, each in schema.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": each}
