"""Placement of partitions on nodes: the same everywhere, spread over the ring, bounded by the nodes."""

from __future__ import annotations

from collections import Counter

import pytest

from tailrace.broker.placement import check_assignment, plan_placement
from tailrace.model import BrokerError, BrokerId, ErrorCode

NODES = [BrokerId(node) for node in (1, 2, 3)]


def test_partitions_follow_the_ring_and_replicas_follow_their_leader() -> None:
    placed = plan_placement("orders", NODES, first=0, count=6, replication_factor=2)
    leaders = [replicas[0] for replicas in placed.values()]
    assert Counter(leaders) == {1: 2, 2: 2, 3: 2}
    assert all(replicas[1] == replicas[0] % 3 + 1 for replicas in placed.values())


def test_the_order_in_which_nodes_are_named_does_not_matter() -> None:
    assert plan_placement("t", NODES, first=0, count=4, replication_factor=3) == plan_placement(
        "t", NODES[::-1], first=0, count=4, replication_factor=3
    )


def test_later_partitions_go_where_they_would_have_gone() -> None:
    whole = plan_placement("t", NODES, first=0, count=5, replication_factor=1)
    later = plan_placement("t", NODES, first=3, count=2, replication_factor=1)
    assert later == {3: whole[3], 4: whole[4]}


@pytest.mark.parametrize("factor", [0, -2, 4])
def test_an_impossible_number_of_replicas_is_refused(factor: int) -> None:
    with pytest.raises(BrokerError) as refused:
        plan_placement("t", NODES, first=0, count=1, replication_factor=factor)
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_sound_assignment_is_accepted() -> None:
    check_assignment({2: [NODES[0], NODES[1]], 3: [NODES[2], NODES[0]]}, NODES, first=2)


@pytest.mark.parametrize(
    "assignment",
    [
        {1: [1]},
        {0: [1], 2: [1]},
        {0: [1], 1: [1, 2]},
        {0: []},
        {0: [9]},
        {0: [1, 1]},
    ],
    ids=["starts late", "gap", "uneven", "empty", "unknown node", "node twice"],
)
def test_an_unsound_assignment_is_refused(assignment: dict[int, list[int]]) -> None:
    named = {partition: [BrokerId(node) for node in nodes] for partition, nodes in assignment.items()}
    with pytest.raises(BrokerError) as refused:
        check_assignment(named, NODES, first=0)
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
