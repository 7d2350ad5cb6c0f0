"""/health and /health/ready: is the process alive, and may clients be sent to it."""

from __future__ import annotations

import msgspec

from tailrace.http.error import Code, HttpError
from tailrace.http.operation import Call, NoBody, NoQuery, Operation


class Health(msgspec.Struct, frozen=True):
    """A node that answers."""

    status: str
    version: str
    uptime_s: float


async def health(call: Call[NoQuery, NoBody]) -> Health:
    """Alive is who answers."""
    return _health(call, "ok")


async def ready(call: Call[NoQuery, NoBody]) -> Health:
    if call.service.is_stopping:
        raise HttpError(Code.BROKER_NOT_AVAILABLE, "the node is stopping")
    failure = call.service.metrics.failure
    if failure is not None:
        raise HttpError(Code.CLUSTER_UNHEALTHY, f"the broker failed: {failure}")
    return _health(call, "ready")


def _health(call: Call[NoQuery, NoBody], status: str) -> Health:
    service = call.service
    uptime_ms = service.clock.now_ms() - service.started_ms
    return Health(status=status, version=service.facts.version, uptime_s=round(max(uptime_ms, 0) / 1000, 1))


OPERATIONS = (
    Operation(
        method="GET",
        path="/health",
        name="getHealth",
        tag="health",
        summary="Whether the node is alive",
        handler=health,
        answer=Health,
    ),
    Operation(
        method="GET",
        path="/health/ready",
        name="getReadiness",
        tag="health",
        summary="Whether clients may be sent here",
        doc="503 while the node stops, and after it failed.",
        handler=ready,
        answer=Health,
        fails=(Code.BROKER_NOT_AVAILABLE, Code.CLUSTER_UNHEALTHY),
    ),
)
