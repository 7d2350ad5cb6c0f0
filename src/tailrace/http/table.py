"""Everything that HTTP serves, in one list, and the app that is made of it."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.broker.gate import Gate
from tailrace.http import live, rest
from tailrace.http.app import HttpApp, OneMethod
from tailrace.http.config import HttpConfig
from tailrace.http.console_files import Console
from tailrace.http.openapi import write_openapi
from tailrace.http.operation import JSON
from tailrace.http.service import HttpService, NodeFacts
from tailrace.metrics.node_metrics import NodeMetrics
from tailrace.net import RequestBudget

OPERATIONS = (*rest.OPERATIONS, *live.OPERATIONS)


def create_app(
    gate: Gate,
    *,
    config: HttpConfig | None = None,
    facts: NodeFacts,
    metrics: NodeMetrics,
    budget: RequestBudget | None = None,
) -> HttpApp:
    """The app of one node, in the node's loop; `budget` is the service's."""
    service = HttpService(gate, config or HttpConfig(), facts, metrics, budget)
    console = Console()
    routes = [*live.routes(service), _openapi_route(facts), *console.routes()]
    return HttpApp(service, OPERATIONS, routes, missing_page=console.missing_page, console=console)


def _openapi_route(facts: NodeFacts) -> BaseRoute:
    async def serve(request: Request) -> Response:
        prefix = request.scope.get("root_path", "")
        document = write_openapi(OPERATIONS, version=facts.version, prefix=prefix)
        return Response(msgspec.json.encode(document), media_type=JSON)

    return OneMethod("/openapi.json", serve, methods=["GET"], name="openapi")
