"""What a node knows of its cluster and of itself, as clients may be told: no way to change anything.

The broker owns one view for its whole life. `cluster_id` is known once the broker has started, `failure` once
something has ended it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.broker.config import BrokerConfig
from tailrace.broker.configs import NodeSettings
from tailrace.model import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of the cluster, as clients are told of it; no host means: the address they connected to."""

    node_id: BrokerId
    host: str = ""
    port: int = 0
    rack: str | None = None


@dataclass(slots=True, kw_only=True)
class ClusterView:
    """The cluster as this node sees it."""

    node_id: BrokerId
    nodes: Mapping[BrokerId, Node]
    config: BrokerConfig
    settings: NodeSettings  # those that differ from their defaults
    cluster_id: str = ""
    failure: Exception | None = None

    @property
    def controller_id(self) -> BrokerId:
        return min(self.nodes)
