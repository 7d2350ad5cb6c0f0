"""ListPartitionReassignments: none is ever under way, for replicas do not move. Tools ask nevertheless."""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

KEY = 46


def handle(call: Call, _request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    call.access.cluster(Operation.DESCRIBE)
    return ListPartitionReassignmentsResponse()
