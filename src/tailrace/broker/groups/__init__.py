"""Classic Kafka consumer groups: who reads which partitions, and how far everybody has come.

`api.py`          the values that the listeners and the coordinator exchange: read this one first
`coordinator.py`  `GroupCoordinator`: performs what the groups decide, in one event loop
`group.py`        one group, a pure state machine; `state.py` its states, `roster.py` and `member.py` who
                  belongs to it, `waiting.py` who waits in it, `effects.py` what it asks for
`directory.py`    which groups live on this node
`positions.py`    committing and removing offsets; `committed.py` those of one group
`transaction.py`  offsets that are committed by transactions, until these end
`offsets.py`      records of `__consumer_offsets` in Kafka's formats; `stored.py` the values in them
`topic.py`        that topic's name, and what its errors become
`home.py`         a partition of that topic with its groups; `loading.py` reads it

What the groups share with other state that is kept in a log is in `broker/internal/`.
"""

from tailrace.broker.groups.api import (
    NO_GENERATION,
    NO_OFFSET,
    NOT_COMMITTED,
    UNSTABLE,
    CommitRequest,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    JoinedMember,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    MemberDescription,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from tailrace.broker.groups.coordinator import GroupCoordinator
from tailrace.broker.groups.limits import GroupConfig
from tailrace.broker.groups.topic import OFFSETS_TOPIC
from tailrace.broker.internal import partition_for

__all__ = [
    "NOT_COMMITTED",
    "NO_GENERATION",
    "NO_OFFSET",
    "OFFSETS_TOPIC",
    "UNSTABLE",
    "CommitRequest",
    "CommittedOffset",
    "GroupConfig",
    "GroupCoordinator",
    "GroupDescription",
    "GroupListing",
    "JoinRequest",
    "JoinResult",
    "JoinedMember",
    "LeaveResult",
    "LeavingMember",
    "MemberDescription",
    "OffsetToCommit",
    "SyncRequest",
    "SyncResult",
    "partition_for",
]
