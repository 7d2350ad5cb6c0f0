"""The internal topic of the groups: its name, and what its errors become."""

from __future__ import annotations

from tailrace.broker.internal.writer import ErrorMap
from tailrace.model import ErrorCode

OFFSETS_TOPIC = "__consumer_offsets"

# In the words of a coordinator: a client looks for another one, sends less, or comes back later.
OFFSETS_ERRORS = ErrorMap(
    codes={
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
    },
    otherwise=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    stopped=ErrorCode.NOT_COORDINATOR,
)
