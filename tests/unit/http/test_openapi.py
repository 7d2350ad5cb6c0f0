"""/openapi.json: a document that describes every route that is served, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

import httpx
import msgspec
import pytest
from starlette.routing import Route
from tests.unit.http.conftest import Run

from tailrace import __version__
from tailrace.http.error import Code
from tailrace.http.openapi import write_openapi
from tailrace.http.operation import JSON, NDJSON, Call, NoBody, NoQuery, Operation
from tailrace.server.node import Node


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: Annotated[int, msgspec.Meta(ge=0)]
    text: str | None = None


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class Answer(msgspec.Struct, frozen=True):
    found: list[Body]


async def handler(call: Call[NoQuery, NoBody]) -> None: ...


def operation(**more: Any) -> Operation:
    row = {
        "method": "GET",
        "path": "/x/{topic}",
        "name": "getX",
        "tag": "x",
        "summary": "An x",
        "handler": handler,
        "answer": Answer,
    }
    return Operation(**{**row, **more})


def described(**more: Any) -> dict[str, Any]:
    row = operation(**more)
    document = write_openapi([row], version="1")
    found: dict[str, Any] = document["paths"][row.path][row.method.lower()]
    return found


def references(value: object) -> Iterator[str]:
    """Every $ref below a value."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


# ---- one operation


def test_parameters_of_path_and_query_are_described() -> None:
    parameters = described(query=Query)["parameters"]
    assert [(each["name"], each["in"], each["required"]) for each in parameters] == [
        ("topic", "path", True),
        ("at", "query", True),
        ("text", "query", False),
    ]
    assert parameters[0]["schema"]["pattern"] == "^[A-Za-z0-9._-]{1,249}$"
    assert parameters[1]["schema"] == {"type": "integer", "minimum": 0}


def test_a_body_and_what_else_is_taken_are_described() -> None:
    found = described(method="POST", body=Body, takes={NDJSON: "a line each"})
    content = found["requestBody"]["content"]
    assert content[JSON]["schema"] == {"$ref": "#/components/schemas/Body"}
    assert content[NDJSON]["schema"] == {"type": "string", "description": "a line each"}
    assert found["requestBody"]["required"] is True
    assert {"408", "413", "415"} <= found["responses"].keys()


def test_who_takes_no_body_describes_none() -> None:
    found = described()
    assert "requestBody" not in found
    assert not {"408", "413", "415"} & found["responses"].keys()


def test_answers_are_described_by_status() -> None:
    responses = described(method="POST", status=201, fails=(Code.TOPIC_NOT_FOUND, Code.INVALID_CONFIG))[
        "responses"
    ]
    assert responses["201"]["content"][JSON]["schema"] == {"$ref": "#/components/schemas/Answer"}
    assert responses["400"]["description"] == "INVALID_REQUEST, INVALID_CONFIG"
    assert "TOPIC_NOT_FOUND" in responses["404"]["description"]
    for status in ("400", "403", "404", "409", "500"):
        assert responses[status]["content"][JSON]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_an_answer_without_a_body_has_no_content() -> None:
    assert "content" not in described(answer=None, status=204)["responses"]["204"]


def test_a_mounted_app_says_where_it_is() -> None:
    assert write_openapi([operation()], version="1")["servers"] == [{"url": "/"}]
    assert write_openapi([operation()], version="1", prefix="/b")["servers"] == [{"url": "/b"}]


# ---- all of them


@pytest.fixture
def document(run: Run, client: httpx.AsyncClient) -> dict[str, Any]:
    answer = run(client.get("/openapi.json"))
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    return found


def test_the_document_is_of_this_version(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == __version__


def test_what_is_served_is_described_and_the_other_way_round(document: dict[str, Any], node: Node) -> None:
    assert node._http is not None
    served = {
        (method.lower(), re.sub(r":\w+}", "}", route.path))
        for route in node._http._app._router.routes
        if isinstance(route, Route) and (route.path.startswith(("/api/", "/health", "/metrics")))
        for method in route.methods or ()
        if method != "HEAD"
    }
    written = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert served == written


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    wanted = set(references(document))
    assert wanted == {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def test_every_operation_has_a_name_of_its_own_and_says_what_it_does(document: dict[str, Any]) -> None:
    rows = [row for methods in document["paths"].values() for row in methods.values()]
    names = [row["operationId"] for row in rows]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+[A-Za-z]*", name) for name in names)
    for row in rows:
        assert row["summary"] and not row["summary"].endswith("."), row["operationId"]
        assert len(row["tags"]) == 1


def test_every_error_code_is_in_the_description_of_an_error(document: dict[str, Any]) -> None:
    error = document["components"]["schemas"]["Error"]["properties"]["error"]
    assert error["properties"]["code"]["enum"] == [str(code) for code in Code]
    assert json.dumps(document).count('"#/components/schemas/Error"') > len(document["paths"])
