"""DescribeCluster: the nodes, the controller and the name of the cluster (KIP-700).

Every node is told under the address that this client can reach it at.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.resources import authorized_operations
from tailrace.model.operation import CLUSTER, Operation
from tailrace.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

KEY = 60


def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    cluster = call.access.cluster(Operation.DESCRIBE)
    response = DescribeClusterResponse(cluster_id=cluster.cluster_id, controller_id=cluster.controller_id)
    for node in cluster.nodes.values():
        host, port = call.advertised(node)
        response.brokers.append(
            DescribeClusterBroker(broker_id=node.node_id, host=host, port=port, rack=node.rack)
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(call.access, CLUSTER)
    return response
