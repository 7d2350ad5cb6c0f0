"""/api/v1/cluster: the nodes and what they hold; /api/v1/cluster/health: how this node is, in a sentence.

Health always answers 200: a node that can say what is wrong with it is reachable. Probes ask /health/ready.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from tailrace.broker.health import Health, Limit, Status, diagnose
from tailrace.http.error import Code
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.metrics.health import count_partitions
from tailrace.model import BrokerError, BrokerId
from tailrace.model.operation import Operation as AclOperation


class NodeView(msgspec.Struct, frozen=True):
    """A node; of another one only its address for Kafka's clients is known."""

    node_id: int
    host: str
    kafka: str  # HOST:PORT; "": there is no such listener
    native: str
    http: str
    version: str | None
    uptime_s: float | None
    is_this: bool


class ClusterView(msgspec.Struct, frozen=True):
    """The cluster, as this node knows it."""

    cluster_id: str
    controller_id: int
    version: str
    nodes: list[NodeView]
    topics: int  # without internal ones
    partitions: int  # of those topics
    groups: int | None  # null: they are still being read
    subscriptions: int
    engine: str  # segment, memory
    fsync: str  # when a write counts as durable
    data_dir: str  # "": the log is in memory
    under_replicated: int  # partitions with a replica that is not in sync
    offline: int  # partitions that nobody can use


class FindingView(msgspec.Struct, frozen=True):
    """What one check found."""

    check: str
    status: Status
    found: str
    advice: str


class HealthView(msgspec.Struct, frozen=True):
    """How the node is."""

    status: Health
    summary: str  # one sentence for people
    limit: Limit  # the resource that is short
    findings: list[FindingView]


# ---- handlers


async def get_cluster(call: Call[NoQuery, NoBody]) -> ClusterView:
    access, facts = call.access, call.service.facts
    cluster = access.cluster(AclOperation.DESCRIBE)
    counts = await count_partitions(access.topics(AclOperation.DESCRIBE))
    return ClusterView(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        version=facts.version,
        nodes=_nodes(call, cluster.node_id),
        topics=counts.topics,
        partitions=counts.partitions,
        groups=_count_groups(call),
        subscriptions=len(access.subscriptions(AclOperation.DESCRIBE)),
        engine=facts.engine,
        fsync=facts.fsync,
        data_dir=facts.data_dir,
        under_replicated=counts.under_replicated,
        offline=counts.offline,
    )


async def get_cluster_health(call: Call[NoQuery, NoBody]) -> HealthView:
    call.access.cluster(AclOperation.DESCRIBE)
    found = diagnose(await call.service.in_time(call.service.metrics.collect_health()))
    return HealthView(
        status=found.status,
        summary=found.summary,
        limit=found.limit,
        findings=[
            FindingView(check=each.check, status=each.status, found=each.found, advice=each.advice)
            for each in found.findings
        ],
    )


def _nodes(call: Call[NoQuery, NoBody], this: BrokerId) -> list[NodeView]:
    service, facts = call.service, call.service.facts
    uptime_ms = max(service.clock.now_ms() - service.started_ms, 0)
    shown = []
    for node in call.access.nodes.values():
        is_this = node.node_id == this
        advertised = _address(node.host, node.port) if node.host else ""
        kafka = advertised or (facts.kafka if is_this else "")
        shown.append(
            NodeView(
                node_id=node.node_id,
                host=kafka.rpartition(":")[0].strip("[]"),
                kafka=kafka,
                native=facts.native if is_this else "",
                http=_own_address(call.request) if is_this else "",
                version=facts.version if is_this else None,
                uptime_s=round(uptime_ms / 1000, 1) if is_this else None,
                is_this=is_this,
            )
        )
    return shown


def _own_address(request: Request) -> str:
    """Where this request came in, which is where the listener is."""
    host, port = request.scope.get("server") or ("", None)
    return _address(host, port) if host and port else ""


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _count_groups(call: Call[NoQuery, NoBody]) -> int | None:
    try:
        return len(call.access.groups(AclOperation.DESCRIBE))
    except BrokerError:
        return None


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/cluster",
        name="getCluster",
        tag="cluster",
        summary="The nodes, and how much they hold",
        handler=get_cluster,
        answer=ClusterView,
    ),
    Operation(
        method="GET",
        path="/api/v1/cluster/health",
        name="getClusterHealth",
        tag="cluster",
        summary="How the node is, and what limits it",
        doc="One sentence for people, and what every check found. Answers 200 however bad it is; probes ask "
        "/health/ready.",
        handler=get_cluster_health,
        answer=HealthView,
        fails=(Code.BROKER_NOT_AVAILABLE,),
    ),
)
