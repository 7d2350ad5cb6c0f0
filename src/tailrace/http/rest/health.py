"""/health and /health/ready: is the process alive, and may clients be sent to it.

A node whose disk is full refuses writes and serves reads; one with a damaged partition refuses appends to it;
one whose clock is not believed expires nothing. Both probes answer 200 then, with the status `degraded` and
the reason. A restart would not help, and a node that is not ready is cut off from its consumers and its
operators, who can make room. Alerts look at /api/v1/cluster/health and the metrics.
"""

from __future__ import annotations

import msgspec

from tailrace.http.error import Code, HttpError
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.http.session import is_stranger


class Health(msgspec.Struct, frozen=True):
    """A node that answers."""

    status: str  # ok or ready; degraded: it serves, and not all of it is as it should be
    uptime_s: float
    version: str = ""  # "": the caller has not logged in, where that is asked
    reason: str = ""  # why it is degraded


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
    impairments = service.metrics.impairments
    return Health(
        status="degraded" if impairments else status,
        version="" if is_stranger(call.request.scope) else service.facts.version,
        uptime_s=round(max(uptime_ms, 0) / 1000, 1),
        reason="; ".join(impairments),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/health",
        name="getHealth",
        tag="health",
        summary="Whether the node is alive",
        doc="200 while the process answers. The status is `degraded`, with the reason, while writes are "
        "refused, a partition is damaged, or the clock is not believed.",
        handler=health,
        answer=Health,
    ),
    Operation(
        method="GET",
        path="/health/ready",
        name="getReadiness",
        tag="health",
        summary="Whether clients may be sent here",
        doc="503 while the node stops, and after it failed. 200 with the status `degraded` as in /health: "
        "reads go on.",
        handler=ready,
        answer=Health,
        fails=(Code.BROKER_NOT_AVAILABLE, Code.CLUSTER_UNHEALTHY),
    ),
)
