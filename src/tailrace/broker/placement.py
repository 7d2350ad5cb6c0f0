"""Which nodes hold a partition: decided by the SHA-256 of the topic's name, the same on every node.

The name picks the node of partition 0; the others follow the ring of node ids from there, and the replicas of
each follow its leader. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from tailrace.model import BrokerError, BrokerId, ErrorCode

Assignment = Mapping[int, Sequence[BrokerId]]
"""By partition: the nodes that hold it, the preferred leader first."""


def plan_placement(
    name: str, nodes: Sequence[BrokerId], *, first: int, count: int, replication_factor: int
) -> dict[int, tuple[BrokerId, ...]]:
    """Nodes for `count` partitions from number `first` on."""
    ring = sorted(nodes)
    if not 1 <= replication_factor <= len(ring):
        raise BrokerError(
            f"replication factor {replication_factor} is not possible with {len(ring)} node(s)",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    return {
        partition: tuple(ring[(start + partition + place) % len(ring)] for place in range(replication_factor))
        for partition in range(first, first + count)
    }


def check_assignment(assignment: Assignment, nodes: Sequence[BrokerId], *, first: int) -> None:
    """Whether somebody's own assignment names every partition from `first` on, and nodes that exist."""
    if sorted(assignment) != list(range(first, first + len(assignment))):
        raise _refused(f"partitions {sorted(assignment)} are not numbered from {first} on without a gap")
    sizes = {len(replicas) for replicas in assignment.values()}
    if len(sizes) != 1 or sizes == {0}:
        raise _refused("every partition needs the same number of replicas, at least one")
    for partition, replicas in assignment.items():
        unknown = [node for node in replicas if node not in nodes]
        if unknown:
            raise _refused(f"partition {partition} names node {unknown[0]}, which is not in the cluster")
        if len(set(replicas)) != len(replicas):
            raise _refused(f"partition {partition} names a node twice")


def _refused(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)
