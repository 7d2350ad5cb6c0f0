"""What a session may do to what: the operations and resources of Kafka's access control lists (KIP-11).

The numbers are Kafka's own, because clients send and receive them. A subscription is a resource of ours: its
number lies far above Kafka's.
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
    ResourceKind.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceKind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that Kafka knows for a kind of resource (KIP-430 tells clients which they may do)."""

CLUSTER = Resource(ResourceKind.CLUSTER, "kafka-cluster")
