"""ElectLeaders: nothing to do where the preferred replica leads already.

v1  the type of election: 0 preferred, 1 unclean (KIP-460), and an error of the whole answer

Every partition that is named is answered ELECTION_NOT_NEEDED, or UNKNOWN_TOPIC_OR_PARTITION. Null partitions
are all, and then only those are told whose leader would have changed: none.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

KEY = 43

_ELECTION_TYPES = (0, 1)


def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in _ELECTION_TYPES:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    call.access.cluster(Operation.ALTER)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[_elect(call, asked.topic, index) for index in asked.partitions],
            )
            for asked in request.topic_partitions or ()
        ]
    )


def _elect(call: Call, name: str, index: int) -> PartitionResult:
    try:
        partitions = call.access.topic(name, Operation.DESCRIBE).partitions
    except BrokerError:
        partitions = []  # what the client may not see is told like what does not exist
    if not 0 <= index < len(partitions):
        return PartitionResult(
            partition_id=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"{name[:249]}-{index} does not exist",
        )
    return PartitionResult(
        partition_id=index,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message=f"{name}-{index} is led by node {partitions[index].leader}, as it should be",
    )
