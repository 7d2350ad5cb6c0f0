"""What a session may do to what: the operations and resources of Kafka's access control lists (KIP-11).

The numbers are Kafka's own, because clients send and receive them. A subscription is a resource of ours, and
HISTORY an operation of ours: their numbers lie far above Kafka's, and fit into the byte that has them on the
wire.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple


class Operation(enum.IntEnum):
    """What a request does to a resource."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    TWO_PHASE_COMMIT = 15
    """Transactions without a timeout (KIP-939)."""
    HISTORY = 100
    """Queries over what the tiered engine keeps of all topics."""


class ResourceKind(enum.IntEnum):
    """What can be protected."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    SUBSCRIPTION = 100


class Resource(NamedTuple):
    """One thing that can be protected; the cluster has a fixed name."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        if self.kind is ResourceKind.CLUSTER:
            return self.name
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name!r}"


OPERATIONS_ON: Mapping[ResourceKind, tuple[Operation, ...]] = {
    ResourceKind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceKind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.HISTORY,
    ),
    ResourceKind.SUBSCRIPTION: (
        Operation.READ,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
}
"""The operations that exist for a kind of resource (KIP-430 tells clients which they may do)."""

IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Who may do one of these may do the key as well, as in Kafka's StandardAuthorizer."""

RESERVED_PREFIX = "__"
"""Names that begin so are granted one by one: neither `*` nor a prefix matches them."""

CLUSTER = Resource(ResourceKind.CLUSTER, "kafka-cluster")
