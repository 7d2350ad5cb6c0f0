"""DescribeQuorum: who keeps the metadata of the cluster. Here that is one node, which is the whole quorum.

v1  when a replica fetched last, and when it had everything (KIP-836): not known, -1
v2  error messages, and the addresses of the nodes (KIP-853)

Metadata is no log here. What Kafka counts as offsets of `__cluster_metadata` is the number of changes of
topics since this node started. Any other partition is UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model import ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.describe_quorum import (
    DescribeQuorumListener,
    DescribeQuorumNode,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    ReplicaState,
)

KEY = 55

_TOPIC = "__cluster_metadata"
_LISTENER = "KAFKA"  # Java's client refuses lower case


def handle(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    cluster = call.access.cluster(Operation.DESCRIBE)
    response = DescribeQuorumResponse(
        topics=[
            DescribeQuorumTopic(
                topic_name=topic.topic_name,
                partitions=[
                    _partition(call, topic.topic_name, each.partition_index) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    host, port = call.advertised(cluster.nodes[cluster.controller_id])
    listener = DescribeQuorumListener(name=_LISTENER, host=host, port=port)
    response.nodes = [DescribeQuorumNode(node_id=cluster.controller_id, listeners=[listener])]
    return response


def _partition(call: Call, name: str, index: int) -> DescribeQuorumPartition:
    if name != _TOPIC or index != 0:
        return DescribeQuorumPartition(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"the metadata is {_TOPIC}-0",
        )
    changes = call.access.version
    voter = ReplicaState(replica_id=call.access.controller_id, log_end_offset=changes)
    return DescribeQuorumPartition(
        partition_index=index,
        leader_id=call.access.controller_id,
        high_watermark=changes,
        current_voters=[voter],
    )
