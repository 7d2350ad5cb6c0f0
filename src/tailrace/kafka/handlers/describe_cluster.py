"""DescribeCluster: the nodes, the controller and the name of the cluster (KIP-700).

v1  brokers (1) or controllers (2) are asked for (KIP-919): this listener knows brokers only

Every node is told under the address that this client can reach it at.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.resources import authorized_operations
from tailrace.model import ErrorCode
from tailrace.model.operation import CLUSTER
from tailrace.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

KEY = 60

_BROKERS = 1
_CONTROLLERS = 2


def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        return _refuse_type(request.endpoint_type)
    access = call.access
    response = DescribeClusterResponse(cluster_id=access.cluster_id, controller_id=access.controller_id)
    for node in access.nodes.values():
        host, port = call.advertised(node)
        response.brokers.append(
            DescribeClusterBroker(broker_id=node.node_id, host=host, port=port, rack=node.rack)
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(access, CLUSTER)
    return response


def _refuse_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == _CONTROLLERS:
        code, message = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this is an endpoint of brokers, not of controllers",
        )
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {endpoint_type} is unknown"
    return DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=endpoint_type)
